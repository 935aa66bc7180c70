"""The pane of PTX: machine text of the very kernel, linked by line; without NVRTC what to install."""

import pytest

import kernelab as kl
from kernelab.backend.cuda import nvrtc
from kernelab.errors import BuildError, Diagnostic
from kernelab.views.kernel.code_view import FOLDED, PANES
from kernelab.views.kernel.kernel_facts import parts_of, view
from kernelab.views.pages.markup import Node

TEXT = """
def bend(x: array[float], y: array[float]):
    i = tid()
    a = x[i]
    y[i] = sqrt(a)
"""


def shown(node: Node) -> str:
    return repr(node)


@pytest.mark.nvrtc
def test_each_instruction_has_the_line_of_the_kernel_that_it_comes_from() -> None:
    unit = parts_of(kl.compile(TEXT)["bend"]).units["ptx"]()
    assert unit.text.count(".visible .entry") == 2 and ".target sm_80" in unit.text
    assert ".loc" not in unit.text and ".section" not in unit.text
    roots = [line.span for line in unit.lines if "sqrt.rn.f32" in line.text]
    assert roots and all(span is not None and span.line == 5 for span in roots)
    loads = [line.span.line for line in unit.lines if "ld.global.f32" in line.text and line.span is not None]
    assert 4 in loads
    assert all(line.span is None for line in unit.lines if ".entry" in line.text)


@pytest.mark.nvrtc
def test_the_pane_is_there_when_it_is_asked_for_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kl.compile(TEXT)["bend"]
    assert "ptx" in PANES and "ptx" not in FOLDED
    assert "sqrt.rn.f32" in shown(view(kernel, ("ptx",)))
    monkeypatch.setattr(nvrtc, "compile_to_ptx", None)  # nobody calls it
    assert "sqrt.rn" not in shown(view(kernel))


def test_without_nvrtc_the_pane_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> object:
        hint = "pip install 'kernelab[cuda]' installs it"
        raise BuildError(Diagnostic("NVRTC is not installed", code="nvrtc", hint=hint))

    monkeypatch.setattr(nvrtc, "_library", missing)
    told = shown(view(kl.compile(TEXT)["bend"], ("source", "ptx")))
    assert "There is no PTX to show: NVRTC is not installed" in told and "kernelab[cuda]" in told
