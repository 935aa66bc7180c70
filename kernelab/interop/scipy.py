"""Functions of arrays as SciPy's solvers take them: values and derivatives at NumPy vectors, in float64."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import fresh
from kernelab.autodiff.transforms.transforms import Exact, Layout
from kernelab.autodiff.transforms.trees import leaves, number_count, require_callable, with_memory
from kernelab.autograd import jacobian
from kernelab.errors import KernelTypeError, name_of
from kernelab.func import hessian, hvp, jacrev
from kernelab.interop import recorded, results_of
from kernelab.lang.rounding import is_float_dtype
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.host.create import clone

Vector = np.ndarray[Any, np.dtype[np.float64]]


class Problem:
    """What SciPy asks of a function: `fun`, `jac`, `hess`, `hessp`, all at NumPy vectors; see `problem`."""

    def __init__(self, f: Callable[..., Any], x0: Any, *, sparse: bool = False, time: bool = False) -> None:
        require_callable(f)
        examples = x0 if isinstance(x0, tuple | list) and any(isinstance(x, array) for x in x0) else (x0,)
        is_ours = all(isinstance(x, array) for x in examples)
        values = [x.numpy().reshape(-1) for x in examples] if is_ours else [np.asarray(x0).reshape(-1)]
        self.like: Sequence[array] = examples if is_ours else (array(shape=values[0].shape, dtype=float),)
        if any(one.dtype.kind not in "biu" and not is_float_dtype(one.dtype) for one in values):
            message = f"x0 is {described(x0)}, and has to be real numbers"
            raise KernelTypeError.of(message, "interop", "pass np.array([...]), or arrays")
        self.x0: Vector = np.concatenate(values).astype(np.float64)
        self.f, self.sparse, self.time = f, sparse, time
        self._layout = Layout(self.like)
        self._is_loss = False
        self._last: _Point | None = None
        if sparse and len(self.like) > 1:
            message = "a sparse jac is that of a function of one array"
            raise KernelTypeError.of(message, "interop", "let f take one array, and slice it")

    def fun(self, *arguments: Any) -> Any:
        """The value: a float of a function that returns one number, else a vector."""
        before, x, after = self._taken(arguments)
        self._last = None
        if self._is_loss and _is_solving():  # it asks for the gradient next, most often
            self._last = _Point(self, before, x, after)
            self._last.exact.leave()
            return self._last.value
        (value,) = self._of_one_array(
            self._run(lambda *x: leaves(with_memory(self.f(*before, *x, *after)), self.f), x), 1
        )
        return value.item() if value.size == 1 else value.reshape(-1)

    def jac(self, *arguments: Any) -> Any:
        """The gradient of one number as a vector, else the Jacobian: outputs down, inputs across."""
        before, x, after = self._taken(arguments)
        if self.sparse:
            return self._sparse(before, x, after)
        if self._is_loss:
            last, self._last = self._last, None
            is_kept = last is not None and _is_solving() and last.is_at(arguments)
            return (last if last and is_kept else _Point(self, before, x, after)).gradient()
        where = tuple(range(len(before), len(before) + len(self.like)))
        rows = self._run(lambda *x: leaves(jacrev(self.f, where)(*before, *x, *after), self.f), x)
        rows = self._of_one_array(rows, len(self.like))
        sizes = [number_count(like) for like in self.like]
        parts = [row.reshape(row.size // max(1, size), -1) for row, size in zip(rows, sizes, strict=True)]
        whole = np.concatenate(parts, axis=1)
        self._is_loss = len(whole) == 1
        return whole[0] if len(whole) == 1 else whole

    def hess(self, x: Any, *args: Any) -> Vector:
        """The Hessian of one number."""
        where = tuple(range(len(self.like)))
        sizes = [number_count(like) for like in self.like]
        blocks = self._run(lambda *x: [b for row in hessian(self.f, where)(*x, *args) for b in row], x)
        if blocks[0].size != sizes[0] * sizes[0]:
            message = f"hess is that of one number, and {name_of(self.f)} returns several"
            raise KernelTypeError.of(message, "interop", "write problem(lambda x: f(x)[k], x0)")
        shaped = [block.reshape(sizes[n // len(sizes)], -1) for n, block in enumerate(blocks)]
        return np.block([shaped[n : n + len(sizes)] for n in range(0, len(shaped), len(sizes))])

    def hessp(self, x: Any, p: Any, *args: Any) -> Vector:
        """The Hessian of one number times the vector `p`."""
        count = len(self.like)

        def product(*values: array) -> list[array]:
            _, moved = hvp(lambda *x: self.f(*x, *args), values[:count], values[count:])
            return list(moved) if isinstance(moved, tuple) else [moved]

        return np.concatenate([part.reshape(-1) for part in self._run(product, x, p)])

    @property
    def sparsity(self) -> Any:
        """Where the Jacobian at `x0` has entries, as a sparse matrix of SciPy, for `jac_sparsity`."""
        return abs(self._sparse((0.0,) if self.time else (), self.x0, ())) > 0

    def _taken(self, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
        before = 1 if self.time else 0
        return tuple(float(t) for t in arguments[:before]), arguments[before], arguments[before + 1 :]

    def _run(self, compute: Callable[..., Sequence[array]], *vectors: Any) -> list[Vector]:
        return self.exact(*vectors).run(lambda arrays: compute(*arrays))

    def exact(self, *vectors: Any) -> Exact:
        """The arrays that `f` takes, with the numbers of vectors."""
        return Exact(self.f, [np.ascontiguousarray(x, np.float64).reshape(-1) for x in vectors], self._layout)

    def _of_one_array(self, found: list[Vector], count: int) -> list[Vector]:
        """What was computed of `f`, which has to return one array."""
        if len(found) != count:
            message = f"{name_of(self.f)} returns {len(found) // count} arrays, and SciPy takes one vector"
            hint = "let it return one array, into which kernels or copies write all"
            raise KernelTypeError.of(message, "interop", hint)
        return found

    def _sparse(self, before: tuple[Any, ...], x: Any, after: tuple[Any, ...]) -> Any:
        like = clone(self.like[0], requires_grad=True)
        like.assign(np.asarray(x).reshape(like.numpy().shape))
        jacobians = jacobian(lambda x: self.f(*before, x, *after), inputs=[like], sparse=True)
        return next(iter(jacobians.values())).tocsr().astype(np.float64)


class _Point:
    """A function with one number as its result that has run at a point, and its backward pass there."""

    def __init__(self, of: Problem, before: tuple[Any, ...], x: Any, after: tuple[Any, ...]) -> None:
        self.at = (*before, _bytes_of(x)) if not after else None
        self.exact = of.exact(x)
        (value,) = self.exact.run(
            lambda x: self._forward(lambda *x: results_of(of.f(*before, *x, *after)), x), is_last=False
        )
        self.value = value.item()

    def _forward(self, f: Callable[..., Any], x: Sequence[array]) -> list[array]:
        outputs, self._pull = recorded(f, x, range(len(x)), own=True)
        self._seed = fresh(outputs[0].shape, outputs[0].dtype, outputs[0])
        self._seed.host()[...] = 1
        return outputs

    def is_at(self, arguments: tuple[Any, ...]) -> bool:
        """Whether this is the point of some arguments."""
        return self.at == (*arguments[:-1], _bytes_of(arguments[-1]))

    def gradient(self) -> Vector:
        parts = self.exact.run(lambda _: self._pull([self._seed], own=True), is_last=False)
        del self._pull  # and what it alone holds of the forward pass
        self.exact.leave()
        return np.concatenate([part.reshape(-1) for part in parts])


def _is_solving() -> bool:
    """Whether a solver of SciPy has called: nothing but the vector changes between its calls."""
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("scipy.")


def _bytes_of(x: Any) -> bytes:
    return np.asarray(x, np.float64).tobytes()


def problem(f: Callable[..., Any], x0: Any, *, sparse: bool = False, time: bool = False) -> Problem:
    """`f` for SciPy: `fun`, `jac`, `hess`, `hessp` and `x0`, at vectors of float64.

    `f` takes and returns an array.  `x0` is a vector of NumPy, for which `f` gets an array of float32, or
    arrays of kernelab like those that `f` takes, whose numbers stand in the vector one after another.
    Programs over float32 run in their float64 builds.  With `sparse`, `jac` is a sparse matrix, computed in
    the dtype of what `f` takes.  With `time`, `f`, `fun` and `jac` take a number before the vector, as
    `solve_ivp` does.  Raises what the transforms of `kl.func` raise.

        p = problem(rosenbrock, x0)
        scipy.optimize.minimize(p.fun, p.x0, jac=p.jac, hessp=p.hessp, method="Newton-CG")
        scipy.optimize.least_squares(r.fun, r.x0, jac=r.jac)
        scipy.integrate.solve_ivp(q.fun, (0.0, 1.0), q.x0, jac=q.jac, method="BDF")
    """
    return Problem(f, x0, sparse=sparse, time=time)


__all__ = ["Problem", "problem"]
