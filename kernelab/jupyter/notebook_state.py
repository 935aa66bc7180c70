"""The arrays of a notebook and what kernels run on, as the side panel of JupyterLab lists them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernelab.backend.common.compiler import find_compiler
from kernelab.jupyter.problems import Problems
from kernelab.runtime.array.array import array
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.memory.device import get_device
from kernelab.settings import settings
from kernelab.views.pages import page
from kernelab.views.tape.arrays import LOOKED_AT, values_view

MOST = 100
"""How many arrays are listed."""

PIXELS = 2_000
"""How many bytes the picture of an array takes, before it is encoded as text."""


def arrays(_: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `arrays`: those that variables of the notebook hold, the latest first, and the style."""
    found = [(name, value) for name, value in names.items() if issubclass(type(value), array)]
    shown = [pair for pair in reversed(found) if not pair[0].startswith("_")]
    return {
        "arrays": list(map(_described, shown[:MOST])),
        "more": max(0, len(shown) - MOST),
        "style": page.styles(),
    }


def _described(pair: tuple[str, array]) -> dict[str, Any]:
    name, shown = pair
    gradient = shown.grad if shown.requires_grad and shown.allocation.adjoint is not None else None
    return {
        "name": name,
        "shape": list(shown.shape),
        "dtype": str(shown.dtype),
        "device": str(shown.device),
        "requires_grad": shown.requires_grad,
        "norm": _norm(shown),
        "grad_norm": None if gradient is None else _norm(gradient),
        "picture": page.part(values_view("", shown, PIXELS)) if _may_be_read(shown) else None,
    }


def _may_be_read(shown: array) -> bool:
    """Whether another thread may look at the elements while a cell runs: not those of a device."""
    return shown.device.is_cpu and shown.size <= LOOKED_AT


def _norm(shown: array) -> float | str | None:
    """The root of the sum of squares; text where it is not finite, which JSON cannot say."""
    if not _may_be_read(shown) or isinstance(shown, structarray):
        return None
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(np.asarray(shown.host(), np.float64).ravel()))
    return norm if np.isfinite(norm) else str(norm)


class State:
    """What kernels run on, as it was after the last cell: settings belong to the thread of the cells."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.look()

    def look(self) -> None:
        """Take note, on the thread of the cells."""
        self.device, self.check = str(get_device()), settings().check

    def answer(self, _: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `state`."""
        compiler = find_compiler()
        problems = self.problems.messages()
        return {
            "device": self.device,
            "compiler": None if compiler is None else Path(compiler).name,
            "checked": self.check,
            "problems": problems,
            "warnings": sum(problem["kind"] != "kept" for problem in problems),
        }
