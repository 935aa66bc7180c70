"""A program of a lesson: a cell of kernels and a cell of Python, and what kernelab says when they run.

A mistake that is planted in it is in the line that ends in ``# !``.
"""

import linecache
import re
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np

import kernelab as kl


class Lesson:
    """A kernel cell and a Python cell; `told` is what they warned of, printed and raised."""

    def __init__(self, kernels: str, program: str = "", **names: Any) -> None:
        self.cells = {"Cell In[1]": kernels.lstrip("\n"), "Cell In[2]": program.lstrip("\n")}
        self.names: dict[str, Any] = {"kl": kl, "np": np, **names}
        printed = StringIO()
        with (
            warnings.catch_warnings(record=True) as caught,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            self.names |= kl.compile(self.cells["Cell In[1]"], self.names, "Cell In[1]")
            text = self.cells["Cell In[2]"]
            linecache.cache["Cell In[2]"] = (len(text), None, text.splitlines(keepends=True), "Cell In[2]")
            try:
                exec(compile(text, "Cell In[2]", "exec"), self.names)
            except kl.KernelError as error:
                printed.write(str(error))
        self.told = "".join(f"{one.message}\n" for one in caught) + printed.getvalue()

    def __getattr__(self, name: str) -> Any:
        return self.names[name]

    @property
    def mistake(self) -> str:
        """The place of the line that ends in ``# !``."""
        ((cell, number),) = [
            (cell, number)
            for cell, text in self.cells.items()
            for number, line in enumerate(text.splitlines(), 1)
            if line.endswith("# !")
        ]
        return f"{cell}, line {number}"

    def is_named_in(self, told: object) -> bool:
        """Whether a message or a report names the line of the mistake."""
        return re.search(rf"{re.escape(self.mistake)}\b", str(told)) is not None


def shown(check: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What a check prints, which does not raise."""
    with redirect_stdout(StringIO()) as printed:
        check(*args, **options, raise_exception=False)
    return printed.getvalue()
