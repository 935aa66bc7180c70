"""Batching: turns independent runs of one program into one launch with an extra axis.

    before    f(x, w, y)            y[i] = w * x[i]
    batched   f(x, w, y)  lane, i   y[lane, i] = w * x[lane, i]

The arrays chosen get an axis in front, which the lane indexes.  All others are shared by the lanes, which
would all store the same values there, so only the first lane stores (`to_widen` says where that is so).  In
`by_thread` the lane is the thread itself: each thread then has a copy of the chosen arrays of its own.
Expects no `Call`, and no `Custom` with arrays: the rules of others are those of each lane.
"""

from collections.abc import Collection
from dataclasses import replace

from kernelab.lang import ir
from kernelab.lang.build import elem_of, ndim_of, type_of
from kernelab.lang.dependence import dependences, reached
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, int32, int64, uint32
from kernelab.passes.access.independence import handed
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.effects import Groups, aliases, effects
from kernelab.passes.common.simplify import simplify

MOST_COORDINATES = 4
"""The number of coordinates of a grid."""


def batched(function: ir.Function, wide: Collection[int], rank: int, distinct: bool = False) -> ir.Function:
    """The program for a grid whose first extent counts lanes; `wide` are positions of array parameters.

    `rank` is how many coordinates the grid had.  Its last parameters are then an int64, how many threads a
    lane has, and an int32: where the grid would have too many coordinates, the extent of the first one, which
    the lane is folded into.  With `distinct`, every lane draws random numbers of its own, and an int64 behind
    them says how many lanes other launches have run before.
    """
    lane, linear = ir.Var(int32, "lane"), ir.Var(int64, "thread")
    threads, first = ir.Var(int64, "threads"), ir.Var(int32, "first_extent")
    before = ir.Var(int64, "lanes_before")
    own = (*function.threads, *(ir.Var(int32) for _ in range(rank - len(function.threads))))
    own_by_lane = _widened(function, wide)
    shared = frozenset(function.params) - own_by_lane.keys()
    writer = _Batcher(lane, own_by_lane, shared, before if distinct else None)
    b = writer.builder
    coordinates = (lane, *own)
    if len(coordinates) > MOST_COORDINATES:
        folded = ir.Var(int32, "lane_and_first")
        extent = b.apply("max", first, ir.Const(1, int32))  # above zero: so backends see that lanes are apart
        writer.lane = b.apply("floordiv", folded, extent)
        writer.env[own[0]] = b.apply("mod", folded, extent)
        coordinates = (folded, *own[1:])
    if function.linear is not None:
        writer.env[function.linear] = b.apply("mod", linear, threads)
    params = (*(writer.wide.get(param, param) for param in function.params), threads, first)
    params = (*params, before) if distinct else params
    body = writer.function(function).body
    result = replace(function, name=f"{function.name}_batch", params=params, threads=coordinates, body=body)
    return simplify(replace(result, linear=None if function.linear is None else linear))


def by_thread(function: ir.Function, wide: Collection[int]) -> ir.Function:
    """The program in which every thread has its own copy of the chosen arrays, along a new first axis."""
    linear = function.linear or ir.Var(int64, "thread")
    writer = _Batcher(linear, _widened(function, wide))
    params = tuple(writer.wide.get(param, param) for param in function.params)
    name = f"{function.name}_by_thread"
    return simplify(replace(writer.function(function), name=name, params=params, linear=linear))


def _widened(function: ir.Function, wide: Collection[int]) -> dict[ir.Var, ir.Var]:
    widened: dict[ir.Var, ir.Var] = {}
    for position in wide:
        param = function.params[position]
        widened[param] = ir.Var(Array(elem_of(param), ndim_of(param) + 1), param.hint, param.span)
    return widened


