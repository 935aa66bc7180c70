"""The launch ABI: what an entry of generated code receives, and what it reports.

An entry is ``extern "C" int SYMBOL(const long long* args, long long* status)``.  `args` are slots of eight
bytes: the four grid extents, then for each parameter of the function in order

    array       address, extents, strides in bytes
    value       its components, one a slot, each in the low bytes
    residual    an array that the function appends to: the address of {address, length, capacity}, counted in
                elements, the address of one int64 for each thread, where its values start, and an unused slot

On a device two slots follow where the function saves values: the address of the arena and its bytes a thread.
The first slot of a residual is there the address of its values, and the last says for how many of a thread
there is room.  It is cut into tiles of `TILE` threads: the first values of all threads of a tile, then the
second ones, and so on, so that a warp moves them at once.
`status` is eighteen int64 fields, below.  What is printed is a `Message` and its values: on a CPU an entry
only keeps the values, and the host formats them (`kernelab.backend.common.backends`); a device calls
printf.
"""

from kernelab.data_classes import dataclass
from kernelab.errors import Span
from kernelab.lang.ir import Append, Function, Print, Save, of_kind
from kernelab.lang.types import Array, Scalar, Type, bool_, size_of

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class Message:
    """The text of a print around its values: `texts` are one more than `specs` and `types`."""

    texts: tuple[str, ...]
    specs: tuple[str, ...]
    types: tuple[Scalar, ...]


def message_of(stmt: Print) -> Message:
    """The message of a print; its values are scalars."""
    types = tuple(value.type for value in stmt.values if isinstance(value.type, Scalar))
    return Message(stmt.texts, stmt.specs, types)


def device_call(message: Message, values: list[str]) -> str:
    """The call of printf on a device; a number without a conversion is shown to nine digits."""
    shown = [_device_spec(spec, type) for spec, type in zip(message.specs, message.types, strict=True)]
    texts = [text.replace("%", "%%") for text in message.texts]
    form = "".join(text + spec for text, spec in zip(texts, [*shown, ""], strict=True))
    arguments = [
        f'{value} ? "True" : "False"' if type == bool_ and not spec else value
        for value, spec, type in zip(values, message.specs, message.types, strict=True)
    ]
    quoted = f'"{"".join(map(_escaped, form))}"'
    return f"printf({', '.join([quoted, *arguments])});"


def _device_spec(spec: str, type: Scalar) -> str:
    if type == bool_ and not spec:
        return "%s"
    if not spec:
        spec = "%.9g" if type.is_float else "%u" if type.kind == "uint" else "%d"
    return f"{spec[:-1]}ll{spec[-1]}" if type.is_int and type.bits == 64 else spec


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii() and character.isprintable():
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())


# --------------------------------------------------------------------------------------------- the launch ABI


ABI_VERSION = 9
"""Changes whenever the same IR would be called differently: part of the key of every cached build."""

GRID_SLOTS = 4

OK, INDEX, ASSERTION, DIVISION, MEMORY, STOPPED, FULL, KEPT = range(8)
"""The values of status[CODE]."""

CODE, SITE, THREAD, OFFENDER, EXTENT, AXIS, STOP, POLL = range(8)
"""The fields of the status block: `STOP` ends the launch at the next poll, `POLL` is the address of a
``void poll(long long* status)`` that is called now and then, or 0."""

PRINTED, PRINTED_WORDS, PRINTED_ROOM, PRINTS = range(8, 12)
"""The print buffer of a launch on a CPU: its address, from malloc, its length and capacity in words of eight
bytes, and the number of prints.  A print is the number of its message and one word for each value."""

LIMIT, DONE = range(12, 14)
"""The bytes that a thread may save, 0 for any number, and the number of threads already run, to be skipped.

A thread that would save more ends the launch with `FULL`, unless it has already changed something: so another
program can go on with it."""

ROOM, USED = range(14, 16)
"""The bytes that all residuals of a launch may take, 0 for any number, and the bytes that they take by now.

A thread that would append more ends the launch with `KEPT`, and so does one that would save more than `ROOM`
after it has changed something."""

WRAPPED = 16
"""A bit for each of `EntryInfo.wraps` whose index was below zero; those from 63 on share the last one."""

BOX = 17
"""The address of the box of threads that an entry on a CPU runs, 0 for the whole grid: along each axis the
first coordinate, and the one behind the last.  Of a kernel that unpacks one index or none, the first axis
counts all threads."""

SUMS = 2 * GRID_SLOTS
"""Where a box goes on: 0 where sums go to their elements, else its sums are next.  For each running total of
`wide_accumulators.shared_totals` these are the address of the element, 0 where nothing was added, and a
float64."""

STATUS_FIELDS = 18

TILE = 32
"""The number of threads of a device whose parts of a residual are interleaved: those of a warp."""

PRINT_LIMIT = 10_000
"""The number of prints of a launch that are kept; the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Param:
    """The slots of one parameter; a `residual` is an array that the function appends to."""

    name: str
    type: Type
    slot: int
    slots: int
    residual: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The slots of a launch: the grid, the parameters, and where a device finds its arena (None: no need)."""

    params: tuple[Param, ...]
    slots: int
    arena: int | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """A place of the source that can end a launch: the array it indexes, or the message of its assertion."""

    span: Span
    array: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """The description of an entry for its callers: status[SITE] is an index into `sites`, `lines` are the
    lines of its text, `messages` those of its prints; `descending` says that the last thread runs first;
    `wraps` are the places where a computed index may count from the end."""

    name: str
    symbol: str
    layout: Layout
    sites: tuple[Site, ...]
    coordinates: int
    lines: range
    messages: tuple[Message, ...] = ()
    descending: bool = False
    wraps: tuple[Site, ...] = ()

    @property
    def saves(self) -> bool:
        """Whether its threads save values."""
        return self.layout.arena is not None

    @property
    def keeps(self) -> bool:
        """Whether its threads append to residuals."""
        return any(param.residual for param in self.layout.params)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of generated text and the source it comes from; `is_native` if its very text is the user's."""

    text: str
    span: Span | None = None
    is_native: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """Generated text that is compiled as a whole."""

    lines: tuple[Line, ...]
    entries: tuple[EntryInfo, ...]

    @property
    def text(self) -> str:
        return "".join(f"{line.text}\n" for line in self.lines)


def layout_of(function: Function) -> Layout:
    """The slots of a function: the same before and after it is scalarised."""
    appended = {stmt.array for stmt in of_kind(function.body, Append)}
    params: list[Param] = []
    slot = GRID_SLOTS
    for var in function.params:
        residual = var in appended
        slots = 3 if residual else slots_of(var.type)
        params.append(Param(var.hint, var.type, slot, slots, residual))
        slot += slots
    arena = slot if any(of_kind(function.body, Save)) else None
    return Layout(tuple(params), slot if arena is None else slot + 2, arena)


def slots_of(type: Type) -> int:
    """The number of slots that a parameter of this type takes."""
    return 1 + 2 * type.ndim if isinstance(type, Array) else size_of(type)


def thread_position(linear: int, grid: tuple[int, ...], coordinates: int) -> tuple[int, ...]:
    """The coordinates of a thread as its kernel sees them: `linear` itself where it unpacks only one."""
    if coordinates < 2:
        return (linear,)
    digits: list[int] = []
    for extent in reversed(grid):
        linear, digit = divmod(linear, max(extent, 1))
        digits.insert(0, digit)
    return tuple(digits[:coordinates])
