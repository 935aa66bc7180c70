"""The view of a kernel: which panes, which notes, which lines."""

import pytest

import kernelab as kl
from kernelab.codegen.listing.listing import listing as kernel_listing
from kernelab.views.kernel.code_view import OF_THREE, PANES, WIDTH
from kernelab.views.kernel.kernel_facts import parts_of, view
from kernelab.views.pages import markup, page
from tests.support import zoo

LOOP = """
def scan(x: array[float], n: array[int], out: array[float]):
    i = tid()
    p = 1.0
    for k in range(n[i]):
        p = p * x[k] * gain
    out[i] = p


def unrelated(x: array[float]):
    x[tid()] = 0.0
"""
IN_PLACE = "def square(x: array[float]):\n    x[tid()] = x[tid()] * x[tid()]"


@pytest.fixture(scope="module")
def scan() -> kl.Kernel:
    made = kl.compile(LOOP, {"gain": 1.5}, "Cell In[4]")["scan"]
    assert isinstance(made, kl.Kernel)
    return made


def lines(kernel: kl.Kernel, *panes: str) -> list[str]:
    return markup.render(view(kernel, panes)).splitlines()


def test_the_first_lines_say_what_the_kernel_does_to_arrays_and_what_it_captured(scan: kl.Kernel) -> None:
    title, captured, saved = lines(scan, "none")[:3]
    assert title == "kernel scan · reads x, n · writes out"
    assert captured == "captured from outside: gain = 1.5"
    assert saved.startswith("saved for the backward pass: loop of line 5: ")
    assert saved.endswith("bytes an iteration)")


def test_the_source_pane_shows_the_definition_and_not_the_rest_of_the_cell(scan: kl.Kernel) -> None:
    shown = lines(scan, "source")
    assert "Cell In[4]" in shown
    assert "2 │ def scan(x: array[float], n: array[int], out: array[float]):" in shown
    assert "7 │     out[i] = p" in shown
    assert "unrelated" not in "\n".join(shown)


def test_the_adjoint_has_the_numbers_of_the_source_instead_of_comments(scan: kl.Kernel) -> None:
    shown = lines(scan, "adjoint")
    assert not [line for line in shown if "# line" in line]
    assert [line for line in shown if line.startswith("5 │     for k in reversed(range(")]
    assert [line for line in shown if line.startswith("6 │         x_bar[k] += ")]


def test_a_signature_of_several_lines_has_one_number_and_lights_as_one(scan: kl.Kernel) -> None:
    shown = lines(scan, "adjoint")
    first = shown.index("2 │ def scan_adjoint(")
    numbers = [line.partition("│")[0].strip() for line in shown[first : first + 3]]
    assert numbers == ["2", "", ""]
    signature = page.render(view(scan, ("adjoint",))).split("<span class=l2 tabindex=0 role=listitem>")[-1]
    assert signature.partition("</span>\n<span")[0].count("array[") > 2


def test_the_signature_of_one_of_three_panes_is_narrow(scan: kl.Kernel) -> None:
    shown = lines(scan, "textbook")
    derived = shown[shown.index(PANES["textbook"]) :]
    first = derived.index("2 │ def scan_adjoint(")
    parameters = [line.partition("│ ")[2] for line in derived[first + 1 : first + 5]]
    assert parameters[-1].endswith("):")
    assert {len(line) - len(line.lstrip()) for line in parameters} == {8}
    assert max(map(len, parameters)) <= OF_THREE


LONG = """
def long(x: array[float], out: array[float]):
    i = tid()
    if x[i] > 0.0:
        for k in range(3):
            if x[k] > 0.0:
                out[i] = sin(x[i]) * sin(x[k]) + cos(x[i]) * cos(x[k]) - tan(x[i]) * tan(x[k])
"""


def test_a_long_line_of_a_derived_program_is_broken_and_reads_the_same() -> None:
    made = kl.compile(LONG)["long"]
    assert isinstance(made, kl.Kernel)
    listed = kernel_listing(made.vjp(["x", "out"]).adjoint).lines
    whole = [line.text for line in listed if not line.is_comment]
    assert max(map(len, whole)) > WIDTH
    shown = [line.partition("│ ")[2] for line in lines(made, "adjoint") if "│" in line]
    assert max(map(len, shown)) <= WIDTH
    assert "".join("".join(shown).split()) == "".join("".join(whole).split())


