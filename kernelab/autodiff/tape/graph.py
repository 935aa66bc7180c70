r"""A tape as a DOT graph: launches are boxes, arrays ellipses, scopes clusters.

    digraph tape {
      r0 [shape=box, label="square\n4 threads"];
      a0 [shape=ellipse, style=filled, fillcolor="#b7e4c7", label="x\nfloat32 (4)"];
      a0 -> r0;
    }

Reads the records only; must not know how they sweep.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelab.autodiff.records.records import LaunchRecord, Record, Scope
from kernelab.runtime.arguments.arguments import Reference
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import name_in_caller

LONGEST_PERIOD = 64
"""How many launches at most are looked at as one repeated sequence."""

WITH_GRADIENT, WITHOUT_GRADIENT = "#b7e4c7", "#e9ecef"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a graph; `labels` are the user's names, `tracked` the arrays that are never hidden."""

    simplify: bool
    hide_readonly: bool
    longest_name: bool
    direction: str
    labels: Mapping[array, str] = field(default_factory=dict)
    tracked: frozenset[array] = frozenset()


@dataclass(frozen=True, slots=True)
class Group:
    """Parts of a tape that belong together: the contents of a scope, or what is repeated `times`."""

    name: str
    parts: tuple["Part", ...]
    times: int = 1


Part = int | Group
"""A record by its number, or a group."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The arrays that a record reads and writes, each with the name of the parameter that takes it."""

    read: tuple[tuple[str, array], ...]
    written: tuple[tuple[str, array], ...]


def dot(records: Sequence[Record], scopes: Sequence[Scope], options: Options) -> str:
    """The text of the graph."""
    flows = [flow_of(record) for record in records]
    parts = _tree(scopes, 0, len(records))
    if options.simplify:
        parts = _folded(parts, [_key(record, flow) for record, flow in zip(records, flows, strict=True)])
    shown = list(_numbers(parts))
    arrays = _Arrays([flows[i] for i in shown], flows, options)
    lines = ["digraph tape {", f"  rankdir={options.direction};", "  node [fontname=sans, fontsize=11];"]
    lines += _boxes(parts, records, 1, iter(range(len(records) + len(scopes) + 1)))
    lines += arrays.nodes()
    for i in shown:
        lines += arrays.edges(i, flows[i])
    return "\n".join([*lines, "}", ""])


# ------------------------------------------------------------------------------------------ structure


def flow_of(record: Record) -> Flow:
    """The arrays that a record reads and writes, by the names of parameters."""
    if not isinstance(record, LaunchRecord):
        return Flow(tuple(("", r) for r in record.read), tuple(("", w) for w in record.written))
    plan, arguments = record.kernel.plan, record.call.arguments
    names = [parameter.name for parameter in plan.parameters]
    numbers = ((names[i], arguments[i].array) for i in plan.numbers if isinstance(arguments[i], Reference))
    read = (*((names[i], arguments[i]) for i in plan.read), *numbers)
    return Flow(read, tuple((names[i], arguments[i]) for i in plan.written))


def _identity(values: array) -> Hashable:
    return values.packed, values.dtype


def _key(record: Record, flow: Flow) -> Hashable:
    """A key that is equal for records which do the same to the same arrays."""
    grid = record.grid.extents if isinstance(record, LaunchRecord) else ()
    sides = (tuple(_identity(values) for _, values in side) for side in (flow.read, flow.written))
    return record.title, grid, *sides


def _tree(scopes: Sequence[Scope], begin: int, end: int) -> tuple[Part, ...]:
    """The records of a stretch of the tape, those of each scope in it as one group."""
    inside = [scope for scope in scopes if begin <= scope.begin < scope.end <= end]
    parts: list[Part] = []
    position = begin
    while position < end:
        starting = [scope for scope in inside if scope.begin == position]
        if not starting:
            parts.append(position)
            position += 1
            continue
        # Of scopes that begin together the one that was closed last is the outermost.
        outer = max(starting, key=lambda scope: (scope.end, inside.index(scope)))
        rest = [scope for scope in inside if scope is not outer]
        parts.append(Group(outer.name, _tree(rest, outer.begin, outer.end)))
        position = outer.end
    return tuple(parts)


