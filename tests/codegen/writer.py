"""Writes kernels as IR by hand, for tests of what comes after the frontend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelab.builtins  # noqa: F401  fills the table
from kernelab.errors import Source, Span
from kernelab.lang.build import Builder, integer
from kernelab.lang.ir import Atom, Block, For, Function, Var, While
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Mat, Type, Vec, float32, int32
from kernelab.lang.verify import verify

Arguments = dict[str, Any]

CELL = Source("def kernel(x):\n    i = tid()\n    x[i] = 1.0\n", "Cell In[3]")
LINE = Span(CELL, 3, 4, 3, 8)
"""The span of every statement of these kernels: ``x[i]`` of the third line."""

VEC3, MAT22 = Vec(float32, 3), Mat(float32, 2, 2)


@dataclass(frozen=True)
class Case:
    """A kernel and a launch of it; `exact` says that all targets agree to the last bit."""

    function: Function
    grid: tuple[int, ...]
    draw: Callable[[np.random.Generator], Arguments]
    exact: bool = True


class Writer(Builder):
    """A builder of one kernel: parameters and thread indices are made as they are named."""

    def __init__(self, name: str, **params: Type) -> None:
        super().__init__(LINE)
        self.name = name
        self.params = {hint: Var(type, hint, LINE) for hint, type in params.items()}
        self.threads: tuple[Var, ...] = ()

    def __getitem__(self, name: str) -> Var:
        return self.params[name]

    def tid(self, *names: str) -> tuple[Var, ...]:
        self.threads = tuple(Var(int32, name, LINE) for name in names)
        return self.threads

    def shape(self, array: str, axis: int = 0) -> Atom:
        return self.let(SHAPE, (self[array], integer(axis)), int32, "n")

    def loop(
        self,
        count: Atom,
        inits: Sequence[Atom],
        body: Callable[..., Sequence[Atom]],
        stop: int | None = None,
        reverse: bool = False,
        hints: Sequence[str] = (),
    ) -> tuple[Var, ...]:
        """`body(k, *carries)` returns what the iteration yields."""
        k = Var(int32, "k", LINE)
        carries, outs, block = self._region(inits, lambda *cs: body(k, *cs), hints)
        self.emit(For(outs, k, count, carries, tuple(inits), block, LINE, reverse, stop))
        return outs

    def repeat(
        self, inits: Sequence[Atom], body: Callable[..., Sequence[Atom]], stop: int, hints: Sequence[str] = ()
    ) -> tuple[Var, ...]:
        """A `While`; `body(*carries)` returns what the iteration yields."""
        carries, outs, block = self._region(inits, body, hints)
        self.emit(While(outs, carries, tuple(inits), stop, block, LINE))
        return outs

    def _region(
        self, inits: Sequence[Atom], body: Callable[..., Sequence[Atom]], hints: Sequence[str]
    ) -> tuple[tuple[Var, ...], tuple[Var, ...], Block]:
        names = [*hints, *["c"] * (len(inits) - len(hints))]
        carries = tuple(Var(a.type, n, LINE) for a, n in zip(inits, names, strict=True))
        outs = tuple(Var(a.type, n, LINE) for a, n in zip(inits, names, strict=True))
        with self.block() as inner:
            yields = tuple(body(*carries))
        return carries, outs, inner.close(*yields)

    def function(self) -> Function:
        return verify(Function(self.name, tuple(self.params.values()), self.close(), self.threads, LINE))


def reals(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return rng.uniform(-2.0, 2.0, shape).astype(dtype)
