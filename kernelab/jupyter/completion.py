"""Completion inside a ``%%kernel`` cell: options on its first line, the words of the language below it.

Knows IPython's matchers and the table's names; must not know how a kernel is compiled.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from kernelab.frontend.meaning.meanings import TypeRef
from kernelab.frontend.meaning.name_lookup import PREFIXES, language

MAGIC = "%%kernel"
ARRAY_ATTRIBUTES = ("ndim", "shape", "size")

Offer = tuple[str, str]
"""A word and what kind of thing it is."""


def is_kernel_cell(text: str) -> bool:
    """Whether the text of a cell begins with the magic."""
    return re.match(rf"\s*{MAGIC}\b", text) is not None


def matcher(options: Sequence[str], choices: dict[str, Sequence[str]]) -> Any:
    """IPython's matcher for our cells; `choices` are the words that may follow an option."""

    def complete(context: CompletionContext) -> SimpleMatcherResult:
        first = len(context.full_text) - len(context.full_text.lstrip())
        if not is_kernel_cell(context.full_text):
            return _offer([], "", suppress=False)
        before = context.text_until_cursor
        if context.cursor_line == context.full_text[:first].count("\n"):
            return _offer(_on_first_line(before, options, choices), _token(before), suppress=True)
        return _offer(_in_body(context.full_text, before), context.token, suppress=False)

    return context_matcher(identifier="kernelab")(complete)


def _offer(offers: Sequence[Offer], token: str, *, suppress: bool) -> SimpleMatcherResult:
    found = [SimpleCompletion(text=word, type=kind) for word, kind in offers if word.startswith(token)]
    return SimpleMatcherResult(completions=found, suppress=suppress and bool(found))


def _token(before: str) -> str:
    return before.rpartition(" ")[2]


def _on_first_line(before: str, options: Sequence[str], choices: dict[str, Sequence[str]]) -> list[Offer]:
    previous = before.split()[-1 - bool(_token(before))]
    if previous in choices:
        return [(choice, "value") for choice in choices[previous]]
    return [(option, "option") for option in options if option not in before.split()[:-1]]


def _in_body(text: str, before: str) -> list[Offer]:
    dotted = re.search(r"(\w+)\.\w*$", before)
    if dotted is None:
        return list(_words())
    name = dotted[1]
    if name in PREFIXES:
        return [(f"{name}.{word}", kind) for word, kind in _words()]
    if re.search(rf"\b{re.escape(name)}\s*:\s*(?:\w+\.)?array", text):
        return [(f"{name}.{attribute}", "property") for attribute in ARRAY_ATTRIBUTES]
    return []


def _words() -> Iterator[Offer]:
    for word, meaning in language().items():
        yield word, "class" if isinstance(meaning, TypeRef) else "function"
