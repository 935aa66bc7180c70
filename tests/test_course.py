"""Every lesson runs and shows what it has stored; every solution passes, every blank fails with a hint."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from kernelab.__main__ import main
from kernelab.teach import lessons
from tests.support.course import client_of, executed, is_answer, numbers_of, shown

COURSE = lessons.lessons()
FIRST = (1, 7)
"""The lessons that run with every test: of functions of numbers, and of all tools for wrong gradients."""
RUN = [
    pytest.param(path, id=path.stem, marks=() if number in FIRST else pytest.mark.long)
    for number, path in COURSE.items()
]


@pytest.mark.parametrize("path", RUN)
def test_a_lesson_shows_what_it_has_stored_and_its_checks_tell_answers_from_blanks(path: Path) -> None:
    blanks: list[dict[str, str]] = []
    notebook = executed(path, blanks)
    assert len(blanks) >= 2, "a lesson has two or three exercises"
    for said in blanks:
        assert said, "a blank passes"
        assert said["ename"] == "NotYet", said["evalue"]
        assert "hint: " in said["evalue"]
    for (source, now), (_, stored) in zip(shown(notebook), shown(nbformat.read(path, 4)), strict=True):
        (text, numbers), (stored_text, stored_numbers) = numbers_of(now), numbers_of(stored)
        assert text == stored_text, source
        np.testing.assert_allclose(numbers, stored_numbers, rtol=0.05, atol=1e-4, err_msg=source)


@pytest.mark.long
@pytest.mark.parametrize("path", COURSE.values(), ids=[path.stem for path in COURSE.values()])
def test_where_exercises_are_left_blank_their_checks_alone_fail(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    meant = {cell.id for cell in notebook.cells if "raises-exception" in cell.metadata.get("tags", [])}
    for cell in filter(is_answer, notebook.cells):
        cell.source = lessons.without_solution(cell.source)
    with client_of(notebook, path.parent) as client, client.setup_kernel():
        client.allow_errors = True
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
    failed = [
        (cell.source, output.ename)
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.id not in meant
        for output in cell.outputs
        if output.output_type == "error"
    ]
    assert len(failed) >= 2
    assert {name for _, name in failed} == {"NotYet"}, failed


@pytest.mark.parametrize("path", COURSE.values(), ids=[path.stem for path in COURSE.values()])
def test_a_notebook_of_the_course_is_whole_and_small(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 300_000
    assert [
        cell.source for cell in notebook.cells if cell.cell_type == "code" and not cell.execution_count
    ] == []
    after = [notebook.cells[k + 1] for k, cell in enumerate(notebook.cells) if is_answer(cell)]
    assert all(cell.metadata.nbgrader.grade and "kl.teach.check(" in cell.source for cell in after)
    names = [cell.metadata.nbgrader.grade_id for cell in notebook.cells if "nbgrader" in cell.metadata]
    assert len(names) == len({*names}) == 2 * len(after)
    for target in re.findall(
        r"\]\((\.\.?/[^)#]*|[^):/]*\.ipynb)\)", "".join(cell.source for cell in notebook.cells)
    ):
        assert (path.parent / target).is_file(), target


def test_a_student_gets_the_lesson_without_its_solutions_and_a_teacher_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [main(["lesson", "1", *kind]) for kind in ([], ["--student"], ["--key"])] == [0, 0, 0]
    whole, student, key = (
        nbformat.read(tmp_path / f"{COURSE[1].stem}{ending}.ipynb", 4) for ending in ("", "-student", "-key")
    )
    text = "\n".join(cell.source for cell in student.cells)
    assert "SOLUTION" not in text
    assert "phase_dot = " not in text
    assert "    # your code here\n    return ..." in text
    assert not any(cell.outputs for cell in student.cells if "nbgrader" in cell.metadata)
    assert any(cell.get("outputs") for cell in student.cells), "what is shown is there without running it"
    assert any("phase_dot = " in cell.source for cell in whole.cells)
    assert "(`docs/functions.md`)" in text, "a copy has no links that lead nowhere"
    assert "6 points in all" in key.cells[0].source
    assert len(key.cells) < len(whole.cells) / 2
    capsys.readouterr()
    assert main(["lesson", "1"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["lesson", "99"]) == 1
    assert main(["lesson"]) == 0
    assert "A derivative is a program" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([])
    assert "copy a lesson of the course" in capsys.readouterr().out
