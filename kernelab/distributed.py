"""Maps, gradients, Jacobians and sweeps over the workers of a Dask cluster; ``pip install kernelab[dask]``.

The current `dask.distributed.Client` is used, else one of a local cluster is started, and told of.  Kernels
travel as their text, so a worker needs kernelab and nothing of the notebook; each machine builds a kernel
once.  An error on a worker arrives with the line and caret of the cell.  A worker that dies costs its share
of the time: what it had computed is computed again.  Where the call is interrupted its tasks are cancelled.
"""

import itertools
import math
import platform
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from inspect import getclosurevars, unwrap
from typing import Any
from uuid import uuid4

import numpy as np

from kernelab import func
from kernelab.autodiff.transforms.trees import name_of
from kernelab.backend.common.compiler import find_compiler
from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError, KernelWarning, MissingPackageError
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.travel import version

try:
    needed = ("cloudpickle", "dask", "dask.array", "dask.distributed")
    cloudpickle, dask, arrays, cluster = (import_module(name) for name in needed)
except ImportError as problem:
    message = f"kernelab.distributed needs Dask, and {problem.name} is missing"
    hint = 'run `pip install "kernelab[dask]"`'
    raise MissingPackageError(Diagnostic(message, code="package", hint=hint)) from None

Function = Callable[..., Any]

__all__ = ["client", "jacobian", "map", "sum_gradients", "sweep", "vmap"]


def client() -> Any:
    """The current client of Dask, else one of a new local cluster; a KernelWarning tells of that.

    Raises KernelValueError where a worker has another version of kernelab or Python, and warns of workers
    without a compiler, whose kernels run on NumPy.
    """
    try:
        found = cluster.default_client()
    except ValueError:
        found = cluster.Client(processes=True, threads_per_worker=1, dashboard_address=":0")
        count = len(found.scheduler_info()["workers"])
        told = f"no client of Dask: started {count} local workers, dashboard at {found.dashboard_link}"
        warnings.warn(told, KernelWarning, stacklevel=3)
    here, alone = _facts()[0], []
    for place, (versions, compiles) in found.run(_facts).items():
        if versions != here:
            message = f"the worker {place} has {versions}, and this process {here}"
            hint = "install the same versions on both sides"
            raise KernelValueError(Diagnostic(message, code="version", hint=hint))
        alone += [] if compiles else [place]
    if alone:
        told = f"no C++ compiler on {', '.join(alone)}: kernels run on NumPy there, right but slow"
        warnings.warn(told, KernelWarning, stacklevel=3)
    return found


def _facts() -> tuple[str, bool]:
    versions = f"kernelab {version()} and Python {platform.python_version()}"
    return versions, find_compiler() is not None


def map(f: Function, xs: Iterable[Any]) -> list[Any]:
    """The results of `f` for each of `xs`, in order, a task each.

    `f` may be a transform: ``map(kl.func.value_and_grad(loss), xs)``.  Raises what `f` raised first, and
    KernelTypeError for a function that cannot travel, with what keeps it here.
    """
    require_travel(f)
    return _gathered(f, [*xs])


def _gathered(f: Function, *columns: Sequence[Any]) -> list[Any]:
    workers = client()
    futures = workers.map(f, *columns, key=_key(f), pure=False)
    try:
        found: list[Any] = workers.gather(futures)
    except BaseException:
        workers.cancel(futures)
        raise
    return found


def _key(f: Function) -> str:
    return f"{name_of(f)}-{uuid4().hex[:8]}"


def require_travel(f: Function) -> None:
    """Raise KernelTypeError for a function that no other process can get, with the name of what it holds."""
    reason = _obstacle(f)
    if reason is None:
        return
    plain = unwrap(f)
    held = getclosurevars(plain) if hasattr(plain, "__code__") else None
    used = {**held.globals, **held.nonlocals}.items() if held else ()
    name, why = next(((n, why) for n, v in used if (why := _obstacle(v)) is not None), ("", reason))
    message = f"{name_of(f)} cannot travel to another process{f', for it uses `{name}`' * bool(name)}: {why}"
    raise KernelTypeError(Diagnostic(message, code="pickle", hint="pass what it needs as an argument"))


def _obstacle(value: Any) -> Exception | None:
    """Why a value cannot be pickled; None where it can."""
    try:
        cloudpickle.dumps(value)
        return None
    except Exception as problem:  # noqa: BLE001 (whatever an object raises that is not to be pickled)
        return problem


# ------------------------------------------------------------------------------------------------- gradients


def sum_gradients(loss: Function, params: Any, chunks: Iterable[Any]) -> tuple[float, Any]:
    """The sum of ``loss(params, chunk)`` over all chunks, and its gradient by `params`.

    `params` is an array, or a tuple of arrays for ``loss(a, b, chunk)``; the gradient is like it.  Each chunk
    goes forward and back on a worker.  Results are added in pairs, in an order that the chunks alone decide:
    with any number of workers of one kind of processor the bits are the same.
    """
    several = isinstance(params, tuple | list)
    given = tuple(params) if several else (params,)
    parts = [*chunks]
    if not parts:
        raise KernelValueError(Diagnostic("there are no chunks to sum over", code="chunks"))
    require_travel(loss)
    workers = client()
    held, step = [*workers.scatter(given, broadcast=True)], _Step(loss, len(given))
    level = workers.map(step, [held] * len(parts), parts, key=_key(loss), pure=False)
    try:
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            level = [workers.submit(_added, a, b, pure=False) for a, b in pairs] + level[len(level) & ~1 :]
        value, gradients = level[0].result()
    except BaseException:
        workers.cancel(level)
        raise
    return value, tuple(gradients) if several else gradients[0]


