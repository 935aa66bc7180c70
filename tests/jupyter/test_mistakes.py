"""The mistakes of a first hour in a notebook, as `mistakes.txt` tells them, each answered in words.

! the message after the last cell, whatever the numbers of cells
? its hint, where there is one
a cell, and more behind ---
"""

import re
from pathlib import Path

import pytest

from tests.jupyter.conftest import Notebook
from tests.jupyter.test_magic import SCALE

MISTAKES = re.split(r"\n\n+(?=! )", (Path(__file__).parent / "mistakes.txt").read_text().strip("\n"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.partition("\n")[0] for mistake in MISTAKES])
def test_a_mistake_is_answered(notebook: Notebook, mistake: str) -> None:
    match = re.fullmatch(r"! (.+)\n(?:\? (.+)\n)?((?:.*\n)*)", f"{mistake}\n")
    assert match is not None, f"this is no mistake:\n{mistake}"
    message, hint, text = match.groups(default="")
    notebook.run(SCALE.replace("%%kernel", "%%kernel --quiet"))
    notebook.run("x = kl.array([1.0, 2.0, 3.0])")
    for cell in text.split("\n---\n"):
        outcome = notebook.run(cell)
    told = re.sub(r"Cell In\[\d+\]", "Cell In[N]", f"{outcome.traceback}\n{outcome.stream}\n{outcome.text}")
    assert message in told
    assert hint in told


def test_an_older_kernel_is_spoken_of_once(notebook: Notebook) -> None:
    notebook.run(SCALE)
    assert notebook.run(SCALE.replace("by: float", "by: flot")).error_name == "KernelNameError"
    launch = "scale[1](kl.array([1.0]), 2.0)"
    assert "is still the kernel of" not in notebook.run("1 + 1").text
    assert "is still the kernel of" in notebook.run(launch).text
    assert "is still the kernel of" not in notebook.run(launch).text
