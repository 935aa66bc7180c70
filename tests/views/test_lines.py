"""What each line of a kernel does: arrays by what happens to them, and bytes that are kept."""

import numpy as np
import pytest

import kernelab as kl
from kernelab.views.kernel.kernel_facts import view
from kernelab.views.pages import markup, page

CELL = """
def pull(x: array[vec3], i: int, by: array[float]):
    return length(x[i]) * by[i]


def decay(x: array[vec3], n: array[int], by: array[float], out: array[float], energy: array[float]):
    i = tid()
    d = pull(x, i, by)
    for k in range(n[i]):
        d = d * 0.5 + sin(d)
    for k in range(2):
        by[i] += 1.0
    out[i] = d
    old = atomic_add(energy, 0, 0.5 * d * d)
    out[i + 1] = out[i] * old
"""
CLEAR = "def clear(n: array[int]):\n    n[tid()] = 0"


@pytest.fixture(scope="module")
def decay() -> kl.Kernel:
    made = kl.compile(CELL, label="Cell In[4]")["decay"]
    assert isinstance(made, kl.Kernel)
    return made


def rows(kernel: kl.Kernel) -> dict[str, tuple[str, ...]]:
    """The rows of the table by number, each entry told from its column."""
    lines = markup.render(view(kernel, ("lines",))).splitlines()
    start = lines.index("what each line does")
    ends = np.cumsum([len(rule) + 2 for rule in lines[start + 2].split("  ")])
    cut = [[line[a:b].strip() for a, b in zip([0, *ends], ends, strict=False)] for line in lines[start + 3 :]]
    return {row[0]: tuple(row[2:]) for row in cut}


def test_each_line_says_which_arrays_it_reads_writes_and_adds_to(decay: kl.Kernel) -> None:
    found = {number: row[:3] for number, row in rows(decay).items()}
    assert found["3"] == ("x, by", "", "")
    assert found["9"] == ("n", "", "")
    assert found["10"] == ("", "", "")
    assert found["12"] == ("", "", "by")
    assert found["13"] == ("", "out", "")
    assert found["14"] == ("energy", "", "energy")
    assert found["15"] == ("out", "out", "")


def test_a_loop_says_how_many_bytes_of_each_iteration_are_kept(decay: kl.Kernel) -> None:
    assert rows(decay)["9"][3].startswith("d (4 bytes an iteration)")


def test_the_page_tells_the_same_at_the_line_in_the_pane_of_the_source(decay: kl.Kernel) -> None:
    html = page.render(view(decay))
    assert "<p class=d13>13 · writes out</p>" in html
    assert "<p class=d10>10 · touches no array</p>" in html
    assert "<span class=l13 tabindex=0 role=listitem>" in html
    assert "<span class=l6 tabindex=0 role=listitem>" in html


def test_a_kernel_without_an_adjoint_says_what_its_lines_do() -> None:
    made = kl.compile(CLEAR)["clear"]
    assert isinstance(made, kl.Kernel)
    assert rows(made) == {"2": ("", "n", "", "")}


def test_lines_of_another_cell_have_its_mark() -> None:
    helper = kl.compile("def twice(x: array[float], i: int):\n    return 2.0 * x[i]", label="Cell In[1]")
    user = "def use(x: array[float], y: array[float]):\n\n    y[tid()] = twice(x, tid())"
    made = kl.compile(user, helper, label="Cell In[2]")["use"]
    assert isinstance(made, kl.Kernel)
    found = rows(made)
    assert found["3"][:2] == ("", "y")
    assert found["2'"][:2] == ("x", "")
    assert "<p class=d2-1>2' · reads x</p>" in page.render(view(made))
