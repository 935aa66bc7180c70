"""A tape as plain data that a page can draw: what it holds, and what has come since one looked last.

    {"epoch": 0, "from": 0,
     "memories": [["x", 4000, true], ...],             columns: name, bytes, whether it has gradients
     "arrays": [[0, "float32", [1000]], ...],          views: the memory, dtype, shape
     "steps": [{"title": "square", "kind": "launch", "grid": [1000], "place": "Cell In[2], line 3",
                "reads": [["x", 0]], "writes": [["y", 1]]}, ...],
     "records": [0, 1, 0, 1, ...],                     the tape, by numbers of steps
     "times": [12.5, ...],                             microseconds, -1 where nobody measured
     "scopes": [["forward", 0, 4], ...], "overwrites": [...], "findings": [...], "sweep": [...]}

A step is what records have in common that do the same to the same arrays at the same line, so a long tape is
mostly numbers.  Knows the tape; must not know markup, nor who reads the data.  It keeps no array alive.
"""

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from kernelab.autodiff.graph import flow_of
from kernelab.autodiff.hazards import Overwrite
from kernelab.autodiff.magnitudes import Magnitude
from kernelab.autodiff.records import LaunchRecord, Record
from kernelab.autodiff.tape import Tape
from kernelab.errors import Diagnostic, Span
from kernelab.runtime.memory import Allocation
from kernelab.runtime.strided import array

Names = Callable[[Iterable[Allocation]], Mapping[Allocation, str]]
"""What the user calls arrays over some memory, as far as it has names."""

GROWING = ("memories", "arrays", "steps", "records", "times", "overwrites")
"""The parts that only grow while an epoch lasts."""

NOBODY = -1
"""The number of a record that is none: what wrote stands outside of the tape."""


