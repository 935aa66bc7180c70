"""The computation graph of a thread as a picture: values forwards, cotangents backwards, one step at a time.

    s = x[0]            each box: how its value is computed, the value, and its cotangent;
    = 0.5               calls, loops and lines of many operations are one box, whose inside
    bar 0.25            is another picture below

Without a script the pictures show the end of the run.  A small script, which needs no running kernel, steps
through it.  Pure functions from a graph to markup.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kernelab.autodiff.inspect.thread_graph import Operation, ThreadGraph
from kernelab.data_classes import dataclass, field
from kernelab.errors import NOWHERE, Source, Span, counted
from kernelab.views.kernel.code_view import Parts, Places
from kernelab.views.kernel.layered import HEIGHT, Layout, layout
from kernelab.views.pages import page
from kernelab.views.pages.markup import (
    Below,
    Beside,
    Drawing,
    Node,
    Row,
    Run,
    Table,
    cell,
    ends_of,
    render,
    words,
    written,
)
from kernelab.views.pages.picture import svg

FEW, MANY = 6, 24
"""A call or loop of so few operations is drawn where it stands; lines are folded in a picture of so many."""

FIRST, LAST = 20, 4
"""Of the iterations of a loop, how many are drawn at its ends."""

HEAD, TAIL = 120, 30
"""Of many operations, how many a terminal shows."""

COLUMNS = 76
"""The room that a picture takes beside the source, in characters."""

SMALLEST = 0.8
"""How small a picture becomes where there is less room than it needs, before it scrolls."""

LONGEST, CHARACTER = 26, 7.3
"""The longest text in a box, and how wide a character is."""


# ---------------------------------------------------------------------------------------------------- folding


@dataclass
class Group:
    """Operations that are folded into one box: a call, a loop, an iteration or a line."""

    title: str
    span: Span
    items: "list[int | Group]" = field(default_factory=list)
    number: int = 0
    is_loop: bool = False
    hidden: "list[int | Group]" = field(default_factory=list)

    def __iter__(self) -> Iterator[int]:
        """The numbers of the operations in it that are drawn."""
        for item in self.items:
            yield from (item,) if isinstance(item, int) else item

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all operations in it."""
        inner = (item for item in (*self.items, *self.hidden))
        return frozenset().union(*({i} if isinstance(i, int) else i.numbers for i in inner))

    def is_line(self, span: Span) -> bool:
        """Whether it is the group of the line of a statement."""
        return self.number == -1 and (self.span.source, self.span.line) == (span.source, span.line)

    @property
    def groups(self) -> "Iterator[Group]":
        """All groups in it, the outer ones first."""
        for item in self.items:
            if isinstance(item, Group):
                yield item
                yield from item.groups


Key = tuple[object, ...]


def folded(graph: ThreadGraph) -> Group:
    """The operations of a graph in groups."""
    root = Group("", NOWHERE)
    groups: dict[Key, Group] = {(): root}
    for number, operation in enumerate(graph.operations):
        key: Key = ()
        for step, title, span, is_loop in _scopes(operation):
            outer, key = groups[key], (*key, step)
            if key not in groups:
                groups[key] = Group(title, span, is_loop=is_loop)
                outer.items.append(groups[key])
        groups[key].items.append(number)
    _open(root)
    _by_line(root, graph)
    for group in root.groups:
        if group.is_loop and len(group.items) > FIRST + LAST + 1:
            group.hidden = group.items[FIRST:-LAST]
            del group.items[FIRST:-LAST]
    for number, group in enumerate(root.groups):
        group.number = number
    return root


def _scopes(operation: Operation) -> Iterator[tuple[object, str, Span, bool]]:
    """The calls and loops around an operation, the outermost first: what identifies them, and titles."""
    loops = [*operation.loops]
    for depth in range(len(operation.calls) + 1):
        while loops and loops[0].calls <= depth:
            loop = loops.pop(0)
            yield loop.loop, loop.loop.line_text.rstrip(":"), loop.loop, True
            yield loop.number, f"iteration {loop.number}", loop.loop, False
        if depth < len(operation.calls):
            call = operation.calls[depth]
            yield call, f"{call.function.name}(...)", call.span, False


def _open(group: Group) -> None:
    """Open groups with few operations, and one that holds all there is, into what is around them."""
    items: list[int | Group] = []
    every = sum(1 for _ in group)
    for item in group.items:
        if isinstance(item, int):
            items.append(item)
            continue
        _open(item)
        count = sum(1 for _ in item)
        is_all = not item.is_loop and count + FEW > every and not group.is_loop
        if (count <= FEW or is_all) and not group.is_loop:
            items += [*item] if item.is_loop else item.items
        else:
            items.append(item)
    group.items = items


