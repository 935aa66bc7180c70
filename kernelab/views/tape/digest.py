"""A tape as plain data, the source of all its forms: table, SVG, DOT, and the widget of a page.

    {"epoch": 0, "from": 0,
     "memories": [["x", 4000, true], ...],             columns: name, bytes, whether it has gradients
     "layouts": [["float32", [1000]], ...],            dtype, shape
     "arrays": [[0, 0], ...],                          views: memory, layout
     "kinds": [{"title": "square", "kind": "launch", "grid": [1000], "device": "cpu",
                "place": "Cell In[2], line 3", "reads": ["x"], "writes": ["y"]}, ...],  names of parameters
     "steps": [[0, [0], [1]], ...],                    kind, arrays read, arrays written
     "records": [0, 1, 0, 1, ...],                     the tape, by numbers of steps
     "times": [12.5, ...],                             microseconds, -1 where nobody measured
     "clashes": [{"outcome": "saved", "read": [place, line], "wrote": [place, line]}, ...],
     "overwrites": [[0, 3, 5, 0, 4000, [0]], ...],     clash, reader, writer, array, bytes, memories affected
     "sweep": [[1, [[0, 2.5]]], ...],                  the last sweep: record, norms of adjoints by arrays;
                                                       in loops [1, [[-1, 2.5]], "line 4, iteration 7"]
     "sweeps": 1,                                      how often `sweep` began anew
     "scopes": [["forward", 0, 4], ...],               name, first record, one behind the last
     "names": [[0, "x"], ...],                         memory, its name; later rows count for both
     "findings": [...]}

A page asks for everything, or for what is new since the last request; `TapeData` reads it for drawings.  A
step is what records have in common that do the same to the same arrays at the same line, a kind what they
have in common but for the arrays: so a long tape is mostly numbers.  Knows the tape; must not know markup,
nor who reads the data.  It keeps no array alive.
"""

import weakref
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from kernelab.autodiff.records.hazards import Overwrite, UnseenRecord
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.tape import Tape
from kernelab.data_classes import dataclass
from kernelab.data_classes.turns import cached_property
from kernelab.errors import Diagnostic, Span
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import Place
from kernelab.runtime.kernel.arguments import Reference
from kernelab.runtime.memory.memory import Allocation

Names = Callable[[Iterable[Allocation]], Mapping[Allocation, str]]
"""What the user calls arrays over some memory, as far as it has names."""

GROWING = (
    *("memories", "layouts", "arrays", "kinds", "steps"),
    *("records", "times", "clashes", "overwrites", "sweep", "scopes", "names"),
)
"""The parts that only grow while an epoch lasts; `sweep` while `sweeps` stays the same."""

NOBODY = -1
"""Stands for the number of a record where the write was made outside of the tape."""

RELIEF = 20
"""While records come, the next search for names waits this many times as long as the last one took."""


def label(title: str) -> str:
    """A record as a column has room for it: the name of what it runs stands first."""
    what, _, name = title.replace("`", "").rpartition(" ")
    if what == "the checkpoint of":
        return f"{name} (checkpoint)"
    return name if what in ("", "the launch of", "the function") else f"{what} {name}"