def _folded(parts: tuple[Part, ...], keys: Sequence[Hashable]) -> tuple[Part, ...]:
    """The parts with each sequence that follows itself shown once."""
    parts = tuple(
        Group(part.name, _folded(part.parts, keys)) if isinstance(part, Group) else part for part in parts
    )
    marks = [_mark(part, keys) for part in parts]
    found: list[Part] = []
    position = 0
    while position < len(parts):
        period, times = _repetition(marks, position)
        if times == 1:
            found.append(parts[position])
        else:
            found.append(Group("", parts[position : position + period], times))
        position += period * times
    return tuple(found)


def _mark(part: Part, keys: Sequence[Hashable]) -> Hashable:
    if isinstance(part, int):
        return keys[part]
    return part.name, part.times, tuple(_mark(inner, keys) for inner in part.parts)


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


def _numbers(parts: Sequence[Part]) -> Iterator[int]:
    for part in parts:
        if isinstance(part, Group):
            yield from _numbers(part.parts)
        else:
            yield part


# ------------------------------------------------------------------------------------------ text


def _boxes(parts: Sequence[Part], records: Sequence[Record], depth: int, counter: Iterator[int]) -> list[str]:
    indent = "  " * depth
    lines: list[str] = []
    for part in parts:
        if isinstance(part, int):
            lines.append(f"{indent}r{part} [{_box(records[part])}];")
            continue
        title = part.name if part.times == 1 else f"repeated {part.times} times"
        lines += [
            f"{indent}subgraph cluster_{next(counter)} {{",
            f"{indent}  label={_quoted(title)}; style=rounded; fontname=sans; fontsize=11;",
            *_boxes(part.parts, records, depth + 1, counter),
            f"{indent}}}",
        ]
    return lines


def _box(record: Record) -> str:
    title, threads = record.title.replace("`", ""), ""
    if isinstance(record, LaunchRecord):
        title = record.kernel.name
        plural = "s" * (record.grid.threads != 1)
        threads = f"\n{' × '.join(map(str, record.grid.extents))} thread{plural}"
    return f"shape=box, label={_quoted(title + threads)}, tooltip={_quoted(str(record.place))}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class _Arrays:
    """The ellipses of a graph: numbers and labels of arrays, in the order in which the tape meets them."""

    def __init__(self, shown: Sequence[Flow], flows: Sequence[Flow], options: Options) -> None:
        self.options = options
        self.written = {_identity(values) for flow in flows for _, values in flow.written}
        self.tracked = {_identity(values) for values in options.tracked}
        self.labels = {_identity(values): label for values, label in options.labels.items()}
        self.found: dict[Hashable, array] = {}
        self.parameters: dict[Hashable, list[str]] = {}
        for flow in shown:
            for name, values in (*flow.read, *flow.written):
                self.found.setdefault(_identity(values), values)
                self.parameters.setdefault(_identity(values), []).append(name)
        self.numbers = {identity: k for k, identity in enumerate(self.found) if not self._hidden(identity)}

    def _hidden(self, identity: Hashable) -> bool:
        return self.options.hide_readonly and identity not in self.written | self.tracked

    def nodes(self) -> list[str]:
        """One line for each array that is shown."""
        return [f"  a{k} [{self._ellipse(identity)}];" for identity, k in self.numbers.items()]

    def _ellipse(self, identity: Hashable) -> str:
        values = self.found[identity]
        described = f"{values.dtype} ({', '.join(map(str, values.shape))})"
        label = "\n".join(filter(None, [self._name(identity, values), described]))
        color = WITH_GRADIENT if values.requires_grad else WITHOUT_GRADIENT
        return f"shape=ellipse, style=filled, fillcolor={_quoted(color)}, label={_quoted(label)}"

    def _name(self, identity: Hashable, values: array) -> str:
        """The name of the array: its label, its variable, or the parameter that took it."""
        names = self.parameters[identity]
        parameter = max(names, key=len) if self.options.longest_name else names[0]
        return self.labels.get(identity) or name_in_caller(values) or parameter

    def edges(self, number: int, flow: Flow) -> list[str]:
        """The arrows of one record."""
        read = [self.numbers.get(_identity(values)) for _, values in flow.read]
        written = [self.numbers.get(_identity(values)) for _, values in flow.written]
        lines = [f"  a{k} -> r{number};" for k in read if k is not None]
        return list(dict.fromkeys([*lines, *(f"  r{number} -> a{k};" for k in written if k is not None)]))
