"""Answers over the comm of a real ipykernel: also while a cell runs, and without a trace in the notebook."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter.assistant import Page, running
from tests.jupyter.conftest import Notebook
from tests.jupyter.mistake import mistakes
from tests.jupyter.test_checking import GOLDEN

WRONG = "%%kernel\ndef f(x: array[float]):\n    x[i] = 2.0 * x[i]\n"


@pytest.fixture
def page(notebook: Notebook) -> Iterator[Page]:
    page = Page(notebook)
    yield page
    page.close()


def test_a_text_is_checked_while_a_cell_runs(notebook: Notebook, page: Page, tmp_path: Path) -> None:
    with running(notebook, tmp_path / "answered"):
        (told,) = page.ask("check", text=WRONG, cell="a")["diagnostics"]
    assert told["message"] == "the name i is not known here"
    assert [told["start"], told["end"]] == [[2, 19], [2, 20]]


def test_an_answer_ends_no_cell_for_others_who_wait_for_that(
    notebook: Notebook, page: Page, tmp_path: Path
) -> None:
    notebook.run("import threading\nthreads = set()")
    notebook.run("def note(): threads.add(threading.current_thread() is threading.main_thread())")
    notebook.run("get_ipython().events.register('post_execute', note)")  # as Matplotlib sends its figures
    with running(notebook, tmp_path / "answered"):
        page.ask("check", text=WRONG, cell="a")
    assert notebook.run("print(threads)").stream == "{True}\n"
    notebook.run("get_ipython().events.unregister('post_execute', note)")


def test_a_check_leaves_no_trace(notebook: Notebook, page: Page) -> None:
    notebook.run("%%kernel --quiet\n@func\ndef half(t):\n    return 0.5 * t")
    notebook.run("before = dict(vars(half))")
    rule = "%%kernel\n@func_grad(half)\ndef adj(t, adj_ret):\n    adjoint[t] += 7.0 * adj_ret\n"
    assert [one["code"] for one in page.ask("check", text=rule, cell="a")["diagnostics"]] == ["late"]
    body = "def g(x: array[float]):\n    i = tid()\n    x[i] = half(x[i]) + N\n"
    text = f"%%kernel\nN = print('ran')\nimport this\n{body}"
    assert page.ask("check", text=text, cell="a")["diagnostics"] == []
    same = "all(vars(half)[name] == value for name, value in before.items())"
    after = notebook.run(f"import sys\nprint({same}, 'g' in dir(), 'N' in dir(), 'this' in sys.modules)")
    assert after.stream == "True False False False\n"


def test_a_page_that_speaks_otherwise_is_told(page: Page) -> None:
    assert "there is no request 'sing'" in page.ask("sing")["error"]
    assert "version 1" in page.ask("check", version=99)["error"]
    assert "KeyError" in page.ask("check")["error"]


LOOP = """
head = "def k(x: array[float], v: array[vec%d]):\\n    x[0] = half(x[0]) + half(v[0]).x"
texts = [head % n for n in (2, 3, 4)]
def shown():
    made = [kl.compile(text, {"half": half})["k"] for text in texts]
    return [str(kernel.definition.function) for kernel in made]
first, seen = shown(), set()
"""


def test_checking_while_a_cell_compiles_changes_neither(
    notebook: Notebook, page: Page, tmp_path: Path
) -> None:
    notebook.run("%%kernel --quiet\ndef half(t):\n    return 0.5 * t")
    notebook.run(LOOP)
    text = (
        "%%kernel\ndef f(x: array[float], m: array[mat22], k: int):\n    x[0] = half(m[0])[0, 0] + half({})\n"
    )
    texts = [text.format(part) for part in ("x[0]", "k", "m[k]", "x")]
    alone = [page.ask("check", text=text, cell="a")["diagnostics"] for text in texts]
    with running(notebook, tmp_path / "answered", "seen.add(shown() == first)"):
        for _ in range(5):
            assert [page.ask("check", text=text, cell="a")["diagnostics"] for text in texts] == alone
    assert notebook.run("print(seen)").stream == "{True}\n"


def test_mistakes_of_a_first_hour_are_told_as_one_types(notebook: Notebook, page: Page) -> None:
    told = 0
    for mistake in (one for one in mistakes() if "%%kernel --quiet" in "".join(one.cells)):
        notebook.run("%reset -f\n%load_ext kernelab\nimport kernelab as kl")
        for text in mistake.cells:
            text = text[max(0, text.find("%%kernel --quiet")) :]
            diagnostics = page.ask("check", text=text)["diagnostics"]
            run = notebook.run(text)
            for one in diagnostics:
                said = f"{run.traceback}\n{run.text}"
                assert one["message"] in said
                assert f"line {one['start'][0] + 1}" in said
            told += len(diagnostics)
    assert told >= 4


OVERWRITE = """x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
y = kl.zeros(2, dtype=float, requires_grad=True)
with kl.Tape(overwrite="warn") as tape:
    kl.launch(square, 2, inputs=[x], outputs=[y])
    {}