class _Step:
    """The value and the gradients of a loss of parameters and a chunk."""

    def __init__(self, loss: Function, count: int) -> None:
        self.loss, self.count = loss, count

    def __call__(self, params: Sequence[Any], chunk: Any) -> tuple[float, list[Any]]:
        value, gradients = func.value_and_grad(self.loss, tuple(range(self.count)))(*params, chunk)
        return _number(value), [*gradients]


def _added(one: tuple[Any, list[Any]], other: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
    return one[0] + other[0], [a + b for a, b in zip(one[1], other[1], strict=True)]


# ------------------------------------------------------------------------------------------ arrays of blocks


def vmap(f: Function, x: Any) -> Any:
    """`f` for every slice of a `dask.array` along its first axis, by blocks, as a lazy `dask.array`.

    A block is one launch of `kl.func.vmap`; its other axes are made whole.  `f` runs once on ones here, which
    tells the shape and dtype of its result.
    """
    require_travel(f)
    client()
    lanes = func.vmap(f)

    def block(values: Any) -> Any:
        return lanes(array(values)).numpy()

    one = block(np.ones((1, *x.shape[1:]), x.dtype))
    whole = x.rechunk(dict.fromkeys(range(1, x.ndim), -1))
    return whole.map_blocks(
        block,
        dtype=one.dtype,
        chunks=(whole.chunks[0], *((n,) for n in one.shape[1:])),
        drop_axis=[*range(1, x.ndim)],
        new_axis=[*range(1, one.ndim)],
        meta=np.empty((0,) * one.ndim, one.dtype),
    )


def jacobian(f: Function, x: array, blocks: int = 0, *, rows: bool = False, sparse: bool = False) -> Any:
    """The Jacobian of `f` at `x`, by blocks of columns, or with `rows` by blocks of rows, a task each.

    `x` and what `f` returns are arrays of numbers of one dimension.  `blocks` is by default the number of
    threads of all workers.  A lazy `dask.array` of outputs by inputs, or with `sparse` a sparse matrix of
    SciPy in which each block kept what is not zero; every column, or row, is computed.
    """
    require_travel(f)
    threads = sum(client().nthreads().values())
    there = f(x)
    count, size = (len(there), len(x)) if rows else (len(x), len(there))
    ends = np.linspace(0, count, max(1, min(count, blocks or threads)) + 1).astype(int).tolist()
    spans = [*itertools.pairwise(ends)]
    block = _Block(f, rows, sparse)
    if sparse:
        from scipy.sparse import hstack, vstack

        return (vstack if rows else hstack)(_gathered(block, [x] * len(spans), spans), format="csr")
    task, dtype = dask.delayed(block, pure=False), there.numpy().dtype
    shapes = [(b - a, size) if rows else (size, b - a) for a, b in spans]
    whole = [*zip(spans, shapes, strict=True)]
    made = [arrays.from_delayed(task(x, span), shape, dtype) for span, shape in whole]
    return arrays.concatenate(made, axis=0 if rows else 1)


class _Block:
    """Some columns, or rows, of a Jacobian as a matrix."""

    def __init__(self, f: Function, rows: bool, sparse: bool) -> None:
        self.f, self.rows, self.sparse = f, rows, sparse
        self.__name__ = f"jacobian of {name_of(f)}"

    def __call__(self, x: array, span: tuple[int, int]) -> Any:
        if self.rows:
            value, pull = func.vjp(self.f, x)
            found = func.vmap(lambda bar: pull(bar)[0])(_seeds(value, span)).numpy()
        else:
            pushed = func.vmap(lambda dot: func.jvp(self.f, (x,), (dot,))[1])(_seeds(x, span))
            found = pushed.numpy().T
        if not self.sparse:
            return np.ascontiguousarray(found)
        from scipy.sparse import csr_array

        return csr_array(found)


def _seeds(like: array, span: tuple[int, int]) -> array:
    start, stop = span
    return array(np.eye(stop - start, len(like), start, like.numpy().dtype))


# ---------------------------------------------------------------------------------------------------- sweeps


def sweep(f: Function, grid: Mapping[str, Sequence[float]], *, gradients: bool = True) -> Any:
    """The values of `f` at every point of a grid, and its derivatives, as a frame of pandas.

    `f` takes a number for each name of `grid`, in that order, and returns one number.  The frame has a row a
    point, with the columns of the grid, then ``value``, then ``d_name`` for each name, last names fastest.
    """
    import pandas

    require_travel(f)
    points = [*itertools.product(*([float(v) for v in values] for values in grid.values()))]
    workers = client()
    size = max(1, math.ceil(len(points) / (4 * sum(workers.nthreads().values()))))
    parts = [points[n : n + size] for n in range(0, len(points), size)]
    found = [row for rows in _gathered(_Points(f, gradients), parts) for row in rows]
    columns = [*grid, "value", *(f"d_{name}" for name in grid if gradients)]
    return pandas.DataFrame([(*at, *row) for at, row in zip(points, found, strict=True)], columns=columns)


class _Points:
    """Values and derivatives of a function of numbers at some points."""

    def __init__(self, f: Function, gradients: bool) -> None:
        self.f, self.gradients = f, gradients
        self.__name__ = f"sweep of {name_of(f)}"

    def __call__(self, points: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
        if not self.gradients:
            return [(_number(self.f(*at)),) for at in points]
        both = func.value_and_grad(self.f, tuple(range(len(points[0]))))
        rows = (both(*at) for at in points)
        return [(_number(value), *(_number(d) for d in slopes)) for value, slopes in rows]


def _number(value: Any) -> float:
    return float(value.item() if isinstance(value, array) else value)