class Digest:
    """The data of one tape for a page, updated by `look`."""

    def __init__(self, tape: Tape, names: Names, clock: Callable[[], float] = perf_counter) -> None:
        self.tape = weakref.ref(tape)
        self.names = names
        self._clock = clock
        self._due = clock()
        self._begin(tape)

    def _begin(self, tape: Tape) -> None:
        self.epoch = tape.epoch
        self.parts: dict[str, list[Any]] = {part: [] for part in GROWING}
        self.others: dict[str, Any] = {"findings": [], "sweeps": tape.sweeps}
        self._memories: dict[int, int] = {}
        self._arrays: dict[Hashable, int] = {}
        self._steps: dict[Hashable, int] = {}
        self._tables: dict[str, dict[Hashable, int]] = {"layouts": {}, "kinds": {}, "clashes": {}}
        self._held: list[weakref.ref[array]] = []
        self._owners: list[weakref.ref[Allocation]] = []
        self._called: dict[int, str] = {}
        self._asked = 0
        self._writes: dict[tuple[Place, int], list[int]] = {}
        self._indexed = 0
        self._calls: dict[int, int] = {}
        self._seen = 0
        self._writers = 0
        self._sent = dict.fromkeys(GROWING, 0)
        self._changed: set[str] = set()

    # -------------------------------------------------------------------------------------- what is given out

    def news(self) -> dict[str, Any] | None:
        """The changes since the last call; None if there are none."""
        fresh = {part: rows[self._sent[part] :] for part, rows in self.parts.items()}
        changes: dict[str, Any] = {part: rows for part, rows in fresh.items() if rows}
        changes |= {name: self.others[name] for name in self._changed}
        if not changes:
            return None
        head = {"epoch": self.epoch, "from": {part: self._sent[part] for part in fresh if fresh[part]}}
        self._sent = {part: len(rows) for part, rows in self.parts.items()}
        self._changed.clear()
        return head | changes

    def whole(self) -> dict[str, Any]:
        """Everything that is known."""
        return {"epoch": self.epoch, "from": dict.fromkeys(GROWING, 0), **self.parts, **self.others}

    def forget(self) -> None:
        """Let go of what was taken in, once the tape is gone: its arrays can still be asked for."""
        self.parts = {part: [] for part in GROWING}
        self._sent = dict.fromkeys(GROWING, 0)
        for index in (self._memories, self._arrays, self._steps, self._writes, self._calls, self._called):
            index.clear()

    def held(self, number: int) -> array | None:
        """An array by its number, if anybody still has it."""
        return self._held[number]() if 0 <= number < len(self._held) else None

    # -------------------------------------------------------------------------------------- what is looked at

    def look(self) -> bool:
        """Take in what the tape has got since the last look; whether it is a tape still."""
        tape = self.tape()
        if tape is None:
            return False
        if tape.epoch != self.epoch:
            self._begin(tape)
            self._changed = set(self.others)
        records = tape.since(self._seen)
        for number, record in enumerate(records, self._seen):
            self.parts["records"].append(self._step_of(record))
            nanoseconds = tape.times.get(number + 1, -1)
            self.parts["times"].append(-1 if nanoseconds < 0 else _short(nanoseconds / 1000, 3))
            if isinstance(record, LaunchRecord):
                self._calls[id(record)] = number
        self._seen += len(records)
        self._look_at_overwrites(tape)
        self._name_new()
        scopes = self.parts["scopes"]
        scopes += [[scope.name, scope.begin, scope.end] for scope in tape.scopes[len(scopes) :]]
        self._change("findings", [_finding(finding) for finding in tape.findings])
        self._look_at_sweep(tape)
        return True

    def look_for_names(self) -> None:
        """Ask again what all arrays are called: many get their names after they are used."""
        self._ask(range(len(self._owners)))

    def _name_new(self) -> None:
        """Look up the names of new arrays, but not so often that recording threads would wait for it."""
        began = self._clock()
        if self._asked == len(self._owners) or began < self._due:
            return
        self._ask(number for number in range(len(self._owners)) if number not in self._called)
        ended = self._clock()
        self._due = ended + RELIEF * (ended - began)

    def _ask(self, numbers: Iterable[int]) -> None:
        self._asked = len(self._owners)
        owners = {owner: number for number in numbers if (owner := self._owners[number]()) is not None}
        for owner, name in self.names(owners).items():
            number = owners[owner]
            if self._called.get(number) != name:
                self._called[number] = name
                self.parts["names"].append([number, name])

    def _change(self, name: str, value: Any) -> None:
        if self.others[name] != value:
            self.others[name] = value
            self._changed.add(name)

    # -------------------------------------------------------------------------------------- records

    def _step_of(self, record: Record) -> int:
        """The number of what a record does.  The tape holds its arrays, so their identities stay theirs."""
        place = record.place
        if isinstance(record, LaunchRecord):
            arrays = [id(record.arguments[i]) for i in record.program.arrays]
            key: Hashable = (record.kernel, record.grid.packed, place.filename, place.line, *arrays)
        else:
            arrays = [id(one) for one in (*record.read, *record.written)]
            key = (record.title, place.filename, place.line, *arrays)
        number = self._steps.get(key)
        if number is None:
            number = self._steps[key] = len(self._steps)
            self.parts["steps"].append(self._described(record))
        return number

    def _entry(self, table: str, key: Hashable, entry: Callable[[], Any]) -> int:
        """The number of an entry in one of the tables of what much has in common."""
        numbers = self._tables[table]
        if key not in numbers:
            numbers[key] = len(numbers)
            self.parts[table].append(entry())
        return numbers[key]

    def _described(self, record: Record) -> list[Any]:
        title, kind = label(record.title), "other"
        grid: tuple[int, ...] = ()
        device = ""
        if isinstance(record, LaunchRecord):
            kind, grid = "launch", record.grid.extents
            device = " and ".join({str(one.device): None for one in (*record.read, *record.written)})
        elif isinstance(record, UnseenRecord) and record.failed:
            title += " (failed)"
        sides = _sides(record)
        read, written = ([self._array(*pair) for pair in side] for side in sides)
        names = [[parameter for parameter, _ in side] for side in sides]

        def common() -> dict[str, Any]:
            described = {"title": title, "kind": kind, "place": str(record.place)}
            parameters = {"reads": names[0], "writes": names[1]}
            return described | parameters | ({"grid": list(grid), "device": device} if grid else {})

        key = (title, kind, grid, device, record.place, tuple(names[0]), tuple(names[1]))
        return [self._entry("kinds", key, common), read, written]

    def number(self, elements: array) -> int | None:
        """The number of an array; None if no record has it."""
        return self._arrays.get(_identity(elements))

    def _array(self, parameter: str, elements: array) -> int:
        number = self.number(elements)
        if number is None:
            number = self._arrays[_identity(elements)] = len(self._arrays)
            memory = self._memory(parameter, elements.allocation)
            layout = str(elements.dtype), elements.shape
            entry = self._entry("layouts", layout, lambda: [layout[0], list(layout[1])])
            self.parts["arrays"].append([memory, entry])
            self._held.append(weakref.ref(elements))
        return number

    def _memory(self, parameter: str, memory: Allocation) -> int:
        number = self._memories.get(id(memory))
        if number is None:
            number = self._memories[id(memory)] = len(self._memories)
            name = parameter or f"array {number + 1}"
            self.parts["memories"].append([name, memory.nbytes, memory.requires_grad])
            self._owners.append(weakref.ref(memory))
        return number

    # -------------------------------------------------------------------------------------- what goes wrong

    def _look_at_overwrites(self, tape: Tape) -> None:
        overwrites = self.parts["overwrites"]
        events = tape.overwrites[len(overwrites) :]
        if events:
            self._index_writes(tape)
        for event in events:
            reader = self._calls.get(id(event.reader.record()), NOBODY)
            writer = self._writer(event, reader)
            if writer == NOBODY and tape.is_recording and event.outcome != "refused":
                return  # the record of what writes comes after the write
            overwrites.append(self._overwrite(event, reader, writer))

    def _index_writes(self, tape: Tape) -> None:
        """Index the records that change a memory by their lines."""
        fresh = tape.since(self._indexed)[: self._seen - self._indexed]
        for number, record in enumerate(fresh, self._indexed):
            for memory in {id(one.allocation) for one in record.written}:
                self._writes.setdefault((record.place, memory), []).append(number)
        self._indexed += len(fresh)

    def _writer(self, event: Overwrite, reader: int) -> int:
        """The record that overwrote: the first after the reader at the same line that changes the memory.

        Events come in the order of their writers.
        """
        numbers = self._writes.get((event.place, id(event.elements.allocation)), [])
        at = bisect_left(numbers, max(reader + 1, self._writers))
        if at == len(numbers):
            return NOBODY
        self._writers = numbers[at]
        return self._writers

    def _overwrite(self, event: Overwrite, reader: int, writer: int) -> list[Any]:
        parameter = event.reader.call.kernel.plan.parameters[event.reader.region.position].name
        affected = {self._memory("", one.allocation) for one in event.reader.affected()}
        places = event.reader.place, event.place

        def clash() -> dict[str, Any]:
            read, wrote = (_line(place.span) for place in places)
            return {"outcome": event.outcome, "read": read, "wrote": wrote}

        number = self._entry("clashes", (event.outcome, *places), clash)
        array = self._array(parameter, event.elements)
        return [number, reader, writer, array, event.nbytes, sorted(affected)]

    def _look_at_sweep(self, tape: Tape) -> None:
        sweep = self.parts["sweep"]
        sweeps, magnitudes = tape.sweeps, tape.magnitudes
        if sweeps != self.others["sweeps"]:
            sweep.clear()
            self._sent["sweep"] = 0
            self._change("sweeps", sweeps)
        fresh = [
            [
                step.record - 1,
                [
                    [NOBODY if one is None else self._array("", one), _short(norm, 4)]
                    for one, norm in step.norms
                ],
                *([step.where] if step.where else []),
            ]
            for step in magnitudes[len(sweep) :]
        ]
        if tape.sweeps == sweeps:  # else another sweep has begun meanwhile: next time
            sweep += fresh


