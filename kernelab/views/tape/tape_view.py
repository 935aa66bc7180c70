"""A tape as a picture and a table: one row for each record, with its reads, writes and overwrites.

Pure functions from a tape to markup; must not know how a tape records or sweeps.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kernelab import hooks
from kernelab.autodiff.records.records import LaunchRecord, Record
from kernelab.autodiff.tape.tape import Tape
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import name_of_memory
from kernelab.runtime.memory.memory import Allocation
from kernelab.views.kernel.code_view import spill
from kernelab.views.pages.markup import Below, Cell, Drawing, Node, Run, Table, Words, cell, words
from kernelab.views.tape.digest import Digest
from kernelab.views.tape.timeline import timeline

MOST_LOOKED_UP = 64
"""For how many memories the frames of callers are gone through."""

MOST = 20_000
"""How many places are looked at in one container."""


def names_of(memories: Iterable[Allocation], namespace: Mapping[str, Any]) -> dict[Allocation, str]:
    """The name of an array over each memory: that of a variable before that of a place in a container."""
    wanted = {id(memory): memory for memory in memories}
    found: dict[int, str] = {}
    for places in (_variables(namespace), _inside(namespace)):
        for name, held in places:
            key = id(held.allocation)
            if key in wanted:
                found.setdefault(key, name)
        if len(found) == len(wanted):
            break
    return {wanted[key]: name for key, name in found.items()}


def names_now(memories: Iterable[Allocation]) -> Mapping[Allocation, str]:
    """The variables of arrays in the running notebook; elsewhere, in the code that called kernelab."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        return names_of(memories, shell.user_ns)
    named = ((memory, name_of_memory(memory)) for memory in islice(memories, MOST_LOOKED_UP))
    return {memory: name for memory, name in named if name}


def _variables(namespace: Mapping[str, Any]) -> Iterator[tuple[str, array]]:
    for name, held in tuple(namespace.items()):
        if isinstance(held, array) and not name.startswith("_"):
            yield name, held


def _inside(namespace: Mapping[str, Any]) -> Iterator[tuple[str, array]]:
    for name, held in tuple(namespace.items()):
        if name.startswith("_") or isinstance(held, array | type):
            continue
        match held:
            case list() | tuple():
                found = enumerate(held[:MOST])
                places: Iterable[tuple[str, Any]] = ((f"{name}[{i}]", one) for i, one in found)
            case dict():
                places = ((f"{name}[{key!r}]", one) for key, one in tuple(held.items())[:MOST])
            case _:
                fields = getattr(held, "__dict__", None)
                places = () if not isinstance(fields, dict) else _fields(name, fields)
        yield from ((place, one) for place, one in places if isinstance(one, array))