@pytest.mark.parametrize(
    ("pane", "words"), [("tangent", "scan_tangent("), ("cpp", "scan_entry("), ("cuda", "blockIdx")]
)
def test_every_pane_can_be_shown_alone(scan: kl.Kernel, pane: str, words: str) -> None:
    shown = "\n".join(lines(scan, pane))
    assert PANES[pane] in shown
    assert words in shown
    assert "def scan(" not in shown


def test_a_kernel_that_saves_nothing_says_so() -> None:
    twice = kl.compile("def twice(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = 2.0 * x[i]")[
        "twice"
    ]
    assert isinstance(twice, kl.Kernel)
    assert "saved for the backward pass: nothing" in lines(twice, "none")


def test_what_a_tape_keeps_is_said() -> None:
    square = kl.compile(IN_PLACE)["square"]
    assert isinstance(square, kl.Kernel)
    assert [saving.bytes for saving in parts_of(square).residuals] == [4]
    assert "kept by a tape: line 2: " in markup.render(view(square))
    assert "saved for" not in markup.render(view(square))


def test_a_kernel_whose_text_is_unusual_is_still_shown() -> None:
    made = kl.compile("def f(x: array[float]):\n    # ünïcödé <b>&amp;</b>\n    x[0] = 1.0")["f"]
    assert isinstance(made, kl.Kernel)
    found = made._repr_mimebundle_()  # type: ignore[attr-defined]
    assert "ünïcödé &lt;b&gt;&amp;amp;&lt;/b&gt;" in found["text/html"]


ANIMALS = [animal for animal in vars(zoo).values() if isinstance(animal, zoo.Animal)]


@pytest.mark.parametrize("animal", ANIMALS, ids=lambda animal: animal.name)
def test_the_page_of_a_kernel_of_about_ten_lines_is_small(animal: zoo.Animal) -> None:
    made = kl.compile(animal.text)[animal.name]
    assert isinstance(made, kl.Kernel)
    assert len(page.render(view(made))) < 43_000


def test_long_generated_text_is_cut_when_folded_and_whole_when_asked_for() -> None:
    made = kl.compile(zoo.SEARCH.text)["search"]
    assert isinstance(made, kl.Kernel)
    assert "more lines: %%kernel --show cpp" in page.render(view(made))
    whole = markup.render(view(made, ("cpp",)))
    assert "more lines" not in whole
    assert "search_adjoint_entry" in whole


def test_of_long_programs_no_more_is_generated_than_a_fold_shows() -> None:
    squares = "\n".join(f"    m = m * m + mat44(x[i] * {k}.0)" for k in range(3))
    made = kl.compile(
        f"def f(x: array[float]):\n    i = tid()\n    m = mat44(x[i])\n{squares}\n    x[i] = m[0, 0]"
    )
    kernel = made["f"]
    assert isinstance(kernel, kl.Kernel)
    parts = parts_of(kernel)
    for pane in ("cpp", "cuda"):
        assert [entry.name for entry in parts.glimpses[pane]().entries] == ["f"]
        assert [entry.name for entry in parts.units[pane]().entries] == ["f", "f_adjoint"]
        assert f"... and many more lines: %%kernel --show {pane}" in page.render(view(kernel))


def test_a_vector_that_is_kept_by_components_is_told_as_one_value() -> None:
    kernel = kl.compile("def square(v: array[vec2]):\n    i = tid()\n    v[i] = cw_mul(v[i], v[i])")["square"]
    assert isinstance(kernel, kl.Kernel)
    assert "kept by a tape: line 3: v_i (8 bytes a thread)" in lines(kernel, "none")


def test_a_program_shows_itself_as_readable_text_with_the_numbers_of_its_source(scan: kl.Kernel) -> None:
    shown = scan.primal._repr_mimebundle_()["text/plain"]  # type: ignore[attr-defined]
    assert shown.startswith(
        "scan\n2 │ def scan(x: array[float], n: array[int], out: array[float]):\n3 │     i = tid()"
    )
    assert str(scan.jvp(["x", "out"])).startswith("def scan_tangent(")


def test_the_programs_of_reverse_mode_show_themselves_one_below_the_other(scan: kl.Kernel) -> None:
    shown = scan.vjp(["x", "out"])._repr_mimebundle_()["text/plain"]  # type: ignore[attr-defined]
    assert [line for line in shown.splitlines() if line in ("scan", "scan_adjoint")] == [
        "scan",
        "scan_adjoint",
    ]
    assert "<svg" not in shown and "span=" not in shown


def test_places_in_text_show_themselves_in_few_words(scan: kl.Kernel) -> None:
    assert repr(scan.span) == "<Cell In[4], line 2>"
    assert repr(scan.source) == "<source Cell In[4]>"
