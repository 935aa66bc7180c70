"""Sites: what reverse mode cannot have again once a function has run, and the residuals that keep it.

    v = x[i]; x[i] = v * v          the load: afterwards x holds the square
    k = atomic_add(n, 0, 1)         the atomic, if k is used: no array holds the old value any more

They are loads from arrays that the function changes, atomics whose result is used, `atomic_min` and
`atomic_max` of floats, and each value that the `Restore`s of a stack give back.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from kernelab.errors import Span
from kernelab.lang.build import Builder, integer, type_of
from kernelab.lang.ir import Atom, Atomic, AtomicKind, Function, Load, Restore, Stack, Stmt, Var, reads, walk
from kernelab.lang.types import Array, Mat, Scalar, Value, Vec, int64, is_differentiable, scalar_of
from kernelab.passes.common.effects import Groups, aliases, block_effects


@dataclass(frozen=True, slots=True)
class Popped:
    """A value that the `Restore`s of a stack give back, by its position among them."""

    stack: Stack
    position: int
    out: Var = field(compare=False)
    span: Span = field(compare=False)


Site = Load | Atomic | Popped


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """What is kept of one site: the array that grows, and where each thread begins in it.

    `memory` stands for the stack that floats were restored from, an array of which each thread has the part
    that it has in the residual.
    """

    array: Var
    starts: Var
    type: Value
    memory: Var | None = None


def sites(function: Function, groups: Groups = (), intact: Collection[str] = ()) -> tuple[Site, ...]:
    """What cannot be had again once the function has run: the values of loads, atomics and stacks.

    `intact` names arrays that still hold what was loaded (`passes.access.no_clobber`).
    """
    shared = aliases(function, groups)
    changed = block_effects(function.body).changed
    used = frozenset(reads(function.body))
    found: list[Site] = []
    for stmt in walk(function.body):
        match stmt:
            case Load(_, array) if stmt.held is None and shared[array] & changed:
                if array.hint not in intact:
                    found.append(stmt)
            case Atomic(out, kind) if stmt.held is None and (out in used or _is_extremum(kind, out)):
                found.append(stmt)
            case Restore():
                found += [site for site, _ in sources(stmt) if site not in found]
            case _:
                pass
    return tuple(found)


def sources(stmt: Stmt) -> list[tuple[Site, Var]]:
    """The sites that a statement could be, and the Vars that have their values."""
    match stmt:
        case Load(out) | Atomic(out):
            return [(stmt, out)]
        case Restore(stack, outs, span):
            return [(Popped(stack, i, out, span), out) for i, out in enumerate(outs)]
        case _:
            return []


def _is_extremum(kind: AtomicKind, out: Var) -> bool:
    """Whether the adjoint must know if the element changed: then this thread's value may have won."""
    return kind in ("min", "max") and is_differentiable(out.type)


def residual_of(site: Site, number: int) -> Residual:
    """The residual that keeps a site, named after its number; one of a stack of floats has a memory too."""
    type = type_of(site.out)
    array = Var(Array(scalar_of(type), 1), f"residual_{number}", site.span)
    starts = Var(Array(int64, 1), f"starts_{number}", site.span)
    if not isinstance(site, Popped) or not is_differentiable(type):
        return Residual(array, starts, type)
    return Residual(array, starts, type, Var(array.type, f"memory_{number}", site.span))


def components(builder: Builder, atom: Atom) -> Iterable[Atom]:
    """The scalars of a value, by rows."""
    match atom.type:
        case Scalar():
            return [atom]
        case Vec(_, n):
            return [builder.apply("extract", atom, integer(i)) for i in range(n)]
        case Mat(_, n, m):
            places = [(i, j) for i in range(n) for j in range(m)]
            return [builder.apply("extract", atom, integer(i), integer(j)) for i, j in places]
        case _:
            raise AssertionError(f"{atom} is no value")
