"""The mistakes of a first hour in a notebook, each answered in words."""

import re

import pytest

from tests.jupyter.conftest import Notebook
from tests.jupyter.mistake import Mistake, mistakes
from tests.jupyter.test_magic import SCALE


@pytest.mark.parametrize("mistake", [pytest.param(one, id=one.message) for one in mistakes()])
def test_a_mistake_is_answered(notebook: Notebook, mistake: Mistake) -> None:
    notebook.run(SCALE.replace("%%kernel", "%%kernel --quiet"))
    notebook.run("x = kl.array([1.0, 2.0, 3.0])")
    for cell in mistake.cells:
        outcome = notebook.run(cell)
    told = re.sub(r"Cell In\[\d+\]", "Cell In[N]", f"{outcome.traceback}\n{outcome.stream}\n{outcome.text}")
    assert mistake.message in told
    assert mistake.hint in told


def test_an_older_kernel_is_spoken_of_once(notebook: Notebook) -> None:
    notebook.run(SCALE)
    assert notebook.run(SCALE.replace("by: float", "by: flot")).error_name == "KernelNameError"
    launch = "scale[1](kl.array([1.0]), 2.0)"
    assert "is still the kernel of" not in notebook.run("1 + 1").text
    assert "is still the kernel of" in notebook.run(launch).text
    assert "is still the kernel of" not in notebook.run(launch).text