"""
SQUARE = (
    "%%kernel --quiet\ndef square(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * x[i]"
)


def _warning(page: Page) -> dict[str, Any]:
    while (event := page.event())["event"] != "warning":
        assert event["event"] == "state"
    return event


def test_an_overwrite_is_told_at_both_lines_until_it_is_mended(notebook: Notebook, page: Page) -> None:
    notebook.run(SQUARE)
    page.run(OVERWRITE.format("x.fill_(3.0)"), cell="b")
    told = _warning(page)
    assert (told["kind"], told["cell"], told["line"], told["text"]) == ("overwritten", "b", 4, "x.fill_(3.0)")
    (read,) = told["others"]
    assert (read["cell"], read["line"]) == ("b", 3)
    assert told["same"] == read["same"] == [0, 1]
    assert told["message"] == (
        "`x` is overwritten, but the gradient of `square` needs its old values, and would be wrong"
    )
    assert told.keys() == json.loads((GOLDEN / "warning.json").read_text())["event"].keys()
    page.run("kl.autograd.gradcheck_tape(tape, raise_exception=False);", cell="c")  # it runs the tape again
    state = page.ask("state")
    assert state.keys() == json.loads((GOLDEN / "state.json").read_text())["reply"].keys()
    assert [one["key"] for one in state["problems"]] == [told["key"]]
    assert (state["device"], state["warnings"], state["checked"]) == ("cpu", 1, None)
    page.events.clear()
    page.run("1 + 1", cell="c")
    assert page.event() == {"version": 1, "event": "state"}
    page.run(OVERWRITE.format("pass"), cell="b")
    assert page.event() == {"version": 1, "event": "mended", "key": told["key"]}
    assert page.ask("state")["problems"] == []


def test_values_that_the_tape_has_kept_are_no_warning(notebook: Notebook, page: Page) -> None:
    notebook.run(SQUARE)
    page.run(OVERWRITE.format("x.fill_(3.0)").replace("warn", "save"), cell="b")
    assert page.ask("state")["problems"] == []


def test_an_error_whose_line_is_that_of_the_call_names_it_once(notebook: Notebook, page: Page) -> None:
    notebook.run(SQUARE)
    page.run(OVERWRITE.format("pass") + "kl.contributions(tape, x, (1, 0), y)", cell="b")
    assert _warning(page)["others"] == []


CUT = """x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
y, z = kl.zeros(2, dtype=float, requires_grad={}), kl.zeros(2, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    kl.launch(square, 2, inputs=[x], outputs=[y])
    z += x * y
tape.backward(grads={{z: kl.ones(2)}})
"""


def test_a_warning_of_a_gradient_that_ends_is_open_until_its_cell_runs_without_it(
    notebook: Notebook, page: Page
) -> None:
    notebook.run(SQUARE)
    page.run(CUT.format("False"), cell="b")
    told = _warning(page)
    assert (told["kind"], told["cell"], told["line"]) == ("cut", "b", 4)
    assert told["message"].startswith("no gradient flows through `y`, read by")
    assert page.ask("state")["warnings"] == 1
    page.run("kl.ones(2) * 2.0;", cell="c")
    assert page.ask("state")["warnings"] == 1
    page.run(CUT.format("True"), cell="b")
    assert page.ask("state")["problems"] == []


def test_a_warning_of_the_text_of_a_kernel_cell_is_left_to_its_underline(
    notebook: Notebook, page: Page
) -> None:
    page.run("%%kernel --quiet\ndef keep(x: array[float]):\n    x[0] == 1.0", cell="b")
    assert page.ask("state")["problems"] == []


def test_a_trace_that_is_offered_is_of_the_last_launch_of_the_kernel(notebook: Notebook, page: Page) -> None:
    notebook.run(SQUARE)
    page.run("z = kl.zeros(2, dtype=float, requires_grad=True)", cell="b")
    page.run(OVERWRITE.format("kl.launch(square, 2, inputs=[y], outputs=[z])"), cell="b")
    page.run("tape.backward(grads={z: kl.ones_like(z)})", cell="b")
    offered = page.ask("code", command="trace-thread", text=SQUARE, line=2)["code"]
    assert offered == "kl.trace(tape, 2, 0)"
    assert "thread 0 of square, launch 2 of the tape, run again" in notebook.run(f"print({offered})").stream


def test_a_value_that_turns_nan_is_told_at_its_line(notebook: Notebook, page: Page) -> None:
    page.run(SQUARE.replace("x[i] * x[i]", "log(x[i])"), cell="a")
    text = OVERWRITE.format("pass") + "tape.backward(grads={y: kl.ones_like(y)}, check_finite=True)"
    page.run(text.replace("1.0, 2.0", "-1.0, 2.0"), cell="b")
    told = _warning(page)
    assert told["kind"] == "not finite"
    assert (told["cell"], told["line"], told["text"]) == ("a", 3, "y[i] = log(x[i])")


def test_a_launch_that_does_not_fit_is_told_at_its_own_line_first(notebook: Notebook, page: Page) -> None:
    page.run(SQUARE, cell="a")
    page.run("x = kl.ones(2, dtype=float)\nsquare[2](x)", cell="b")
    told = _warning(page)
    assert (told["cell"], told["line"], told["text"]) == ("b", 1, "square[2](x)")
    assert [(other["cell"], other["line"]) for other in told["others"]] == [("a", 1)]
    page.run("square[2](x, x)", cell="b")
    assert page.ask("state")["problems"] == []


def test_an_error_of_a_kernel_is_mended_when_the_cell_that_ran_it_has_run_without_it(
    notebook: Notebook, page: Page
) -> None:
    page.run(SQUARE, cell="a")
    launch = "x, y = kl.ones(2, dtype=float), kl.zeros(2, dtype=float)\nsquare[{}](x, y)\nx.numpy()"
    page.run(launch.format(3), cell="b")
    told = _warning(page)
    assert (told["cell"], told["line"]) == ("a", 3)
    page.run("1 + 1", cell="c")
    assert len(page.ask("state")["problems"]) == 1
    page.run(launch.format(2), cell="b")
    assert page.ask("state")["problems"] == []


def test_arrays_are_listed_while_a_cell_runs(notebook: Notebook, page: Page, tmp_path: Path) -> None:
    page.run(
        "a = kl.array([[3.0, 4.0]], dtype=float, requires_grad=True)\nb = kl.array([np.nan])\nn = 3", cell="a"
    )
    with running(notebook, tmp_path / "answered"):
        listed = page.ask("arrays")["arrays"]
    a, b = (next(one for one in listed if one["name"] == name) for name in "ab")
    assert (a["shape"], a["dtype"], a["requires_grad"], a["norm"]) == ([1, 2], "float32", True, 5.0)
    assert (b["norm"], b["grad_norm"]) == ("nan", None)
    assert "<table" in a["picture"]


def test_the_tape_and_the_last_checks_of_a_notebook_are_told_with_their_lines(
    notebook: Notebook, page: Page
) -> None:
    page.run(SQUARE, cell="a")
    page.run(OVERWRITE.format("pass"), cell="b")
    assert page.ask("state")["launches"] == 1
    told = page.ask("tape")
    assert told["name"] == "tape"
    assert told["forms"].keys() & {"application/vnd.jupyter.widget-view+json", "text/html"}
    code = page.ask("code", command="check-kernel", text=SQUARE, line=2)["code"]
    assert page.ask("code", command="check-kernel", text=SQUARE, line=0)["code"] == code
    assert "no kernel" in page.ask("code", command="check-kernel", text="n = 3", line=0)["why"]
    page.run(code, cell="c")
    page.run(SQUARE.replace("x[i] * x[i]", "x[i] if x[i] > 1.5 else floor(x[i])"), cell="a")
    (check,) = page.ask("checks")["checks"]
    assert check["passed"] and check["verdict"].startswith("\u2713 PASS  gradcheck of 1 launch on a tape")
    assert (check["cell"], check["line"], check["text"]) == ("c", 0, code)
    assert check.keys() == json.loads((GOLDEN / "checks.json").read_text())["reply"]["checks"][0].keys()
    place = page.ask("where", label=check["label"], line=0)
    assert place.keys() == json.loads((GOLDEN / "where.json").read_text())["reply"].keys()
    assert (place["cell"], place["text"]) == ("c", code)
    assert "cell" not in page.ask("where", label="Cell In[999]", line=0)
