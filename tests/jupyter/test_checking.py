"""The check of a text that nobody has run says what a run says, at the same places, and its fixes help."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import Diagnostic
from kernelab.frontend import lower_source
from kernelab.jupyter.cell_text import CellText
from kernelab.jupyter.checking import check, checked
from kernelab.jupyter.requests import ANSWERS, reply
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


@pytest.mark.parametrize("text", ["x = 1", "", "  \n%%kernely", "# %%kernel"])
def test_another_cell_is_not_spoken_of(text: str) -> None:
    assert check({"text": text}, {}) == {"diagnostics": [], "names": []}


@pytest.mark.parametrize("line", ["%%kernel", "\n  \n%%kernel --quiet  ", "%%kernel --check full"])
def test_lines_count_from_the_top_of_the_cell(line: str) -> None:
    (one,) = check({"text": f"{line}\ndef f(x: array[float]):\n    x[0] = y\n"}, {})["diagnostics"]
    assert one["start"] == [line.count("\n") + 2, 11]


# -------------------------------------------------------------------------------------------- golden files


def _replied(golden: dict[str, Any]) -> Any:
    names: dict[str, Any] = {"kl": kl}
    for cell in golden["notebook"]:
        names |= kl.compile(cell, names)
    return json.loads(json.dumps(reply(golden["request"], names)))


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.stem)
def test_a_golden_request_has_its_reply(file: Path) -> None:
    golden = json.loads(file.read_text())
    assert _replied(golden) == golden["reply"], "python -m tests.jupyter.test_checking writes it anew"


def test_there_is_a_golden_file_of_each_kind() -> None:
    kinds = {json.loads(file.read_text())["request"]["kind"] for file in GOLDEN.glob("*.json")}
    assert kinds >= ANSWERS.keys()


if __name__ == "__main__":
    for path in GOLDEN.glob("*.json"):
        again = json.loads(path.read_text())
        path.write_text(json.dumps(again | {"reply": _replied(again)}, indent=1, ensure_ascii=False) + "\n")
