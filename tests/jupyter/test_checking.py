"""The check of a text that nobody has run says what a run says, at the same places, and its fixes help."""

import ast
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import Diagnostic
from kernelab.frontend.definitions.cell import lower_source
from kernelab.frontend.meaning.name_lookup import language
from kernelab.jupyter.channel import ANSWERS, reply
from kernelab.jupyter.inspection import derivative, hover
from kernelab.jupyter.typed_kernels import FORMS, CellText, check, checked, forms, marks
from kernelab.lang import ops
from tests.conformance.rejection import rejections
from tests.conformance.rule import NOTEBOOK

REJECTIONS = rejections()
GOLDEN = Path(__file__).parents[2] / "extension" / "protocol"


def _edited(text: str, fix: dict[str, Any]) -> str:
    """The text after the edits of a fix, as an editor makes them: in UTF-16 units, the last first."""
    lines = [line.encode("utf-16-le") for line in text.split("\n")]
    for edit in reversed(fix["edits"]):
        (first, column), (last, end) = edit["start"], edit["end"]
        joined = lines[first][: 2 * column] + edit["text"].encode("utf-16-le") + lines[last][2 * end :]
        lines[first : last + 1] = [joined]
    return b"\n\0".join(lines).decode("utf-16-le")


RUNS = re.compile(r"static\(|missing|1.0 / 0.0")
"""Texts of which a run evaluates more than the check of a text does."""


@pytest.mark.parametrize("name", REJECTIONS)
def test_a_text_is_told_what_a_run_tells_and_its_fixes_help(name: str) -> None:
    cell = CellText(f"%%kernel\n{REJECTIONS[name].cell}")
    run = lower_source(cell.source, NOTEBOOK)
    told = list(map(_told, (*run.errors, *run.diagnostics)))
    found = list(map(_told, checked(cell, NOTEBOOK).diagnostics))
    assert found == told or (RUNS.search(cell.text) and set(found) <= set(told))
    for one in check({"text": cell.text}, NOTEBOOK)["diagnostics"]:
        for fix in one["fixes"]:
            after = check({"text": _edited(cell.text, fix)}, NOTEBOOK)["diagnostics"]
            assert _count(after, one["message"]) < [message for message, *_ in found].count(one["message"])


def _told(one: Diagnostic) -> tuple[str, str, str, tuple[int, ...]]:
    assert one.span is not None
    place = one.span.line, one.span.column, one.span.end_line, one.span.end_column
    return one.message, one.severity, one.hint, place


def _count(diagnostics: list[dict[str, Any]], message: str) -> int:
    return sum(one["message"] == message for one in diagnostics)


FIXED = {
    "x(i) = 2.0": "x[i] = 2.0",
    "x[i] = sine(x[i])": "x[i] = sin(x[i])",
    "x[idx] = 1.0": "idx = tid()\n    x[idx] = 1.0",
    "x[i] = n ** n": "x[i] = float(n) ** n",
    "if n:\n        n = 1\n    else if n > 1:\n        n = 2": (
        "if n:\n        n = 1\n    elif n > 1:\n        n = 2"
    ),
    "n = int(true)": "n = int(True)",
    "x[n / 2] = 1.0": "x[int(n / 2)] = 1.0",
    "if n > 1 && n < 3:\n        x[i] = 1.0": "if n > 1 and n < 3:\n        x[i] = 1.0",
    "i++": "i += 1",
    "for k in range(x):\n        n = k": "for k in range(len(x)):\n        n = k",
    "for k in range(x.shape):\n        n = k": "for k in range(x.shape[0]):\n        n = k",
    "while n > 2\n        n -= 1": "while n > 2:\n        n -= 1",
    "# \U0001d465 stands for x\n    x[i] = \u2212x[i]": "# \U0001d465 stands for x\n    x[i] = -x[i]",
}
"""Lines of a kernel, and what the first fix makes of them."""


@pytest.mark.parametrize("line", FIXED)
def test_a_fix_writes(line: str) -> None:
    head = "%%kernel\ndef f(x: array[float], n: int):\n    i = tid()\n    "
    fixes = check({"text": head + line}, {})["diagnostics"][0]["fixes"]
    assert _edited(head + line, fixes[0]) == head + FIXED[line]