class _Batcher(Copier):
    def __init__(
        self,
        lane: ir.Atom,
        wide: dict[ir.Var, ir.Var],
        shared: Collection[ir.Var] = (),
        lanes_before: ir.Var | None = None,
    ) -> None:
        super().__init__(env=dict(wide))
        self.lane = lane
        self.wide = wide
        self.shared = shared
        self.lanes_before = lanes_before

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Print():
                pass  # once a lane would be no more than noise
            case ir.Load(_, array, indices) | ir.Store(array, indices) | ir.Atomic(_, _, array, indices):
                around = (self.lane,) if array in self.wide else ()
                placed = replace(stmt, indices=(*around, *indices))
                if isinstance(stmt, ir.Store) and array in self.shared:
                    self.by_one(placed)
                else:
                    super().stmt(placed)
            case _:
                super().stmt(stmt)

    def by_one(self, stmt: ir.Stmt) -> None:
        """Run statements that are the same for all lanes in the first lane only."""
        first = self.builder.apply("eq", self.lane, ir.Const(0, int32))
        assert isinstance(first, ir.Var)
        with self.builder.block() as inner:
            super().stmt(stmt)
        self.builder.emit(ir.If((), first, inner.close(), ir.Block((), ()), stmt.span))

    def let(self, stmt: ir.Let) -> None:
        if stmt.op is SHAPE and stmt.args[0] in self.wide:
            array, axis = stmt.args
            super().let(replace(stmt, args=(array, self._next(axis))))
        elif stmt.op.name == "rand_init" and self.lanes_before is not None:
            seed, *rest = self.atoms(stmt.args)
            out, own = stmt.out, self._own_seed(seed, self.lanes_before)
            self.env[out] = self.builder.let(stmt.op, (own, *rest), type_of(out), out.hint)
        else:
            super().let(stmt)

    def _own_seed(self, seed: ir.Atom, lanes_before: ir.Var) -> ir.Atom:
        """A seed for this lane alone; not the same where lanes within lanes change places."""
        b = self.builder
        lane = b.apply("add", b.apply("int64", self.lane), lanes_before)
        spread = b.apply("mul", b.apply("uint32", lane), ir.Const(0x9E3779B9, uint32))
        mixed = b.apply("bit_xor", b.apply("uint32", seed), spread)
        return b.apply(str(seed.type), b.apply("mul", mixed, ir.Const(0x85EBCA6B, uint32)))

    def _next(self, axis: ir.Atom) -> ir.Atom:
        if isinstance(axis, ir.Const):
            return axis if axis.value < 0 else ir.Const(axis.value + 1, axis.type)
        return self.builder.apply("add", self.atom(axis), ir.Const(1, int32))


def is_opaque(function: ir.Function) -> bool:
    """Whether native code touches arrays, which knows no lanes: each lane then needs a run of its own."""
    return bool(handed(function))


def has_rules_of_arrays(function: ir.Function) -> bool:
    """Whether a derivative that a user wrote takes arrays, which have an axis for lanes: it knows none."""
    args = (arg for custom in ir.of_kind(function.body, ir.Custom) for arg in custom.args)
    return any(isinstance(arg.type, Array) for arg in args)


def draws(function: ir.Function) -> bool:
    """Whether the program draws random numbers."""
    return any(stmt.op.name == "rand_init" for stmt in ir.of_kind(function.body, ir.Let))


def to_widen(function: ir.Function, wide: Collection[int], groups: Groups = ()) -> frozenset[int]:
    """The positions of the changed arrays that differ between lanes, if those of `wide` do.

    An array that every lane would only fill with the same values can be shared; one that is read again, be it
    through another of its group, or changed by atomics, cannot.
    """
    touched, shared = effects(function), aliases(function, groups)
    again = {array for array in touched.changed if shared[array] & touched.reads} | touched.accumulates
    differ = reached(dependences(function.body), [function.params[position] for position in wide]) | again
    return frozenset(i for i, param in enumerate(function.params) if param in differ).difference(wide)


def reading(function: ir.Function, numbers: Collection[int]) -> ir.Function:
    """The function with the numbers at some positions read from arrays of one element, which lanes index."""
    params, loads = list(function.params), []
    for i in numbers:
        number = params[i]
        assert not isinstance(number.type, Array)
        params[i] = ir.Var(Array(number.type, 1), number.hint, number.span)
        loads.append(ir.Load(number, params[i], (ir.Const(0, int32),), number.span))
    body = ir.Block((*loads, *function.body.stmts), function.body.yields)
    return replace(function, params=tuple(params), body=body)