def _fields(name: str, fields: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{name}.{field}", one) for field, one in tuple(fields.items())[:MOST]]


# ------------------------------------------------------------------------------------------------- tape view


HEAD = ("", "record", "grid", "reads", "changes", "where")
SHOWN_FIRST, SHOWN_LAST = 12, 4
"""Of a long tape, how many records are shown at its ends."""

MOST_WARNINGS = 6
"""How many different warnings are shown."""


def tape_view(tape: Tape) -> Node:
    """The view of a tape."""
    records = tuple(tape)
    if not records:
        return words("This tape is empty: launch kernels inside `with tape:` to record them.")
    data = _data(tape)
    picture = Drawing("", timeline(data), ())
    told = (*_spills(records), *_warnings(data))
    return Below((_summary(tape, records), *told, picture, Table("", HEAD, _rows(records))))


@hooks.picture.provide
def svg_of(tape: Tape) -> str:
    """The tape as an SVG file, as `Tape.to_svg` gives it."""
    return timeline(_data(tape))


def _data(tape: Tape) -> Mapping[str, Any]:
    digest = Digest(tape, names_now)
    digest.look()
    return digest.whole()


def _warnings(data: Mapping[str, Any]) -> list[Words]:
    """The overwrites of elements that an adjoint needs, and the findings of the last `backward`."""
    told: dict[str, None] = {}
    names = dict(data["names"])
    for clash, _, _, held, *_ in data["overwrites"]:
        if data["clashes"][clash]["outcome"] != "saved":
            memory = data["arrays"][held][0]
            name = names.get(memory, data["memories"][memory][0])
            read, wrote = (data["clashes"][clash][side][0] for side in ("read", "wrote"))
            told[f"{name} is overwritten at {wrote}, but the adjoint of {read} needs its old values"] = None
    told |= dict.fromkeys(f"{found['at'][0]}: {found['message']}" for found in data["findings"])
    more = [f"and {len(told) - MOST_WARNINGS} more"] if len(told) > MOST_WARNINGS else []
    return [words(Run("⚠ ", "bad"), sentence) for sentence in (*list(told)[:MOST_WARNINGS], *more)]


def _spills(records: tuple[Record, ...]) -> Iterator[Words]:
    """The kernels with loops that did not fit into memory."""
    for kernel in dict.fromkeys(record.kernel for record in records if isinstance(record, LaunchRecord)):
        if kernel.spilled:
            yield words(Run(f"{kernel.name}, beyond the memory for loops: ", "dim"), spill(kernel.spilled))


def _summary(tape: Tape, records: tuple[Record, ...]) -> Words:
    kept = f", {_size(tape.saved_bytes)} saved from being overwritten" if tape.saved_bytes else ""
    return words(Run(f"tape of {len(records)} record{'s' * (len(records) != 1)}", "strong"), kept, level=1)


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count} {unit}"
        count = round(count / 1000)
    return f"{count} GB"


def _rows(records: tuple[Record, ...]) -> tuple[tuple[Cell, ...], ...]:
    numbered = list(enumerate(records, 1))
    if len(records) <= SHOWN_FIRST + SHOWN_LAST + 1:
        return _named_rows(numbered)
    left_out = len(records) - SHOWN_FIRST - SHOWN_LAST
    gap = (cell("⋮"), cell(f"{left_out} more", "dim"), *(cell("") for _ in HEAD[2:]))
    rows = _named_rows([*numbered[:SHOWN_FIRST], *numbered[-SHOWN_LAST:]])
    return (*rows[:SHOWN_FIRST], gap, *rows[SHOWN_FIRST:])


def _named_rows(numbered: Sequence[tuple[int, Record]]) -> tuple[tuple[Cell, ...], ...]:
    held = {one.allocation: None for _, record in numbered for one in (*record.read, *record.written)}
    names = names_now(held)
    return tuple(_row(number, record, names) for number, record in numbered)


def _row(number: int, record: Record, names: Mapping[Allocation, str]) -> tuple[Cell, ...]:
    where = cell(str(record.place), "dim")
    if isinstance(record, LaunchRecord):
        plan = record.kernel.plan
        read, written = (_arguments(record, positions, names) for positions in (plan.read, plan.written))
        grid = " × ".join(map(str, record.grid.extents))
        name = cell(record.kernel.name, "name")
        return (cell(str(number), is_number=True), name, cell(grid), read, written, where)
    read, written = (
        _listed([_described(one, names) for one in side]) for side in (record.read, record.written)
    )
    title = cell(record.title.strip("`"), "name")
    return (cell(str(number), is_number=True), title, cell(""), read, written, where)


def _arguments(record: LaunchRecord, positions: Sequence[int], names: Mapping[Allocation, str]) -> Cell:
    """Arrays by their names in the notebook, and dim by those of their parameters where they have none."""
    found = []
    for i in positions:
        parameter, name = (
            record.kernel.plan.parameters[i].name,
            names.get(record.call.arguments[i].allocation),
        )
        _, dot, field = parameter.partition(".")
        found.append(Run(parameter, "dim") if name is None else Run(f"{name}{dot}{field}"))
    return _listed(found)


def _described(elements: array, names: Mapping[Allocation, str]) -> Run:
    name = names.get(elements.allocation)
    shape = " × ".join(map(str, elements.shape))
    return Run(f"{elements.dtype}, shape {shape}", "dim") if name is None else Run(name)


def _listed(runs: Sequence[Run]) -> Cell:
    distinct = list(dict.fromkeys(runs))
    return Cell(tuple(run for one in distinct for run in (Run(", "), one))[1:])