def test_an_argument_without_a_type_gets_one() -> None:
    text = "%%kernel\ndef f(x, n: int):\n    x[tid()] = 1.0\n"
    (one,) = check({"text": text}, {})["diagnostics"]
    assert _edited(text, one["fixes"][0]) == text.replace("(x,", "(x: array[float],")


def test_a_function_written_as_an_equation_becomes_a_def() -> None:
    text = "%%kernel\nf(x) = x * x\n"
    (one,) = check({"text": text}, {})["diagnostics"]
    assert [_edited(text, fix) for fix in one["fixes"]] == ["%%kernel\ndef f(x): return x * x\n"]


@pytest.mark.parametrize("text", ["x = 1", "", "  \n%%kernely", "# %%kernel"])
def test_another_cell_is_not_spoken_of(text: str) -> None:
    assert check({"text": text}, {}) == {"diagnostics": [], "names": []}


@pytest.mark.parametrize("line", ["%%kernel", "\n  \n%%kernel --quiet  ", "%%kernel --check full"])
def test_lines_count_from_the_top_of_the_cell(line: str) -> None:
    (one,) = check({"text": f"{line}\ndef f(x: array[float]):\n    x[0] = y\n"}, {})["diagnostics"]
    assert one["start"] == [line.count("\n") + 2, 11]


@pytest.mark.parametrize(
    ("word", "line"),
    {
        "sin": "x_bar += v1_bar * cos(x)",
        "cross": "a_bar += cross(b, v1_bar)",
        "quat_rotate": "Its derivative is that of the operations that it is composed of.",
        "where": "value_if_true_bar += v1_bar if cond else 0.0",
        "floor": "Its derivative is zero.",
        "clamp": "v2 = min(v1, high)",
        "tid": "Which thread of the launch this is",
    }.items(),
)
def test_an_operation_is_told_with_its_derivative(word: str, line: str) -> None:
    text = f"%%kernel\ndef f(x: array[float]):\n    {word}"
    told = hover({"text": text, "position": [2, 5]}, {})
    assert line in told["markdown"]
    assert not any("``" in code for code in told["markdown"].split("```")[1::2])
    assert [told["start"], told["end"]] == [[2, 4], [2, 4 + len(word)]]


def test_a_rule_reads_only_what_it_names() -> None:
    wrong = []
    for word in filter(ops.overloads, language()):
        told, _, rule = derivative(word).partition("\n")
        known = {param.name for op in ops.overloads(word) for param in op.params}
        known.update(*re.findall(r"(\w+) in (\w+):$", told))
        for stmt in ast.parse(textwrap.dedent(rule)).body:
            calls = {node.func for node in ast.walk(stmt) if isinstance(node, ast.Call)}
            names = [node for node in ast.walk(stmt) if isinstance(node, ast.Name) and node not in calls]
            read = {each.id for each in names if isinstance(each.ctx, ast.Load)}
            wrong += [(word, name) for name in read - known]
            known |= {each.id for each in names}
    assert not wrong


@pytest.mark.parametrize(
    ("place", "lines"),
    {
        "* vec3": ("mul(a: Number, b: Number)", "a_bar += v1_bar * b"),
        "vec3": ("vec3(x: float32, y: float32, z: float32)", "y_bar += v1_bar[1]"),
        "-float": ("neg(x: Number)", "x_bar += -v1_bar"),
        "int": ("int32(a: Float)", "Its derivative is zero."),
    }.items(),
)
def test_a_sign_and_a_type_are_told_as_the_line_uses_them(place: str, lines: tuple[str, str]) -> None:
    line = "    y = x[0] * vec3(x[1], 1.0, 2.0)[0] + -float(int(x[2]))\n"
    text = f"%%kernel\ndef f(x: array[float]):\n{line}    x[0] = y\n"
    told = hover({"text": text, "position": [2, line.index(place)]}, {})["markdown"]
    assert all(one in told for one in lines)
    assert "mat[" not in told


