r"""`Tape.visualize`: a tape as a DOT graph, with launches as boxes, arrays as ellipses, scopes as clusters.

digraph tape {
  r0 [shape=box, label="square\n4 threads"];
  a0 [shape=ellipse, style=filled, fillcolor="#b7e4c7", label="x\nfloat32 (4)"];
  a0 -> r0;
}
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from math import prod
from os import PathLike
from pathlib import Path

from kernelab import hooks
from kernelab.autodiff.tape.tape import Tape
from kernelab.data_classes import dataclass
from kernelab.errors import KernelTypeError
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import name_in_caller
from kernelab.views.tape.digest import Digest, TapeData

LONGEST_PERIOD = 64
"""How many launches at most are looked at as one repeated sequence."""

WITH_GRADIENT, WITHOUT_GRADIENT = "#b7e4c7", "#e9ecef"


@hooks.graph.provide
def graph(
    tape: Tape,
    filename: str | PathLike[str] | None,
    simplify_graph: bool,
    hide_readonly_arrays: bool,
    array_labels: Mapping[array, str] | None,
    choose_longest_node_name: bool,
    ignore_graph_scopes: bool,
    track_inputs: Sequence[array] | None,
    track_outputs: Sequence[array] | None,
    track_input_names: Sequence[str] | None,
    track_output_names: Sequence[str] | None,
    graph_direction: str,
) -> str:
    """The graph of a tape, as `Tape.visualize` documents it."""
    digest = Digest(tape, lambda memories: {})
    digest.look()
    data = TapeData(digest.whole())
    scopes = [] if ignore_graph_scopes else [Scope(*scope) for scope in data.parts["scopes"]]
    parts = _tree(scopes, 0, len(data))
    if simplify_graph:
        parts = _folded(parts, data)
    shown = list(_records(parts))
    tracked = [*(track_inputs or ()), *(track_outputs or ())]
    hidden: set[int] = set()
    if hide_readonly_arrays:
        hidden = set(range(len(data.parts["arrays"]))) - {digest.number(one) for one in tracked}
        hidden -= {number for record in range(len(data)) for number in data.sides(record)[1]}
    labels: dict[int | None, str] = {}
    named = ((track_inputs, track_input_names), (track_outputs, track_output_names))
    for arrays, names in (*named, (array_labels or {}, (array_labels or {}).values())):
        labels |= {digest.number(one): name for one, name in zip(arrays or (), names or (), strict=False)}
    text = "\n".join(
        [
            "digraph tape {",
            f"  rankdir={graph_direction};",
            "  node [fontname=sans, fontsize=11];",
            *_boxes(parts, data, "  ", count()),
            *_arrays_and_edges(shown, digest, data, hidden, labels, choose_longest_node_name),
            "}",
            "",
        ]
    )
    if filename is not None:
        if hasattr(filename, "write"):
            message = f"filename is the path of a file, not {described(filename)}"
            raise KernelTypeError.of(message, "argument", "write file.write(tape.visualize())")
        Path(filename).write_text(text, encoding="utf-8")
    return text


# ------------------------------------------------------------------------------------------ structure


@dataclass(frozen=True, slots=True)
class Scope:
    """A named stretch of a tape, from one record up to another."""

    name: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Group:
    """Parts of a tape that belong together: the contents of a scope, or what is repeated `times`."""

    name: str
    parts: tuple["Part", ...]
    times: int = 1


Part = int | Group
"""A record by its number, or a group."""


def _tree(scopes: Sequence[Scope], begin: int, end: int) -> tuple[Part, ...]:
    """The records of a stretch of the tape, those of each scope in it as one group."""
    inside = [scope for scope in scopes if begin <= scope.begin < scope.end <= end]
    parts: list[Part] = []
    position = begin
    while position < end:
        starting = [k for k, scope in enumerate(inside) if scope.begin == position]
        if not starting:
            parts.append(position)
            position += 1
            continue
        # Of scopes that begin together the one that was closed last is the outermost.
        outer = max(starting, key=lambda k: (inside[k].end, k))
        rest = inside[:outer] + inside[outer + 1 :]
        parts.append(Group(inside[outer].name, _tree(rest, position, inside[outer].end)))
        position = inside[outer].end
    return tuple(parts)


def _folded(parts: tuple[Part, ...], data: TapeData) -> tuple[Part, ...]:
    """The parts with each sequence that follows itself shown once."""
    parts = tuple(Group(p.name, _folded(p.parts, data)) if isinstance(p, Group) else p for p in parts)
    marks = [_mark(part, data) for part in parts]
    folded: list[Part] = []
    position = 0
    while position < len(parts):
        period, times = _repetition(marks, position)
        repeated = parts[position : position + period]
        folded += repeated if times == 1 else [Group("", repeated, times)]
        position += period * times
    return tuple(folded)


def _mark(part: Part, data: TapeData) -> Hashable:
    """A key that is equal for records which do the same to the same arrays, and for groups of such."""
    if isinstance(part, Group):
        return part.name, part.times, tuple(_mark(inner, data) for inner in part.parts)
    read, written = data.sides(part)
    return data.kind(part)["title"], data.grid(part), tuple(read), tuple(written)


def _repetition(marks: Sequence[Hashable], start: int) -> tuple[int, int]:
    """The shortest period from `start` on that covers most, and how often it occurs."""
    best = (1, 1)
    for period in range(1, min(LONGEST_PERIOD, (len(marks) - start) // 2) + 1):
        pattern, times = marks[start : start + period], 1
        while marks[start + times * period : start + (times + 1) * period] == pattern:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = (period, times)
    return best


def _records(parts: Sequence[Part]) -> Iterator[int]:
    for part in parts:
        yield from _records(part.parts) if isinstance(part, Group) else (part,)


# ------------------------------------------------------------------------------------------ text


def _boxes(parts: Sequence[Part], data: TapeData, indent: str, clusters: Iterator[int]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, int):
            yield f"{indent}r{part} [{_box(data, part)}];"
            continue
        title = part.name if part.times == 1 else f"repeated {part.times}x"
        yield f"{indent}subgraph cluster_{next(clusters)} {{"
        yield f"{indent}  label={_quoted(title)}; style=rounded; fontname=sans; fontsize=11;"
        yield from _boxes(part.parts, data, indent + "  ", clusters)
        yield f"{indent}}}"


def _box(data: TapeData, record: int) -> str:
    kind, title = data.kind(record), data.kind(record)["title"]
    if kind["kind"] == "launch":
        title += f"\n{data.grid(record)} thread{'s' * (prod(kind['grid']) != 1)}"
    return f"shape=box, label={_quoted(title)}, tooltip={_quoted(kind['place'])}"


def _arrays_and_edges(
    shown: Sequence[int],
    digest: Digest,
    data: TapeData,
    hidden: set[int],
    labels: Mapping[int | None, str],
    longest: bool,
) -> list[str]:
    """The ellipses of the arrays that some records use, in the order in which they do, and the arrows."""
    parameters: dict[int, list[str]] = {}
    for record in shown:
        kind, (read, written) = data.kind(record), data.sides(record)
        for number, name in zip((*read, *written), (*kind["reads"], *kind["writes"]), strict=True):
            parameters.setdefault(number, []).append(name)
    nodes = {number: f"a{k}" for k, number in enumerate(parameters) if number not in hidden}
    names = {number: labels.get(number) or name_in_caller(digest.held(number)) for number in nodes}
    lines = []
    for number, node in nodes.items():
        elements, (dtype, shape) = digest.held(number), data.layout(number)
        parameter = max(parameters[number], key=len) if longest else parameters[number][0]
        name = names[number] or (parameter if parameter not in names.values() else "")
        label = "\n".join(filter(None, [name, f"{dtype} ({', '.join(map(str, shape))})"]))
        about = f"array: dtype={dtype}, shape={shape}"
        color = WITH_GRADIENT if elements is not None and elements.requires_grad else WITHOUT_GRADIENT
        lines.append(
            f"  {node} [shape=ellipse, style=filled, fillcolor={_quoted(color)}, label={_quoted(label)},"
            f" tooltip={_quoted(about)}];"
        )
    for record in shown:
        read, written = data.sides(record)
        arrows = [f"  {nodes[one]} -> r{record};" for one in read if one in nodes]
        arrows += [f"  r{record} -> {nodes[one]};" for one in written if one in nodes]
        lines += dict.fromkeys(arrows)
    return lines


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
