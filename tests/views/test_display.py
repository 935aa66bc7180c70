"""How objects get their display, and what is shown where a view fails."""

import pytest

from kernelab.views.pages.display import View, bundle, show
from kernelab.views.pages.markup import Node, words


class Thing:
    def __repr__(self) -> str:
        return "<thing>"


def sentence(_: Thing) -> Node:
    return words("a thing")


def broken(_: Thing) -> Node:
    raise ValueError("no ink")


def test_a_view_is_shown_as_text_and_html() -> None:
    found = bundle(Thing(), sentence)
    assert found["text/plain"] == "a thing"
    assert "<p>a thing</p>" in found["text/html"]


def test_a_view_that_fails_leaves_the_object_as_text_with_the_reason() -> None:
    found = bundle(Thing(), broken)
    assert found == {"text/plain": "<thing>\n(it cannot be shown: ValueError: no ink)"}


def test_a_view_prints_as_text() -> None:
    assert str(View(words("a", "b"))) == "ab"


def test_outside_of_a_notebook_a_view_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(View(sentence(Thing())))
    assert capsys.readouterr().out == "a thing\n"
