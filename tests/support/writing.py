"""Kernels written by hand, statement by statement, for tests of what runs them."""

from typing import Any

from kernelab.lang.build import Builder
from kernelab.lang.ir import Atom, Function, Var
from kernelab.lang.types import Array, float32, int32
from kernelab.lang.verify import verify


class Writing:
    """A kernel in the making: its thread index ``i``, a builder, and the parameters as they are asked for."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = tuple(Var(int32, "ijkl"[n]) for n in range(threads))
        self.i = self.threads[0]
        self.builder = Builder()
        self.params: list[Var] = []

    def param(self, name: str, type: Any) -> Var:
        self.params.append(Var(type, name))
        return self.params[-1]

    def array(self, name: str, elem: Any = float32, ndim: int = 1) -> Var:
        return self.param(name, Array(elem, ndim))

    def apply(self, name: str, *operands: Atom) -> Atom:
        return self.builder.apply(name, *operands)

    def done(self, linear: Var | None = None) -> Function:
        """The verified kernel."""
        body = self.builder.close()
        return verify(Function("kernel", tuple(self.params), body, self.threads, linear=linear))