@dataclass(frozen=True)
class TapeData:
    """What a digest has of a tape, for drawings; records, arrays and memories go by their numbers."""

    parts: Mapping[str, Any]

    @classmethod
    def of(cls, tape: Tape, names: Names) -> "TapeData":
        """The data of a tape as it is now."""
        digest = Digest(tape, names)
        digest.look()
        return cls(digest.whole())

    def __len__(self) -> int:
        return len(self.parts["records"])

    def kind(self, record: int) -> Mapping[str, Any]:
        """The title, the kind, the place and the parameters of a record, and the grid of a launch."""
        kind: Mapping[str, Any] = self.parts["kinds"][self._step(record)[0]]
        return kind

    def grid(self, record: int) -> str:
        """The extents of a launch; "" for another record."""
        return " × ".join(map(str, self.kind(record).get("grid", ())))

    def sides(self, record: int) -> tuple[list[int], list[int]]:
        """The arrays that a record reads, and those that it writes."""
        _, read, written = self._step(record)
        return read, written

    def _step(self, record: int) -> list[Any]:
        step: list[Any] = self.parts["steps"][self.parts["records"][record]]
        return step

    def memory(self, array: int) -> int:
        memory: int = self.parts["arrays"][array][0]
        return memory

    def layout(self, array: int) -> tuple[str, list[int]]:
        """The dtype and the shape of an array."""
        dtype, shape = self.parts["layouts"][self.parts["arrays"][array][1]]
        return dtype, shape

    @cached_property
    def names(self) -> Mapping[int, str]:
        """What the user calls memories, as far as they have names; a name is that of the last to get it."""
        holders = {name: memory for memory, name in self.parts["names"]}
        return {memory: name for memory, name in dict(self.parts["names"]).items() if holders[name] == memory}

    def label(self, memory: int) -> str:
        """The name of a memory, that of a parameter where the user gives it none, and to no other memory.

        A number follows where it is the parameter of several memories.
        """
        parameter: str = self.parts["memories"][memory][0]
        numbered = f"{parameter}#{memory + 1}" if self.guesses[parameter] > 1 else parameter
        unnamed = f"array {memory + 1}" if parameter in self.taken else numbered
        return self.names.get(memory) or unnamed

    @cached_property
    def guesses(self) -> Mapping[str, int]:
        """For how many memories the name of a parameter may stand."""
        return Counter(parameter for parameter, *_ in self.parts["memories"])

    @cached_property
    def taken(self) -> Collection[str]:
        """The names that the user gives to memories."""
        return frozenset(self.names.values())

    def is_lost(self, clash: int) -> bool:
        """Whether an overwrite took values that were not saved."""
        return bool(self.parts["clashes"][clash]["outcome"] != "saved")


