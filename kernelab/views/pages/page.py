"""A view as static HTML: no script, its own style, light or dark after the notebook's theme.

Lines of code carry a class for the source line they come from, and pointing at one lights the others by
style alone; the Tab key reaches each line once in each pane, and a click or a touch holds it.  Where a host
strips the style, the numbers in the gutters still link them.  Classes are scoped by a digest of the content,
so that equal views are equal text and two views never share a rule.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import assert_never

from kernelab.views.pages.markup import (
    Below,
    Beside,
    Cell,
    Code,
    CodeLine,
    Drawing,
    Fold,
    Node,
    Run,
    Style,
    Table,
    Words,
    gutters,
)

STATIC = Path(__file__).parent.with_name("static")

NARROWEST = 20
"""How narrow parts beside each other become, in em on average, before they go one under the other."""

WIDEST = 76
"""The longest line that a pane is given room for, in characters."""

GUTTER = 6
"""The room that the gutter and the edges of a pane take, in characters."""

MOST = 0.6
"""The share of scarce room that the first of two panes may take; more than two get equal shares."""

CHARACTER = 0.6
"""The width of a character of code, in em of what stands around it."""

INVITATION = "point at a line, or press Tab: what comes from it lights up"

_CLASSES: dict[Style, str] = {"dim": "s1", "keyword": "sk", "comment": "sc", "number": "sn"}
_CLASSES |= {"string": "ss", "name": "sd", "good": "sg", "bad": "sb"}


def render(node: Node) -> str:
    """The view as one HTML element with its style."""
    body = _html(node)
    scope = "kl-" + hashlib.sha256(body.encode()).hexdigest()[:10]
    style = styles()
    if rules := "".join(map(_rules, sorted(_all_links(node)))):
        style += f".{scope}{{{rules}}}"
    return f'<div class="kl {scope}"><style>{style}</style>{body}</div>'


def styles(of: str = "view") -> str:
    """The style of all views, for a page that shows many parts, or that of a kind of drawing."""
    return (STATIC / f"{of}.css").read_text(encoding="utf-8").strip()


def part(node: Node) -> str:
    """The view as one HTML element for a page that has the style already; its lines are not linked."""
    return f'<div class="kl">{_html(node)}</div>'


def _html(node: Node) -> str:
    match node:
        case Words(runs, level):
            tag = {0: "p", 1: "h4", 2: "h5"}[level]
            return f"<{tag}>{_runs(runs)}</{tag}>"
        case Code():
            return _code(node)
        case Table():
            return _table(node)
        case Drawing(title, drawing):
            caption = f"<figcaption>{escape(title)}</figcaption>" if title else ""
            html = drawing() if callable(drawing) else drawing
            return f'<figure class="kl-drawing">{caption}{html}</figure>'
        case Beside(parts):
            return f'<div class="kl-beside">{_shares(parts)}</div>'
        case Below(parts):
            return "".join(map(_html, parts))
        case Fold(title, part):
            return f"<details><summary>{escape(title)}</summary>{_html(part)}</details>"
        case _:
            assert_never(node)


def _shares(parts: tuple[Node, ...]) -> str:
    """Widths of parts side by side: each gets what its code needs, up to a limit.

    The last gets the rest, but never more than it needs.  Signatures in the first and the last part do not
    count: they are often the longest lines.
    """
    lengths = [_longest(part, _all if part in parts[1:-1] else _bodies) for part in parts]
    widest, most = (WIDEST, MOST) if len(parts) < 3 else (max(lengths[1:]), 1 - 1 / len(parts))
    *first, last = (CHARACTER * (min(length, widest) + GUTTER) for length in lengths)
    room = NARROWEST * len(parts)
    bases = [min(need, most * room / len(first)) for need in first]
    bases.append(room - sum(bases))
    styles = [
        f"flex-grow:{max(1, round(need - basis))};flex-basis:{basis:.1f}em"
        for need, basis in zip((*first, last), bases, strict=True)
    ]
    needed = _longest(parts[-1], _all)
    if first and needed > 1:
        styles[-1] += f";max-width:{CHARACTER * (needed + GUTTER):.1f}em"
    pairs = zip(parts, styles, strict=True)
    return "".join(f'<div style="{style}">{_html(part)}</div>' for part, style in pairs)


def _longest(node: Node, counted: Callable[[Iterable[CodeLine]], Iterable[CodeLine]]) -> int:
    match node:
        case Code(_, lines):
            return min(WIDEST, max((len(line.text) for line in counted(lines)), default=1))
        case Drawing():
            return node.columns
        case Beside(parts) | Below(parts):
            return max((_longest(part, counted) for part in parts), default=1)
        case _:
            return 1


def _all(lines: Iterable[CodeLine]) -> Iterable[CodeLine]:
    return lines


def _bodies(lines: Iterable[CodeLine]) -> Iterator[CodeLine]:
    """The lines of code that are neither signatures nor prose, which may be longer than their pane."""
    in_signature = False
    for line in lines:
        styles = {run.style for run in line.runs if run.text.strip()}
        in_signature |= "name" in styles
        if not in_signature and not styles <= {"string", "comment"}:
            yield line
        in_signature &= not line.text.rstrip().endswith(":")


def _runs(runs: tuple[Run, ...]) -> str:
    return "".join(_run(run) for run in runs)


def _run(run: Run) -> str:
    text = escape(run.text, quote=False)
    match run.style:
        case "":
            return text
        case "strong":
            return f"<b>{text}</b>"
        case style:
            return f"<span class={_CLASSES[style]}>{text}</span>"


def _code(code: Code) -> str:
    groups = groupby(gutters(code), lambda numbered: link_of(numbered[1]))
    reached: set[str] = set()
    lines = "".join(_linked(link, group, reached) for link, group in groups)
    title = label = remarks = ""
    if code.title:
        title = f"<figcaption>{escape(code.title)}</figcaption>"
        label = f' aria-label="{escape(code.title)}"'
    if code.remarks:
        # All in one place: that on the line pointed at covers the others.
        lines_of = ((_remark(link_of(line)), f"{line.mark} · {_runs(line.runs)}") for line in code.remarks)
        remarks = "".join(f"<p class={name}>{text}</p>" for name, text in lines_of)
        remarks = f'<div class="kl-told" aria-live="polite"><p>{INVITATION}</p>{remarks}</div>'
    return f'<figure class="kl-code">{title}<pre tabindex=0 role=list{label}>{lines}</pre>{remarks}</figure>'


def _remark(link: str) -> str:
    return f"d{link[1:]}"


def _linked(link: str, lines: Iterable[tuple[str, CodeLine]], reached: set[str]) -> str:
    """Neighbouring lines that come from one source line; the Tab key stops at the first of each pane."""
    # An element of our own is shorter than a span with a class, and a host that drops it keeps its text.
    text = "".join(f"<k-n>{gutter}</k-n>{_runs(line.runs)}\n" for gutter, line in lines)
    if not link:
        return f"<span>{text}</span>"
    stop = "tabindex=-1" if link in reached else "tabindex=0 role=listitem"
    reached.add(link)
    return f"<span class={link} {stop}>{text}</span>"


def link_of(line: CodeLine) -> str:
    """The class of what comes from a source line."""
    if line.number is None:
        return ""
    return f"l{line.number}" if line.cell == 0 else f"l{line.number}-{line.cell}"


def _table(table: Table) -> str:
    heads = zip(table.head, table.numbers, strict=True)
    head = "".join(f'<th scope="col"{_kind(is_number)}>{escape(text)}</th>' for text, is_number in heads)
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    parts = f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="kl-scroll"><table>{parts}</table></div>'


def _cell(cell: Cell) -> str:
    asks = f' data-asks="{escape(cell.asks)}"' if cell.asks else ""
    return f"<td{_kind(cell.is_number)}{asks}>{_runs(cell.runs)}</td>"


def _kind(is_number: bool) -> str:
    return ' class="kl-number"' if is_number else ""


def _rules(link: str) -> str:
    """Rules for a source line: any line that comes from it lights all of them, and shows the remark."""
    remark = _remark(link)
    lit = f".{link}{{--kl-on:var(--kl-lit)}}.{remark}{{visibility:visible}}"
    # What is pointed at lies over what a click holds.
    return f"&:has(.{link}:hover,.{link}:focus){{{lit}}}&:has(.{link}:hover) .{remark}{{z-index:1}}"


def _all_links(node: Node) -> set[str]:
    match node:
        case Code(_, lines):
            return {link_of(line) for line in lines if line.number is not None}
        case Beside(parts) | Below(parts):
            return set().union(*map(_all_links, parts))
        case Fold(_, part):
            return _all_links(part)
        case _:
            return set()
