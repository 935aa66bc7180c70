"""Prefetches elements at indices read from other arrays, some threads ahead: processors cannot predict these.

    d = x[b[s]] - x[a[s]]        while thread s runs, x[b[s + 16]] and x[a[s + 16]] are on their way

Only where the elements are too many for a cache near the core, and a launch has an index for each thread.
What is asked for changes nothing: a wrong index asks for bytes that nobody needs.
"""

from collections.abc import Mapping, Sequence

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.helpers import Names
from kernelab.codegen.cpp.wide_accumulators import Wide
from kernelab.data_classes import dataclass
from kernelab.lang import ir
from kernelab.lang.build import elem_of
from kernelab.lang.types import int32, int64, scalar_of

AHEAD = 16
"""How many threads ahead: about as long as a miss of all caches takes."""

FAR = 1 << 20
"""The bytes of arrays, or of their accumulators, from which their elements are likely to be far away."""

FAR_OF_LANES = 1 << 24
"""The same for vector code, whose lanes wait for memory together: the bytes that no cache holds."""

MOST = 8
"""The elements of a thread that are asked for at most: memory answers about as many at a time."""

Place = tuple[ir.Var, tuple[str, ...], int]
"""Integers that each thread reads at its own index: the array, the other indices, the component."""


@dataclass(frozen=True, slots=True)
class Prefetches:
    """Lines: in front of all threads, in front of each or of a group, and for each lane that adds.

    Too much that a group asks for at a time is lost, so what it adds to is asked for while it adds.
    """

    declared: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()


def gathers(function: ir.Function) -> dict[Place, dict[ir.Var, bool]]:
    """The array parameters whose first index is read from another, and whether they are changed there.

    Accesses in loops do not count: what a thread asks for there would come too late or too often.
    """
    stmts = list(ir.once(function.body))
    places: dict[ir.Atom, Place] = {}
    for stmt in stmts:
        if isinstance(stmt, ir.Load) and stmt.array in function.params and stmt.out.type in (int32, int64):
            own, *others = stmt.indices
            fixed = tuple(str(other.value) for other in others if isinstance(other, ir.Const))
            if (own,) == function.threads and len(fixed) == len(others):
                places[stmt.out] = stmt.array, fixed, stmt.component or 0
    by_place: dict[Place, dict[ir.Var, bool]] = {}
    for stmt in stmts:
        if isinstance(stmt, ir.ArrayAccess) and stmt.array in function.params:
            place = places.get(stmt.indices[0])
            if place is not None:
                arrays = by_place.setdefault(place, {})
                arrays[stmt.array] = arrays.get(stmt.array, False) or not isinstance(stmt, ir.Load)
    return by_place if sum(map(len, by_place.values())) <= MOST else {}


def prefetches(
    function: ir.Function, names: Names, wide: Mapping[ir.Var, Wide], thread: str, total: str, width: int = 1
) -> Prefetches:
    """The lines for a function whose parameters have names; `wide` are those with accumulators.

    `thread` is the thread that comes next, or the first of `width` of them, of a `total`.
    """
    by_place, last_first = gathers(function), function.descending
    if not by_place:
        return Prefetches()
    ahead = f"({thread} {'-' if last_first else '+'} {AHEAD}{' + lane' if width > 1 else ''})"
    declared: list[str] = []
    tests: list[str] = []
    each: list[str] = []
    lanes: list[str] = []
    bases = {one: (names(one), f"{names(one)}_s0") for arrays in by_place.values() for one in arrays}
    for one in [one for one in bases if one in wide]:
        bases[one] = base, step = names.fresh(f"{names(one)}_sums"), names.fresh(f"{names(one)}_step")
        declared += _accumulators(names(one), base, step, wide[one])
    for (array, fixed, component), arrays in by_place.items():
        name, scalar, at = names(array), scalar_of(elem_of(array)), names.fresh("ahead")
        tests.append(f"{total} <= (i64){name}_n0")
        tests += [f"{index} < {name}_n{k}" for k, index in enumerate(fixed, 1)]
        steps = [f"{index} * {name}_s{k}" for k, index in enumerate((ahead, *fixed))]
        offset = [str(component * spelling.size(scalar))] if component else []
        where = f"({' + '.join([name, *steps, *offset])})"
        index = f"const i64 {at} = {spelling.load(scalar, where)};"
        asked = {one: f"__builtin_prefetch({bases[one][0]} + {at} * {bases[one][1]});" for one in arrays}
        read = [text for one, text in asked.items() if width == 1 or not arrays[one]]
        changed = [text for one, text in asked.items() if width > 1 and arrays[one]]
        each += [index, *read] if read else []
        lanes += [index, *changed] if changed else []
    # There is a thread ahead up to the bound: none is, but under a condition.
    bound = names.fresh("soon")
    ends = f"{AHEAD} : {total}" if last_first else f"{total} - {AHEAD + width - 1} : 0"
    bytes = " + ".join(f"(i64){names(one)}_n0 * {step}" for one, (_, step) in bases.items())
    far = f"{bytes} >= {FAR if width == 1 else FAR_OF_LANES}"
    declared.append(f"const i64 {bound} = {' && '.join([*dict.fromkeys(tests), far])} ? {ends};")
    loop = f" for (int lane = 0; lane < {width}; ++lane)" if width > 1 else ""

    def line(texts: Sequence[str], over: str = "") -> tuple[str, ...]:
        head = f"if ({thread} {'>=' if last_first else '<'} {bound}){over}"
        return (f"{head} {{ {' '.join(texts)} }}",) if texts else ()

    return Prefetches(tuple(declared), line(each, loop), line(lanes))


def _accumulators(name: str, base: str, step: str, wide: Wide) -> tuple[str, str]:
    """The lines that say where the accumulators of an array stand, or its elements where it has none."""
    dense, sums = wide.dense, wide.sums
    return (
        f"char* const {base} = {dense} ? (char*)({dense} + place_of({sums}, {name} - {wide.low})) : {name};",
        f"const i64 {step} = {dense} ? place_of({sums}, {name}_s0) * 8 : {name}_s0;",
    )
