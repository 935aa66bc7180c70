"""The pane of SASS: machine code of the very kernel, linked by line; without its tool what to install."""

from pathlib import Path

import pytest

import kernelab as kl
from kernelab.backend.cuda import nvrtc
from kernelab.errors import BuildError
from kernelab.views.kernel.code_view import FOLDED, PANES
from kernelab.views.kernel.kernel_facts import parts_of, view

pytestmark = pytest.mark.nvrtc

TEXT = """
def bend(x: array[float], y: array[float]):
    i = tid()
    a = x[i - 1]
    y[i] = sqrt(a)
"""


def test_each_instruction_has_the_line_of_the_kernel_that_it_comes_from() -> None:
    unit = parts_of(kl.compile(TEXT)["bend"]).units["sass"]()
    entries = [line for line in unit.lines if "_entry:" in line.text]
    assert len(entries) == 2 and all("registers" in line.text and line.span is None for line in entries)
    loads = [line.span.line for line in unit.lines if "LDG.E.CONSTANT" in line.text and line.span is not None]
    assert set(loads) == {4}
    # The slow path of a root is a subroutine behind each entry, which belongs to no line.
    roots = [line.span.line for line in unit.lines if "MUFU.RSQ" in line.text and line.span is not None]
    assert len(roots) >= len(entries) and set(roots) == {5}
    # The check of an index is a helper's text: it belongs to the line that has the index.
    compared = [line.span.line for line in unit.lines if "ISETP.GE" in line.text and line.span is not None]
    assert {4, 5} >= set(compared) and 4 in compared
    assert not any("//##" in line.text or "NOP" in line.text for line in unit.lines)


def test_the_pane_is_there_when_it_is_asked_for_and_not_before() -> None:
    kernel = kl.compile(TEXT)["bend"]
    assert "sass" in PANES and "sass" not in FOLDED
    assert "LDG.E.CONSTANT" in repr(view(kernel, ("sass",)))
    assert "LDG.E" not in repr(view(kernel))


def test_without_a_disassembler_the_pane_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find_disassembler", lambda: None)
    told = repr(view(kl.compile(TEXT)["bend"], ("source", "sass")))
    assert "There is no SASS to show: nvdisasm is not installed" in told
    assert "pip install nvidia-cuda-nvdisasm" in told


def test_a_disassembler_that_fails_is_named_with_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match="nvdisasm could not read the machine code: "):
        nvrtc.sass(b"no machine code")
    monkeypatch.setattr(nvrtc, "find_disassembler", lambda: str(Path(__file__)))
    with pytest.raises(BuildError, match=r"test_sass\.py could not read the machine code"):
        nvrtc.sass(b"")
