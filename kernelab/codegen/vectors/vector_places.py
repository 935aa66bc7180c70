"""Places of vector code: the elements that the lanes of a group access, and what the text says of them.

x[i]        side by side: one load for all lanes
x[of[i]]    a row of up to four components of each element, wherever it lies
x[0]        one element for all lanes
"""

from collections import Counter
from collections.abc import Mapping

from kernelab.codegen.cpp import spelling
from kernelab.codegen.vectors.launch_rule import is_field
from kernelab.codegen.vectors.variation import Lets, lets_of
from kernelab.codegen.vectors.vector_helpers import KINDS
from kernelab.codegen.vectors.vector_operations import SMALL
from kernelab.data_classes import dataclass, replace
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import bool_, float32, float64, int32, scalar_of, size_of, uint32

BY_LANES = frozenset({bool_, *SMALL})
"""The scalars whose elements are not as wide as a lane: each lane moves its own."""

WORDS = (float32, int32, uint32)
"""The scalars that are as wide as a lane."""

MOST_STREAMS = 4
"""The arrays that are written past the caches at a time: processors gather about twice as many lines."""


LONG = 100
"""The statements from which the tail of a launch shares the text of whole groups, under a mask."""


def is_long(function: ir.Function) -> bool:
    """Whether a function is so long that the time of its compiler counts more than that of a launch.

    Conditions do not count: in the interior of a launch most of them are known.
    """
    lets = lets_of(function)

    def usually_run(stmt: ir.Stmt) -> tuple[ir.Block, ...]:
        return (stmt.orelse,) if isinstance(stmt, ir.If) and is_rare(stmt.cond, lets) else ir.blocks(stmt)

    stmts = ir.walk(function.body, usually_run)
    return sum(not (isinstance(stmt, ir.Let) and stmt.out.type == bool_) for stmt in stmts) > LONG


def is_rare(cond: ir.Atom, lets: Lets) -> bool:
    """Whether hardly any thread meets a condition."""
    return cond in lets and lets[cond].op.name == "rarely"


@dataclass(frozen=True, slots=True)
class Place:
    """The elements that the lanes of a group access, from `base` on, the address of the first lane's.

    They are one (`offsets` is ""), lie side by side, or `offsets` bytes from there; `collide` says that two
    lanes may have the same, `packed` that they are of vectors of that kind, which lie side by side.  Others
    are read and changed in rows of components, this one in a row of `row`.  Elements on a ring, or at clamped
    indices, lie side by side where the variable `near` is true.  Where `columns` are kept, one is `column`.
    """

    base: str
    offsets: str = ""
    adjacent: bool = False
    collide: bool = False
    packed: str = ""
    near: str = ""
    row: int = 1
    columns: str = ""
    column: str = ""

    @property
    def is_one(self) -> bool:
        return not self.offsets and not self.adjacent

    @property
    def first(self) -> str:
        """The address of the first lane's element."""
        return f"{self.base} + {self.offsets}[0]" if self.offsets else self.base

    def moved(self, bytes: int, row: int = 1) -> "Place":
        return replace(self, base=spelling.offset(self.base, bytes), row=row)

    def of_lane(self, size: int) -> str:
        """The address of the element of `lane`."""
        if self.is_one:
            return self.base
        return f"({self.base} + {f'lane * {size}' if self.adjacent else f'{self.offsets}[lane]'})"


def kind_of(array: ir.Var) -> str:
    """The kind of the vectors that an array has, "" for other elements and fields of structs."""
    scalar, elem = scalar_of(elem_of(array)), elem_of(array)
    kind = f"{size_of(elem)}{'_64' if scalar == float64 else ''}"
    return kind if scalar in (float32, float64, int32) and kind in KINDS and not is_field(array) else ""


ROW = 4
"""The components of an element that lanes read or change at once, wherever it lies."""


def row_of(stmt: ir.ArrayAccess) -> int:
    """The number of components in the row of one: all but the last row of an element are full."""
    if scalar_of(elem_of(stmt.array)) not in (float32, int32):
        return 1
    return min(ROW, size_of(elem_of(stmt.array)) - row_at(stmt))


def row_at(stmt: ir.ArrayAccess) -> int:
    """The first component of the row of one."""
    return (stmt.component or 0) // ROW * ROW


Elements = tuple[ir.Var, tuple[ir.Atom, ...]]
"""An array and its indices."""

Rows = Counter[tuple[ir.Var, tuple[ir.Atom, ...], int]]
"""How many components are read of each row, by its elements and its first component."""


def rows_read(function: ir.Function) -> Rows:
    loads = ir.of_kind(function.body, ir.Load)
    read = {(stmt.array, stmt.indices, stmt.component): row_at(stmt) for stmt in loads}
    return Counter((array, indices, first) for (array, indices, _), first in read.items())


def is_read_whole(stmt: ir.Load, rows: Rows) -> bool:
    """Whether all components of a row of several are read: lanes read it as a whole."""
    return 1 < row_of(stmt) == rows[stmt.array, stmt.indices, row_at(stmt)]


def first_columns(function: ir.Function) -> tuple[Mapping[Elements, int], Mapping[Elements, int]]:
    """The rows of which a thread reads the first columns, and changes them, with how many.

    Those of ``of[e, 0], of[e, 1], of[e, 2]`` are three.
    """
    read: dict[Elements, set[int]] = {}
    changed: dict[Elements, set[int]] = {}
    for stmt in ir.walk(function.body):
        if isinstance(stmt, ir.ArrayAccess) and (column := column_of(stmt)) is not None:
            columns = read if isinstance(stmt, ir.Load) else changed
            columns.setdefault((stmt.array, stmt.indices[:-1]), set()).add(column)
    return _counts(read), _counts(changed)


def _counts(columns: Mapping[Elements, set[int]]) -> Mapping[Elements, int]:
    """How many columns there are of each row, where they are the first."""
    return {row: len(at) for row, at in columns.items() if len(at) > 1 and at == {*range(len(at))}}


def together(column: int, count: int) -> int:
    """How many of the first `count` columns are moved together with one: as many as a vector has."""
    return min(ROW, count - column // ROW * ROW)


def column_of(stmt: ir.ArrayAccess) -> int | None:
    """The column of an element of a row of numbers, None where it is not known."""
    *row, column = stmt.indices
    if not row or not isinstance(column, ir.Const) or is_field(stmt.array):
        return None
    elem = elem_of(stmt.array)
    return int(column.value) if scalar_of(elem) in WORDS and size_of(elem) == 1 else None