def _by_line(group: Group, graph: ThreadGraph) -> None:
    """Fold the operations of a line of a group with very many."""
    for item in group.items:
        if isinstance(item, Group):
            _by_line(item, graph)
    if len(group.items) <= MANY or group.is_loop:
        return
    items: list[int | Group] = []
    for item in group.items:
        span = graph.operations[item].span if isinstance(item, int) else None
        last = items[-1] if items and span is not None else None
        if isinstance(last, Group) and span is not None and last.is_line(span):
            last.items.append(item)
            continue
        items.append(item if span is None else Group(span.line_text, span, [item], -1))
    group.items = []
    for item in items:
        few = isinstance(item, Group) and item.number == -1 and len(item.items) < 3
        group.items += item.items if isinstance(item, Group) and few else [item]


# ---------------------------------------------------------------------------------------------------- picture


@dataclass(frozen=True, slots=True)
class _Box:
    """What a box shows: `numbers` are the operations in it."""

    kind: str
    lines: tuple[str, str, str]
    data: str
    link: str
    title: str
    numbers: frozenset[int]

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * CHARACTER + 16


Links = Mapping[tuple[Source, int], str]
"""The class of each source line."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Draws the levels of a graph."""

    graph: ThreadGraph
    totals: Mapping[int, Any]
    links: Links

    @classmethod
    def of(cls, graph: ThreadGraph, links: Links) -> "Picture":
        """The picture of a run at its end."""
        totals: dict[int, Any] = {}
        for flow in graph.flows:
            totals[flow.target] = flow.total
            if flow.source not in totals:
                totals[flow.source] = flow.share
        return cls(graph, totals, links)

    def svg(self, group: Group) -> str:
        """One level: its operations, the groups in it as boxes, and what comes from outside."""
        boxes = [self.box(item) for item in group.items]
        inside = {number: k for k, box in enumerate(boxes) for number in box.numbers}
        edges: dict[tuple[int, int], list[str]] = {}
        ports: dict[int, _Box] = {}
        uses = [(number, k) for k, box in enumerate(boxes) for number in sorted(box.numbers)]
        for number, _ in uses:
            for operand in self.graph.operations[number].operands:
                if operand not in inside:
                    ports.setdefault(operand, self.operation(operand, "port"))
        drawn = [*ports.values(), *boxes]
        at = {number: k for k, number in enumerate(ports)}
        at |= {number: k + len(ports) for number, k in inside.items()}
        for number, _ in uses:
            for operand in self.graph.operations[number].operands:
                if at[operand] != at[number]:
                    edges.setdefault((at[operand], at[number]), []).append(f"{operand}-{number}")
        placed = layout([box.width for box in drawn], [*edges])
        body = "".join([*self.edges(placed, edges, drawn), *map(self.drawn, drawn, placed.places)])
        alt = f"computation graph of {self.graph.kernel.name}"
        size = f'class="klg" style="min-width:{SMALLEST * placed.width:.0f}px"'
        return svg(placed.width, placed.height, size, alt, body)

    def box(self, item: "int | Group") -> _Box:
        if isinstance(item, int):
            return self.operation(item, self.graph.operations[item].kind)
        numbers = item.numbers
        last = max(numbers)
        count = counted(len(numbers), "operation")
        if item.is_loop:
            count = counted(len(item.items) + len(item.hidden), "iteration")
        result = f"{self.graph.operations[last].name} = {written(self.graph.operations[last].value)}"
        lines = (_short(f"▸ {item.title}"), count, _short(result))
        title = f"line {item.span.line}, {count}: a click shows what is inside"
        return _Box("group", lines, f'data-group="{item.number}"', self.link(item.span), title, numbers)

    def operation(self, number: int, kind: str) -> _Box:
        one = self.graph.operations[number]
        text = one.name if kind == "port" else one.sentence
        total = self.totals.get(number)
        bar = "" if total is None else f"bar {written(total)}"
        lines = (_short(text), _short(written(one.value)), _short(bar))
        title = f"{text}\nvalue {written(one.value)}" + (f"\ncotangent {written(total)}" if bar else "")
        return _Box(kind, lines, f'data-node="{number}"', self.link(one.span), title, frozenset([number]))

    def link(self, span: Span) -> str:
        return self.links.get((span.source, span.line), "")

    def drawn(self, box: _Box, place: tuple[float, float]) -> str:
        x, y = place
        size = f'x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{HEIGHT:.0f}" rx="4"'
        second, third = ("x", "x") if box.kind == "group" else ("v", "b")
        classes = (("", 15), (second, 30), (third, 45))
        texts = "".join(
            f'<text class="{name}" x="{x + 8:.1f}" y="{y + down}">{escape(line)}</text>'
            for line, (name, down) in zip(box.lines, classes, strict=True)
        )
        rects = f'<rect class="q" {size}/><rect class="r" {size}/>'
        title = f"<title>{escape(box.title)}</title>"
        return f'<g class="{box.kind} {box.link}" {box.data}>{title}{rects}{texts}</g>'

    def edges(
        self, placed: Layout, edges: Mapping[tuple[int, int], Sequence[str]], drawn: Sequence[_Box]
    ) -> Iterator[str]:
        for (a, b), flows in edges.items():
            (xa, ya), (xb, yb) = placed.places[a], placed.places[b]
            points = [(xa + drawn[a].width / 2, ya + HEIGHT), *placed.passing[a, b]]
            points.append((xb + drawn[b].width / 2, yb))
            x, y = points[0]
            path = f"M{x:.1f} {y:.1f}"
            for to_x, to_y in points[1:]:
                middle = (y + to_y) / 2
                path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
                x, y = to_x, to_y
            yield f'<path d="{path}" data-flows="{" ".join(flows)}"/>'


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


