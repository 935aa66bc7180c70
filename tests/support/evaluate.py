"""The meaning of the IR, said as plainly as possible: one thread after another, one value at a time.

Slow, sequential and independent of the interpreter, whose threads run together: the two check each other.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal, assert_never

import numpy as np

from kernelab.lang import ir
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, scalar_of, shape_of


class Stopped(Exception):
    """An assertion of the program did not hold."""


def evaluate(
    function: ir.Function,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    overflow: Literal["ignore", "raise"] = "ignore",
) -> dict[str, list[Any]]:
    """Run a function over a grid, changing the NumPy arrays among the arguments, by parameter name.

    Arrays of vectors have their components in trailing axes.  Parameters without an argument are residuals:
    lists that grow.  Returns those, and under ``starts`` where each thread begins in them.
    """
    residuals = {p.hint: [] for p in function.params if p.hint not in arguments}
    starts: list[dict[str, int]] = []
    threads = list(enumerate(product(*map(range, grid))))
    for linear, place in reversed(threads) if function.descending else threads:
        starts.append({name: len(values) for name, values in residuals.items()})
        indices = [linear] if len(function.threads) == 1 else [*place, 0, 0, 0]
        env = dict(zip(function.threads, map(np.int32, indices), strict=False))
        if function.linear is not None:
            env[function.linear] = np.int64(linear)
        for param in function.params:
            env[param] = arguments.get(param.hint, residuals.get(param.hint))
        with np.errstate(all="ignore", over=overflow):
            _Thread(env).block(function.body)
    return {**residuals, "starts": starts}


def _changed(kind: ir.AtomicKind, old: Any, value: Any, compare: Any) -> Any:
    match kind:
        case "add":
            return old + value
        case "min":
            return np.where(value < old, value, old)[()]
        case "max":
            return np.where(value > old, value, old)[()]
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "exch":
            return value
        case "cas":
            return value if old == compare else old
        case _:
            assert_never(kind)


class _Thread:
    def __init__(self, env: dict[ir.Var, Any]) -> None:
        self.env = env
        self.stacks: dict[ir.Stack, list[tuple[Any, ...]]] = {}

    def value(self, atom: ir.Atom) -> Any:
        if isinstance(atom, ir.Const):
            return np.full(shape_of(atom.type), atom.value, scalar_of(atom.type).dtype)[()]
        return self.env[atom]

    def values(self, atoms: Sequence[ir.Atom]) -> list[Any]:
        return [self.value(atom) for atom in atoms]

    def bind(self, vars: Sequence[ir.Var], values: Sequence[Any]) -> None:
        self.env.update(zip(vars, values, strict=True))

    def block(self, block: ir.Block) -> list[Any]:
        for stmt in block.stmts:
            self.stmt(stmt)
        return self.values(block.yields)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out, op, args):
                if op is SHAPE:
                    array, axis = self.values(args)
                    self.env[out] = np.int32(array.shape[axis])
                else:
                    result = np.asarray(op.numpy(*self.values(args)))
                    self.env[out] = result.astype(scalar_of(out.type).dtype)[()]
            case ir.Alloc(out, shape):
                elem = out.type.elem
                self.env[out] = np.zeros((*shape, *shape_of(elem)), scalar_of(elem).dtype)
            case ir.Load(out, array, indices):
                element = np.asarray(self.env[array])[self.place(array, indices)]
                self.env[out] = np.asarray(element, scalar_of(out.type).dtype).copy()[()]
            case ir.Store(array, indices, value):
                self.env[array][self.place(array, indices)] = self.value(value)
            case ir.Atomic(out, kind, array, indices, value):
                place = self.place(array, indices)
                old = self.env[out] = self.env[array][place].copy()
                compare = None if stmt.compare is None else self.value(stmt.compare)
                self.env[array][place] = _changed(kind, old, self.value(value), compare)
            case ir.If(outs, cond, then, orelse):
                self.bind(outs, self.block(then if self.value(cond) else orelse))
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Assert(cond, kind, message):
                if kind != "negative" and not self.value(cond):
                    raise Stopped(f"{kind}: {message}")
            case ir.Print():
                pass
            case ir.Save(stack, atoms):
                self.stacks.setdefault(stack, []).append(tuple(self.values(atoms)))
            case ir.Restore(stack, outs):
                self.bind(outs, self.stacks[stack].pop())
            case ir.Append(array, value):
                self.env[array].append(self.value(value))
            case ir.Custom(outs, _, _, body):
                self.bind(outs, self.block(body))
            case ir.Call():
                raise AssertionError("calls are inlined before a program runs")
            case _:
                assert_never(stmt)

    def place(self, array: ir.Var, indices: Sequence[ir.Atom]) -> tuple[int, ...]:
        assert isinstance(array.type, Array)
        return tuple(int(i) for i in self.values(indices))

    def loop(self, stmt: ir.Loop) -> None:
        carried = self.values(stmt.inits)
        count = int(self.value(stmt.count)) if isinstance(stmt, ir.For) else None
        k = 0
        while count is None or k < count:
            if isinstance(stmt, ir.For):
                assert count is not None
                self.env[stmt.index] = np.int32(count - 1 - k if stmt.reverse else k)
            self.bind(stmt.carries, carried)
            carried = self.block(stmt.body)
            k += 1
            if stmt.stop is not None and carried[stmt.stop]:
                break
        self.bind(stmt.outs, carried)