def test_each_use_of_a_name_has_its_type() -> None:
    head = "%%kernel\ndef f(x: array[vec3], n: int):\n    i = tid()\n"
    text = f"{head}    for k in range(n):\n        x[i] *= 2.0\n"
    kinds = {"x": (4, 8), "i": (4, 10), "n": (3, 19), "k": (3, 8)}
    said = {name: hover({"text": text, "position": list(at)}, {})["markdown"] for name, at in kinds.items()}
    assert [told.split("\n")[1] for told in said.values()] == [
        "x: array[vec3]",
        "i: int32, the number of the thread",
        "n: int",
        "k: int32",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_links_its_lines_with_the_cell(form: str) -> None:
    text = "%%kernel\ndef f(x: array[float]):\n    i = tid()\n    x[i] = sin(x[i])\n"
    shown = forms({"text": text, "form": form}, {})
    assert shown["whole"]
    lines = shown["text"].split("\n")
    assert len(lines) == len(shown["lines"])
    computed = [place for line, place in zip(lines, shown["lines"], strict=True) if "sin" in line]
    assert set(computed) <= {3, None} and (3 in computed or form in ("ptx", "sass", "adjoint"))


def test_a_kernel_without_an_adjoint_says_why() -> None:
    text = "%%kernel\ndef f(x: array[int]):\n    x[0] = 1\n"
    shown = forms({"text": text, "form": "adjoint"}, {})
    assert shown["text"] == "# f has no adjoint: no parameter is a float or an array of floats"
    with pytest.raises(ValueError, match="there is no form 'poem'; there is textbook, adjoint"):
        forms({"text": text, "form": "poem"}, {})


def test_derivatives_that_are_zero_by_construction_are_marked() -> None:
    body = "    n = int(x[0])\n    if x[1] > 0.5:\n        y[0] = floor(x[2]) + float(n)\n    y[1] = x[3]\n"
    text = f"%%kernel\ndef f(x: array[float], y: array[float]):\n{body}"
    found = [(m["line"], m["text"]) for m in marks({"text": text}, {})["marks"] if m["kind"] == "zero"]
    zero = [
        (line, f"the derivative of {word} is zero") for line, word in ((2, "int"), (3, ">"), (4, "floor"))
    ]
    assert found == zero


def test_of_two_loops_the_one_that_keeps_something_is_marked() -> None:
    loops = "".join(f"    for k in range(8):\n        s = {step}\n" for step in ("s + 1.0", "s * s"))
    text = f"%%kernel\ndef f(x: array[float], y: array[float]):\n    s = x[0]\n{loops}    y[0] = s\n"
    assert [m["line"] for m in marks({"text": text}, {})["marks"] if m["kind"] == "saved"] == [5]


def test_a_mistake_in_another_cell_is_not_put_into_this_one() -> None:
    names = dict(kl.compile("def part(t):\n    s = t\n    return s.q\n", label="Cell In[2]"))
    text = "%%kernel\ndef f(x: array[float]):\n    i = tid()\n    x[i] = part(x[i])\n"
    (told,) = check({"text": text}, names)["diagnostics"]
    assert [told["start"], told["end"]] == [[0, 0], [0, 8]]
    assert "Cell In[2], line 3: return s.q" in told["notes"]


@kl.func
def shifted(t: float, by: float = max(1.0, float(len("abc")))):  # type: ignore[no-untyped-def]
    return t + by


def test_a_decorated_function_that_a_check_loads_is_whole() -> None:
    body = "    x[0] = shifted(x[0]) + shifted(x[0], 1.0, 2.0)\n"
    text = f"%%kernel\ndef f(x: array[float]):\n{body}"
    (told,) = check({"text": text}, {"shifted": shifted})["diagnostics"]
    assert told["message"] == "shifted takes 2 arguments, not 3"
    x = kl.zeros(1)
    kl.launch(kl.compile("def g(x: array[float]):\n    x[0] = shifted(x[0])\n")["g"], 1, inputs=[x])
    assert x.numpy()[0] == 3.0


def test_the_last_run_of_this_very_text_tells_what_lines_cost_and_what_a_loop_kept() -> None:
    loop = "    for k in range(n):\n        s = s * sin(s)\n"
    text = f"def decay(x: array[float], y: array[float], n: int):\n    s = x[0]\n{loop}    y[0] = s\n"
    names = dict(kl.compile(f"{text}\n", label="Cell In[2]"))
    x, y = (kl.ones(1, dtype=float, requires_grad=True) for _ in range(2))
    names["_3"] = kl.trace(names["decay"], 0, dim=1, inputs=[x, y, 3])

    def told(text: str) -> list[tuple[int, str, str]]:
        found = [
            (m["line"], m["kind"], m["text"]) for m in marks({"text": f"%%kernel\n{text}"}, names)["marks"]
        ]
        return [one for one in found if one[1] in ("cost", "saved")]

    assert (3, "saved", "kept 12 bytes in 3 iterations of the traced thread") in told(text)
    shares = [int(words.partition("%")[0]) for _, kind, words in told(text) if kind == "cost"]
    assert 97 <= sum(shares) <= 103
    assert [kind for _, kind, _ in told(text.replace("sin", "cos"))] == ["saved"]


def test_a_function_writes_what_its_text_writes() -> None:
    text = "%%kernel\ndef f(x: float, y: array[float]):\n    y[0] = x\n    return x * x, y[1]\n"
    found = [(m["line"], m["text"]) for m in marks({"text": text}, {})["marks"] if m["kind"] != "saved"]
    assert found == [(2, "writes y"), (3, "reads y")]


def test_a_launch_on_a_tape_says_how_much_was_kept() -> None:
    text = (
        "%%kernel\ndef f(x: array[float], n: int):\n    i = tid()\n    s = x[i]\n    for j in range(1, n):\n"
        "        for k in range(2):\n            s = s * sin(s)\n    for k in range(int(s)):\n"
        "        s = s * sin(s)\n    x[i] = x[i] * x[i] + s\n"
    )
    kernel = kl.compile(CellText(text).source.text, {})["f"]
    with kl.Tape() as tape:
        kernel[5](kl.ones(5, requires_grad=True), 4)
    told = marks({"text": f"\n{text}"}, {"tape": tape})["marks"]
    assert [(one["line"], one["text"]) for one in told if "last launch" in one["text"]] == [
        (4, "kept 20 bytes in the last launch on a tape"),
        (6, "its adjoint keeps 24 bytes a thread in 6 iterations of the last launch on a tape"),
    ]
    assert not any("last launch" in one["text"] for one in marks({"text": text}, {})["marks"])
    changed = text.replace("int(s)", "int(i)")
    assert not any("last launch" in one["text"] for one in marks({"text": changed}, {"tape": tape})["marks"])


@pytest.mark.parametrize(
    ("options", "columns"),
    {"--quiet --bad": (17, 22), "--check fool": (9, 16), "--show nothing": (9, 15)}.items(),
)
def test_what_is_wrong_with_an_option_stands_at_it(options: str, columns: tuple[int, int]) -> None:
    text = f"%%kernel {options}\ndef f(x: array[float]):\n    x[0] = 1.0\n"
    (one,) = check({"text": text}, {})["diagnostics"]
    assert (one["start"], one["end"]) == ([0, columns[0]], [0, columns[1]])


# -------------------------------------------------------------------------------------------- golden files


EXAMPLES = ("state", "checks", "where", "warning")
"""What depends on the machine, or on a cell that runs: `test_assistant` holds its form against these."""

FILES = [file for file in sorted(GOLDEN.glob("*.json")) if file.stem not in EXAMPLES]


def _replied(golden: dict[str, Any]) -> Any:
    names: dict[str, Any] = {"kl": kl}
    for cell in golden["notebook"]:
        names |= kl.compile(cell, names)
    exec(golden.get("python", ""), names)
    replied = json.loads(json.dumps(reply(golden["request"], names)))
    return replied | ({"style": "..."} if "style" in replied else {})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_request_has_its_reply(file: Path) -> None:
    golden = json.loads(file.read_text())
    assert _replied(golden) == golden["reply"], "python -m tests.jupyter.test_checking writes it anew"


def test_there_is_a_golden_file_of_each_kind() -> None:
    kinds = {json.loads(file.read_text())["request"]["kind"] for file in FILES}
    assert kinds >= ANSWERS.keys()


if __name__ == "__main__":
    for path in FILES:
        again = json.loads(path.read_text())
        path.write_text(json.dumps(again | {"reply": _replied(again)}, indent=1, ensure_ascii=False) + "\n")