class Digest:
    """What is known of one tape, brought up to date by `look`."""

    def __init__(self, tape: Tape, names: Names) -> None:
        self.tape = weakref.ref(tape)
        self.names = names
        self._begin(tape)

    def _begin(self, tape: Tape) -> None:
        self.epoch = tape.epoch
        self.parts: dict[str, list[Any]] = {part: [] for part in GROWING}
        self.others: dict[str, Any] = {"scopes": [], "findings": [], "sweep": [], "names": {}}
        self._memories: dict[int, int] = {}
        self._arrays: dict[Hashable, int] = {}
        self._steps: dict[Hashable, int] = {}
        self._held: list[weakref.ref[array]] = []
        self._owners: list[weakref.ref[Allocation]] = []
        self._calls: dict[int, int] = {}
        self._seen = 0
        self._writers = 0
        self._sent = dict.fromkeys(GROWING, 0)
        self._changed: set[str] = set()

    # -------------------------------------------------------------------------------------- what is given out

    def news(self) -> dict[str, Any] | None:
        """What has changed since the last news; None if nothing has."""
        fresh = {part: rows[self._sent[part] :] for part, rows in self.parts.items()}
        found: dict[str, Any] = {part: rows for part, rows in fresh.items() if rows}
        found |= {name: self.others[name] for name in self._changed}
        if not found:
            return None
        head = {"epoch": self.epoch, "from": {part: self._sent[part] for part in fresh if fresh[part]}}
        self._sent = {part: len(rows) for part, rows in self.parts.items()}
        self._changed.clear()
        return head | found

    def whole(self) -> dict[str, Any]:
        """Everything that is known."""
        return {"epoch": self.epoch, "from": dict.fromkeys(GROWING, 0), **self.parts, **self.others}

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
            self.parts["times"].append(_microseconds(tape.times.get(number, -1)))
            if isinstance(record, LaunchRecord):
                self._calls[id(record.call)] = number
        self._seen += len(records)
        if len(self.parts["memories"]) > self._sent["memories"]:
            self.look_for_names()
        self._look_at_overwrites(tape)
        self._change("scopes", [[scope.name, scope.begin, scope.end] for scope in tape.scopes])
        self._change("findings", [_finding(found) for found in tape.findings])
        if len(tape.magnitudes) != len(self.others["sweep"]) or self.others["sweep"]:
            self._change("sweep", [self._sweep_step(found) for found in tape.magnitudes])
        return True

    def look_for_names(self) -> None:
        """Ask again what arrays are called: many get their names after they are used."""
        owners = [owner() for owner in self._owners]
        found = self.names([owner for owner in owners if owner is not None])
        numbers = {id(owner): i for i, owner in enumerate(owners) if owner is not None}
        named = {str(numbers[id(owner)]): name for owner, name in found.items()}
        self._change("names", self.others["names"] | named)

    def _change(self, name: str, value: Any) -> None:
        if self.others[name] != value:
            self.others[name] = value
            self._changed.add(name)

    # -------------------------------------------------------------------------------------- records

    def _step_of(self, record: Record) -> int:
        """The number of what a record does.  The tape holds its arrays, so their identities stay theirs."""
        place = record.place
        if isinstance(record, LaunchRecord):
            arrays = [id(record.call.arguments[i]) for i in record.kernel.plan.arrays]
            key: Hashable = (record.kernel, record.grid.packed, place.filename, place.line, *arrays)
        else:
            arrays = [id(one) for one in (*record.read, *record.written)]
            key = (record.title, place.filename, place.line, *arrays)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = len(self._steps)
            self.parts["steps"].append(self._described(record))
        return found

    def _described(self, record: Record) -> dict[str, Any]:
        flow = flow_of(record)
        title, kind = record.title.strip("`"), "other"
        grid: tuple[int, ...] = ()
        if isinstance(record, LaunchRecord):
            title, kind, grid = record.kernel.name, "launch", record.grid.extents
        described: dict[str, Any] = {"title": title, "kind": kind, "place": str(record.place)}
        sides = {"reads": flow.read, "writes": flow.written}
        described |= {side: [[p, self._array(p, a)] for p, a in sides[side]] for side in sides}
        return described | ({"grid": list(grid)} if grid else {})

    def _array(self, parameter: str, elements: array) -> int:
        key = elements.packed, str(elements.dtype)
        found = self._arrays.get(key)
        if found is None:
            found = self._arrays[key] = len(self._arrays)
            memory = self._memory(parameter, elements.allocation)
            self.parts["arrays"].append([memory, str(elements.dtype), list(elements.shape)])
            self._held.append(weakref.ref(elements))
        return found

    def _memory(self, parameter: str, memory: Allocation) -> int:
        found = self._memories.get(id(memory))
        if found is None:
            found = self._memories[id(memory)] = len(self._memories)
            name = parameter or f"array {found + 1}"
            self.parts["memories"].append([name, memory.nbytes, memory.requires_grad])
            self._owners.append(weakref.ref(memory))
        return found

    # -------------------------------------------------------------------------------------- what goes wrong

    def _look_at_overwrites(self, tape: Tape) -> None:
        known = self.parts["overwrites"]
        events = tape.overwrites[len(known) :]
        records = tape.since(0)[: self._seen] if events else ()
        for event in events:
            reader = self._calls.get(id(event.reader.call), NOBODY)
            writer = self._writer(records, event, reader)
            if writer == NOBODY and tape.is_recording and event.outcome != "refused":
                return  # the record of what writes comes after the write
            known.append(self._overwrite(event, reader, writer))

    def _writer(self, records: Sequence[Record], event: Overwrite, reader: int) -> int:
        """The record that overwrote: the first after the reader at the same line that changes the memory.

        Events come in the order of their writers.
        """
        memory = event.elements.allocation
        for number in range(max(reader + 1, self._writers), len(records)):
            record = records[number]
            if record.place == event.place and any(memory is w.allocation for w in record.written):
                self._writers = number
                return number
        return NOBODY

    def _overwrite(self, event: Overwrite, reader: int, writer: int) -> dict[str, Any]:
        parameter = event.reader.call.kernel.plan.parameters[event.reader.region.position].name
        affected = {self._memory("", one.allocation) for one in event.reader.affected()}
        return {
            "reader": reader,
            "writer": writer,
            "array": self._array(parameter, event.elements),
            "outcome": event.outcome,
            "bytes": event.nbytes,
            "affects": sorted(affected),
            "read": _line(event.reader.place.span),
            "wrote": _line(event.place.span),
        }

    def _sweep_step(self, found: Magnitude) -> list[Any]:
        return [found.record, [[self._array("", primal), _short(norm)] for primal, norm in found.norms]]


def _microseconds(nanoseconds: int) -> float:
    return -1 if nanoseconds < 0 else float(f"{nanoseconds / 1000:.3g}")


def _short(norm: float) -> float | str:
    """Four digits of a norm; what JSON has no number for, as text."""
    return float(f"{norm:.4g}") if abs(norm) < float("inf") else str(norm)


def _line(span: Span) -> list[str]:
    """Where a line stands, and its text."""
    return [str(span), span.source.line(span.line).strip()]


def _finding(found: Diagnostic) -> dict[str, Any]:
    related: Sequence[list[str]] = [[other.message, *_line(other.span)] for other in found.related]
    at = ["", ""] if found.span is None else _line(found.span)
    return {"code": found.code, "message": found.message, "hint": found.hint, "at": at, "related": related}
