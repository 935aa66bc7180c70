"""The mistakes of a first hour in a notebook, each answered in words."""

import re
from collections.abc import Iterator

import pytest

from tests.jupyter.conftest import Notebook, started
from tests.jupyter.mistake import Mistake, mistakes
from tests.jupyter.test_magic import SCALE

QUIET = SCALE.replace("%%kernel", "%%kernel --quiet")
BEGIN = f"""%load_ext kernelab
import kernelab as kl, numpy as np

def begin(shell=get_ipython(), names=dict(kl=kl, np=np), known={{*globals()}}):
    own = {{name for name in shell.user_ns if not name.startswith("_")}} - known
    for name in own:  # %reset would take a second
        del shell.user_ns[name]
    shell.user_ns.update(names, x=names["kl"].array([1.0, 2.0, 3.0]))
    shell.run_cell({QUIET!r}, store_history=True)

get_ipython().begin = begin
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Notebook]:
    """One kernel for all mistakes, with a function that begins anew: what takes time is to ask the kernel."""
    with started() as notebook:
        assert notebook.run(BEGIN).error_name == ""
        yield notebook


@pytest.mark.parametrize("mistake", [pytest.param(one, id=one.message) for one in mistakes()])
def test_a_mistake_is_answered(kernel: Notebook, mistake: Mistake) -> None:
    kernel.run("get_ipython().begin()")
    for cell in mistake.cells:
        outcome = kernel.run(cell)
    told = re.sub(r"Cell In\[\d+\]", "Cell In[N]", f"{outcome.traceback}\n{outcome.stream}\n{outcome.text}")
    assert mistake.message in told
    assert mistake.hint in told


def test_an_older_kernel_is_spoken_of_once(kernel: Notebook) -> None:
    kernel.run("get_ipython().begin()")
    assert kernel.run(SCALE.replace("by: float", "by: flot")).error_name == "KernelNameError"
    launch = "scale[1](kl.array([1.0]), 2.0)"
    assert "is still the kernel of" not in kernel.run("1 + 1").text
    assert "is still the kernel of" in kernel.run(launch).text
    assert "is still the kernel of" not in kernel.run(launch).text