def _sides(record: Record) -> tuple[list[tuple[str, array]], list[tuple[str, array]]]:
    """The arrays that a record reads, and those that it writes, each with the parameter that takes it."""
    if not isinstance(record, LaunchRecord):
        return [("", one) for one in record.read], [("", one) for one in record.written]
    plan, arguments = record.kernel.plan, record.arguments
    names = [parameter.name for parameter in plan.parameters]
    read = [(names[i], arguments[i]) for i in plan.read]
    read += [(names[i], arguments[i].array) for i in plan.numbers if isinstance(arguments[i], Reference)]
    return read, [(names[i], arguments[i]) for i in plan.written]


def _identity(elements: array) -> Hashable:
    return elements.packed, str(elements.dtype)


def _short(number: float, digits: int) -> float | str:
    """So many digits of a number; what JSON has no number for, as text."""
    return float(f"{number:.{digits}g}") if abs(number) < float("inf") else str(number)


def _line(span: Span) -> list[str]:
    """The location of a line, and its text."""
    return [str(span), span.line_text]


def _finding(finding: Diagnostic) -> dict[str, Any]:
    related: Sequence[list[str]] = [[other.message, *_line(other.span)] for other in finding.related]
    at = ["", ""] if finding.span is None else _line(finding.span)
    texts = {"code": finding.code, "message": finding.message, "hint": finding.hint}
    return texts | {"at": at, "related": related}