# ------------------------------------------------------------------------------------------------------- view


def graph_view(graph: ThreadGraph) -> Node:
    """The source beside the picture, which a script lets a reader step through."""
    places = Places(Parts(graph.kernel.name, graph.kernel.source, graph.kernel.primal))
    picture, root = Picture.of(graph, places.links), folded(graph)
    place = f"thread {', '.join(map(str, graph.thread))} of " if graph.kernel.plan.coordinates else ""
    title = words("computation graph · ", place, Run(graph.kernel.name, "strong"), level=1)
    notes = [words(Run("no cotangents: ", "dim"), graph.note)] if graph.note else []
    if graph.left_out:
        notes.append(words(Run(f"{counted(graph.left_out, 'operation')} more ran than are shown", "dim")))
    drawing = Drawing("", _html(picture, root), tuple(_lines(graph)), COLUMNS)
    return Below((title, *notes, Beside((Below(tuple(places.panes())), drawing))))


def graph_svg(graph: ThreadGraph) -> str:
    """The outermost level as an SVG file."""
    head, _, rest = Picture.of(graph, {}).svg(folded(graph)).partition(">")
    return f'{head}>{_style()}<rect class="q" width="100%" height="100%"/>{rest}'


def _style() -> str:
    return f"<style>{page.styles('graph')}</style>"


def _html(picture: Picture, root: Group) -> str:
    script = (page.STATIC / "graph.js").read_text(encoding="utf-8").strip()
    steps = escape(json.dumps(_steps(picture, frozenset(root)), separators=(",", ":")))
    buttons = "".join(
        f'<button type="button" data-go="{go}" title="{title}">{sign}</button>'
        for go, sign, title in (
            ("first", "|◀", "to the beginning"),
            ("back", "◀", "one step back"),
            ("next", "▶", "one step"),
            ("turn", "end of forward", "to the end of the primal, where the cotangents begin"),
            ("last", "▶|", "to the end"),
        )
    )
    bar = f'<div class="klg-bar">{buttons}<input type="range" min="0" aria-label="step"><span></span></div>'
    says = '<div class="klg-says" aria-live="polite"></div>'
    levels = f'<div class="klg-room">{picture.svg(root)}</div>{_inside(picture, root)}'
    drawn = f'<div class="klg-all" data-steps="{steps}">{bar}{says}{levels}</div>'
    return f"{_style()}{drawn}<script>{script}</script>"


def _inside(picture: Picture, group: Group) -> str:
    """The groups of a level, each to be unfolded; very many of them together."""
    boxes = [*_inner(picture, group)]
    inner = "".join(boxes)
    if len(boxes) <= FEW:
        return inner
    inner = f'<div class="klg-its">{inner}</div>'
    title = f"<summary>inside of the {len(boxes)} boxes</summary>"
    return inner if group.is_loop else f'<details class="klg-in">{title}{inner}</details>'


def _inner(picture: Picture, group: Group) -> Iterator[str]:
    for item in group.items:
        if not isinstance(item, Group):
            continue
        left_out = f" ({len(item.hidden)} in the middle are left out)" if item.hidden else ""
        head = f"<summary>{escape(item.title)} · line {item.span.line}{left_out}</summary>"
        room = "" if item.is_loop else f'<div class="klg-room">{picture.svg(item)}</div>'
        inner = _inside(picture, item)
        yield f'<details class="klg-in" data-inside="{item.number}">{head}{room}{inner}</details>'


def _steps(picture: Picture, shown: frozenset[int]) -> list[list[Any]]:
    """The steps as the script takes them: what is computed, and then what flows back, with its text."""
    operations = picture.graph.operations
    steps: list[list[Any]] = []
    for number in sorted(shown):
        one = operations[number]
        steps.append([number, picture.link(one.span), f"{one.sentence}   is {written(one.value)}"])
    for flow in picture.graph.flows:
        if flow.target in shown:
            link = picture.link(operations[flow.source].span)
            text = f"{flow.text}   adds {written(flow.share)}, now {written(flow.total)}"
            steps.append([flow.target, link, text, flow.source, _short(f"bar {written(flow.total)}")])
    return steps


def _lines(graph: ThreadGraph) -> Iterator[str]:
    """What a terminal shows: the operations with values and cotangents."""
    totals = Picture.of(graph, {}).totals

    def row(number: int) -> Row:
        one, total = graph.operations[number], totals.get(number)
        line, cotangent = cell(str(one.span.line), is_number=True), "" if total is None else written(total)
        return line, cell(one.sentence), cell(written(one.value)), cell(cotangent)

    head = ("line", "operation", "value", "cotangent")
    yield from render(Table("", head, ends_of(len(graph.operations), row, HEAD, TAIL))).splitlines()
