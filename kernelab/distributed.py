"""Maps, gradients, Jacobians and sweeps over the workers of a Dask cluster; ``pip install kernelab[dask]``.

The current `dask.distributed.Client` is used, else one of a local cluster is started, and a message says
so.  Kernels travel as their text, so a worker needs kernelab and nothing of the notebook; each machine
builds a kernel once.  The settings of `kernelab.config` hold on workers as they do here, and their warnings
are given here.  An error on a worker arrives with the line and caret of the cell.  A worker that dies costs
its share of the time: what it had computed is computed again.  Where the call is interrupted its tasks are
cancelled.
"""

import itertools
import math
import pickle
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from copy import deepcopy
from dataclasses import asdict, replace
from functools import lru_cache
from importlib import import_module
from inspect import getclosurevars, signature, unwrap
from typing import Any
from uuid import uuid4

import numpy as np

from kernelab import func
from kernelab.autodiff.checks.gradcheck import Fast
from kernelab.autodiff.checks.tape_report import Choice, TapeReport
from kernelab.autodiff.checks.tapecheck import WHOLE, check_tape
from kernelab.autodiff.checks.tolerance import Tolerance
from kernelab.autodiff.jacobians.sparse import Problem, Reading, seeds_of, sparse_jacobian
from kernelab.autodiff.jacobians.subject import of_function
from kernelab.autodiff.tape.run_signature import arrays_in
from kernelab.autodiff.tape.tape import Tape
from kernelab.autodiff.transforms.trees import require_callable
from kernelab.backend.common.compiler import find_compiler
from kernelab.errors import (
    KernelError,
    KernelTypeError,
    KernelValueError,
    KernelWarning,
    MissingPackageError,
    a_thing,
    name_of,
)
from kernelab.host.traced import traced
from kernelab.lang.types import is_differentiable, scalar_of
from kernelab.runtime.array.array import array
from kernelab.runtime.array.layout import is_integer
from kernelab.runtime.array.transfers import look_at
from kernelab.runtime.context.conversion import described, value_type
from kernelab.runtime.context.recorder import RECORDER, caller, made_from_host, warn_at
from kernelab.runtime.host.create import clone
from kernelab.runtime.kernel.pickling import version
from kernelab.settings import Settings, changed_settings, settings

try:
    needed = ("cloudpickle", "dask", "dask.array", "dask.distributed")
    cloudpickle, dask, arrays, cluster = (import_module(name) for name in needed)
except ImportError as problem:
    message = f"kernelab.distributed needs Dask, and {problem.name} is missing"
    raise MissingPackageError.of(message, "package", 'run `pip install "kernelab[dask]"`') from None

Function = Callable[..., Any]

__all__ = ["client", "gradcheck_tape", "jacobian", "map", "sum_gradients", "sweep", "vmap"]


def client(*, need_compiler: bool = False) -> Any:
    """The current client of Dask, else one of a new local cluster; a KernelWarning tells of that.

    Raises KernelValueError where a worker has another version of kernelab or Python.  Kernels run on NumPy
    where a worker has no compiler: a warning says so once, or with `need_compiler` a KernelValueError.
    """
    try:
        dask = cluster.default_client()
    except ValueError:
        dask = cluster.Client(processes=True, threads_per_worker=1, dashboard_address=":0")
        count = len(dask.scheduler_info()["workers"])
        message = f"no client of Dask: started {count} local workers, dashboard at {dask.dashboard_link}"
        warn_at(message, "cluster", "for other workers make a dask.distributed.Client first")
    if dask.asynchronous:
        message = "the current client of Dask is asynchronous, and kernelab.distributed waits for results"
        raise KernelValueError.of(message, "cluster", "make one without asynchronous=True")
    here, alone = _versions(), []
    for place, found in dask.run(_look, on_error="return").items():
        if isinstance(found, Exception):
            message, hint = f"the worker {place} cannot run kernelab: {found}", f"install {here} there"
            raise KernelValueError.of(message, "version", hint)
        versions, compiles = found
        if versions != here:
            message = f"the worker {place} has {versions}, and this process {here}"
            raise KernelValueError.of(message, "version", "install the same versions on both sides")
        alone += [] if compiles else [place]
    _warn_of_missing_compiler(alone, need_compiler)
    return dask


_PROCESS = uuid4().hex
_TOLD: set[str] = set()
"""The workers without a compiler that the user has been told of."""


def _warn_of_missing_compiler(places: Sequence[str], needed: bool) -> None:
    message, hint = f"no C++ compiler on {', '.join(places)}", "install g++ there, or set KERNELAB_CXX"
    if places and needed:
        raise KernelValueError.of(message, "no-compiler", hint)
    if not _TOLD.issuperset(places):
        _TOLD.update(places)
        warn_at(f"{message}: kernels run on NumPy there, right but slow", "no-compiler", hint)


def _versions() -> str:
    return f"kernelab {version()} and Python {platform.python_version()}"


def _look() -> tuple[str, bool]:
    """What a worker has."""
    return _versions(), find_compiler() is not None


_show_here = warnings.showwarning


def _warn_clients(message: Any, category: type[Warning], *place: Any, **named: Any) -> None:
    if issubclass(category, KernelWarning):
        told = {"message": pickle.dumps(str(message)), "category": pickle.dumps(category)}
        cluster.get_worker().log_event("warn", told)
    else:
        _show_here(message, category, *place, **named)


class _Task:
    """A function and its first arguments, which go to the workers; the dashboard shows it by a name."""

    def __init__(self, name: str, run: Function, *first: Any) -> None:
        self.__name__, self.run, self.first = name, run, first

    def __call__(self, *rest: Any) -> Any:
        return self.run(*self.first, *rest)


def _sent(f: Function) -> _Task:
    """A function that runs under the settings of the process that sent it."""
    return _Task(name_of(f), _run_under, _PROCESS, settings(), f)


def _run_under(client_process: str, sender: Settings, f: Function, *args: Any) -> Any:
    """Call a function on a worker, which may have come later; its warnings of kernels go to the clients."""
    if client_process != _PROCESS:
        warnings.showwarning = _warn_clients
    with changed_settings(**asdict(sender)):
        try:
            return f(*args)
        except KernelError as error:
            dask = caller().span.source.label  # whose line is not the user's
            diagnostics = error.diagnostics
            told = (
                replace(d, span=None) if d.span and d.span.source.label == dask else d for d in diagnostics
            )
            raise type(error)(*told) from None


def _kept(f: Function) -> _Task:
    """A function as it is now, whatever it uses changes here before its tasks run."""
    return _Task(name_of(f), _run_pickled, cloudpickle.dumps(f))


def _run_pickled(pickled: bytes, *args: Any) -> Any:
    return _loaded(pickled)(*args)


@lru_cache(16)
def _loaded(pickled: bytes) -> Any:
    return cloudpickle.loads(pickled)


def map(f: Function, xs: Iterable[Any]) -> list[Any]:
    """The results of `f` for each of `xs`, in order, a task each.

    `f` may be a transform: ``map(kl.func.value_and_grad(loss), xs)``.  Raises what `f` raised first, and
    KernelTypeError for a function that cannot travel, with what keeps it here.
    """
    require_travel(f)
    return _gathered(f, _drawn(f, xs))


def _drawn(f: Function, arguments: Iterable[Any]) -> list[Any]:
    """The arguments in a list; those of a generator as copies: it may fill one array again and again."""
    if not isinstance(arguments, Iterator):
        return [*arguments]
    drawn: list[Any] = []
    for one in arguments:
        try:
            drawn.append(deepcopy(one))
        except TypeError:
            _refuse_arguments(f, [[one]])
            raise
    return drawn


def _gathered(f: Function, *columns: Sequence[Any], shared: Sequence[Any] = ()) -> list[Any]:
    """The results of `f` of what all tasks read, then of an element of each column."""
    with _call(f) as (workers, key):
        try:
            held = ([_held(workers, key, value)] * len(columns[0]) for value in shared)
            futures = workers.map(_sent(f), *held, *columns, key=key, pure=False)
            # An interrupt of `gather` lets Dask print an error for each task.
            next((one for one in cluster.as_completed(futures) if one.status != "finished"), None)
            results: list[Any] = _fetched(lambda: workers.gather(futures), columns)
        except TypeError as problem:
            if "serialize" in str(problem):
                _refuse_arguments(f, columns)
            raise
    return results


def _fetched(fetch: Callable[[], Any], inputs: Sequence[Any] = ()) -> Any:
    """What workers have computed of inputs: values of the host, through which no gradient flows back."""
    origins = tuple(itertools.chain.from_iterable(look_at(one) for one in arrays_in(inputs)))
    context = copy_context()
    context.run(RECORDER.set, None)  # for Dask's own thread, which makes the arrays at no line of the user's
    results = context.run(fetch)
    for elements in arrays_in(results):
        elements.requires_grad = False
        made_from_host(elements, traced(elements.seen(), origins))
    return traced(results, origins)


@contextmanager
def _call(f: Function) -> Iterator[tuple[Any, str]]:
    """The client and a key for tasks, which an error or an interrupt cancels, wherever it comes."""
    workers, key = client(), _key(f)
    try:
        yield workers, key
    except BaseException:
        mine = [one for one in [*workers.futures] if key in str(one)]
        workers.cancel([cluster.Future(one, workers) for one in mine])
        raise


def _refuse_arguments(f: Function, columns: Sequence[Sequence[Any]]) -> None:
    for value in itertools.chain.from_iterable(columns):
        if reason := _obstacle(value):
            message = f"{a_thing(value)} cannot travel to another process as an argument of {name_of(f)}"
            hint = "pass what it is made of, and make it in the function"
            raise KernelTypeError.of(f"{message}: {reason}", "pickle", hint) from None


def _threads() -> int:
    """The threads of all workers, of which none may have come yet."""
    return int(sum(client().nthreads().values())) or 1


def _held(workers: Any, key: str, value: Any) -> Any:
    """A value that many tasks read: the scheduler can make it again, whichever workers die."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        return workers.submit(_same, value, key=f"arguments of {key}-{uuid4().hex}", pure=False)


def _same(value: Any) -> Any:
    return value


def _key(f: Function) -> str:
    return f"{name_of(f)}-{uuid4().hex[:8]}"


def require_travel(f: Function) -> None:
    """Raise KernelTypeError for a function that no other process can get, with the name of what it holds."""
    require_callable(f)
    reason = _obstacle(f)
    if reason is None:
        return
    plain = unwrap(f)
    variables = getclosurevars(plain) if hasattr(plain, "__code__") else None
    used = {**variables.globals, **variables.nonlocals}.items() if variables else ()
    name, why = next(((n, why) for n, v in used if (why := _obstacle(v)) is not None), ("", reason))
    message = f"{name_of(f)} cannot travel to another process{f', for it uses `{name}`' * bool(name)}: {why}"
    raise KernelTypeError.of(message, "pickle", "pass what it needs as an argument")


def _obstacle(value: Any) -> Exception | None:
    """Why a value cannot be pickled; None where it can."""
    try:
        cloudpickle.dumps(value)
        return None
    except Exception as problem:  # noqa: BLE001 (whatever an object raises that is not to be pickled)
        return problem


# ------------------------------------------------------------------------------------------------- gradients


def sum_gradients(loss: Function, params: Any, chunks: Iterable[Any]) -> tuple[float, Any]:
    """The sum of ``loss(params, chunk)`` over all chunks, and its gradient with respect to `params`.

    `params` is an array, or a tuple of arrays for ``loss(a, b, chunk)``; the gradient is like it.  Each chunk
    goes forward and back on a worker.  Results are added in pairs, in an order that the chunks alone decide:
    with any number of workers of one kind of processor the bits are the same.
    """
    several = isinstance(params, tuple | list)
    inputs = tuple(params) if several else (params,)
    parts = _drawn(loss, chunks)
    if not parts:
        raise KernelValueError.of("there are no chunks to sum over", "chunks")
    require_travel(loss)
    step = _sent(_Task(name_of(loss), _step, loss, len(inputs)))
    with _call(loss) as (workers, key):
        level = workers.map(step, [_held(workers, key, inputs)] * len(parts), parts, key=key, pure=False)
        added = itertools.count()
        while len(level) > 1:
            level = [
                workers.submit(_added, *pair, key=f"sums of {key}-{next(added)}", pure=False)
                for pair in zip(level[::2], level[1::2], strict=False)
            ] + level[len(level) & ~1 :]
        value, gradients = _fetched(level[0].result, inputs)
    return value, tuple(gradients) if several else gradients[0]


def _step(loss: Function, count: int, params: Sequence[Any], chunk: Any) -> tuple[float, list[Any]]:
    """The value and the gradients of a loss of parameters and a chunk."""
    value, gradients = func.value_and_grad(loss, tuple(range(count)))(*params, chunk)
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
    if not isinstance(x, arrays.Array):
        hint = "make one: dask.array.from_array(x, chunks=...); kl.func.vmap takes arrays of kernelab"
        raise KernelTypeError.of(f"vmap takes a dask.array, not {a_thing(x)}", "blocks", hint)
    client()
    block = _sent(_kept(_Task(name_of(f), _lanes, func.vmap(f))))
    one = block(np.ones((1, *x.shape[1:]), x.dtype))
    whole = x.rechunk(dict.fromkeys(range(1, x.ndim), -1))
    return whole.map_blocks(
        block,
        name=_key(f),
        dtype=one.dtype,
        chunks=(whole.chunks[0], *((n,) for n in one.shape[1:])),
        drop_axis=[*range(1, x.ndim)],
        new_axis=[*range(1, one.ndim)],
        meta=np.empty((0,) * one.ndim, one.dtype),
    )


def _lanes(mapped: Function, values: Any) -> Any:
    """A mapped function of an array of NumPy, of which a block may have nothing."""
    if not len(values):
        return _lanes(mapped, np.ones((1, *values.shape[1:]), values.dtype))[:0]
    return _one_array(mapped, mapped(array(values))).numpy()


def _one_array(f: Function, returned: Any) -> array:
    if not isinstance(returned, array):
        message = f"{name_of(f)} returned {a_thing(returned)}, and blocks are put together of arrays"
        raise KernelTypeError.of(message, "blocks", "return one array of kernelab")
    return returned


def jacobian(f: Function, x: array, blocks: int = 0, *, rows: bool = False, sparse: bool = False) -> Any:
    """The Jacobian of `f` at `x`, by blocks of columns, or with `rows` by blocks of rows, a task each.

    `x` and what `f` returns are arrays of numbers of one dimension.  `blocks` is by default the number of
    threads of all workers.  A lazy `dask.array` of outputs by inputs; with `sparse` a matrix of SciPy: its
    pattern is found here, columns or rows that share no entry are computed in one run, the runs by blocks.
    Where no pattern can be found, every column, or row, is computed, and what is zero left out.  `x` and what
    `f` uses count as they are now.
    """
    require_travel(f)
    if not isinstance(x, array) or x.ndim != 1 or not is_differentiable(x.dtype):
        shown = x.type if isinstance(x, array) else described(x)
        message = f"jacobian takes an array of floats of one dimension, not {shown}"
        raise KernelTypeError.of(message, "blocks", "make one: kl.array(..., dtype=float)")
    if not is_integer(blocks) or blocks < 0:
        raise KernelValueError.of(f"blocks={blocks!r} is not a number of blocks", "blocks", "pass 1 or more")
    count = blocks or _threads()
    if sparse:
        matrix = sparse_jacobian(_Colored(f, x, count), 0, 0)
        if matrix is not None:
            return matrix.tocsr()
    there = _one_array(f, f(x))
    whole, size = (len(there), len(x)) if rows else (len(x), len(there))
    ends = np.linspace(0, whole, max(1, min(whole, count)) + 1).astype(int).tolist()
    spans = [*itertools.pairwise(ends)]
    block = _Task(f"jacobian of {name_of(f)}", _block, f, rows, x, spans)
    parts = range(len(spans))
    if sparse:
        from scipy.sparse import csr_array, hstack, vstack

        return (vstack if rows else hstack)([csr_array(one) for one in _gathered(block, parts)], format="csr")
    widths, dtype = tuple(b - a for a, b in spans), there.numpy().dtype
    return arrays.from_array(np.reshape(parts, (-1, 1) if rows else (1, -1)), chunks=1).map_blocks(
        _sent(_kept(block)),
        name=_key(block),
        dtype=dtype,
        chunks=(widths, (size,)) if rows else ((size,), widths),
        meta=np.empty((0, 0), dtype),
    )


def _products(f: Function, transposed: bool, x: array, vectors: Any) -> Any:
    """The products of a Jacobian, or of the transposed one, with some vectors."""
    if transposed:
        _, pull = func.vjp(f, x)
        return func.vmap(lambda bar: pull(bar)[0])(array(vectors)).numpy()
    return func.vmap(lambda dot: func.jvp(f, (x,), (dot,))[1])(array(vectors)).numpy()


def _block(f: Function, rows: bool, x: array, spans: Sequence[tuple[int, int]], number: Any) -> Any:
    """Some columns, or rows, of a Jacobian, by the number of the block."""
    start, stop = spans[np.asarray(number).item()]
    like = f(x) if rows else x
    products = _products(f, rows, x, np.eye(stop - start, len(like), start, like.numpy().dtype))
    return products if rows else np.ascontiguousarray(products.T)


def _runs(f: Function, transposed: bool, dtype: Any, x: array, colors: Any, runs: Any) -> Any:
    """Some runs of a sparse Jacobian, by their numbers: colours are sent, and vectors made on the worker."""
    return _products(f, transposed, x, seeds_of(colors, runs, dtype))


class _Colored(Problem):
    """A sparse Jacobian whose runs are tasks."""

    def __init__(self, f: Function, x: array, blocks: int) -> None:
        super().__init__(of_function(f, [clone(x, requires_grad=True)], (), "jacobian"))
        self.f, self.x, self.blocks = f, x, blocks

    def tangents(self, i: int, reading: Reading) -> list[Any]:
        return [self._runs(reading, transposed=False)]

    def adjoints(self, i: int, j: int, reading: Reading) -> Any:
        return self._runs(reading, transposed=True)

    def _runs(self, reading: Reading, transposed: bool) -> Any:
        count, dtype = len(reading.seeds), reading.seeds.dtype
        parts = np.array_split(np.arange(count), min(self.blocks, count))
        task = _Task(f"jacobian of {name_of(self.f)}", _runs, self.f, transposed, dtype)
        return np.concatenate(_gathered(task, parts, shared=(self.x, reading.colors)))


def gradcheck_tape(tape: Tape, *, fast: Fast = "auto", raise_exception: bool = True) -> TapeReport:
    """Check the launches of a long tape by parts: each alone, with the values that it read, a task each.

    As `kl.autograd.gradcheck_tape` with launches chosen: what a launch read has to be there still, or saved
    by the tape, else the report says that it could not be checked.  Raises GradientError if a launch fails
    and `raise_exception` is true, or if none was checked.
    """
    report = check_tape(tape, Tolerance(), WHOLE, Choice(), fast, _by_parts)
    if raise_exception:
        report.require_passed()
    return report


def _by_parts(f: Function, each: Iterator[tuple[Any, ...]]) -> list[Any]:
    """The results of `f`; the arguments are made some at a time, for together they may be large."""
    size, results = 8 * _threads(), list[Any]()
    while part := [*itertools.islice(each, size)]:
        results += _gathered(f, *zip(*part, strict=True))
    return results


# ---------------------------------------------------------------------------------------------------- sweeps


def sweep(
    f: Function, grid: Mapping[str, Sequence[float]], *, gradients: bool = True, dtype: Any = float
) -> Any:
    """The values of `f` at every point of a grid, and its derivatives, as a frame of pandas.

    `f` takes a number of `dtype` for each name of `grid`, in that order, and returns one number.  The frame
    has a row a point, with the columns of the grid, then ``value``, then ``d_name`` for each name, last names
    fastest.
    """
    import pandas

    require_travel(f)
    _require_grid(f, grid, gradients)
    kind = float if dtype is float else scalar_of(value_type(dtype)).dtype.type
    points = [*itertools.product(*([kind(v) for v in values] for values in grid.values()))]
    size = max(1, math.ceil(len(points) / (4 * _threads())))
    parts = [points[n : n + size] for n in range(0, len(points), size)]
    task = _Task(f"sweep of {name_of(f)}", _points, f, gradients)
    evaluated = [row for rows in _gathered(task, parts) for row in rows]
    columns = [*grid, "value", *(f"d_{name}" for name in grid if gradients)]
    return pandas.DataFrame([(*at, *row) for at, row in zip(points, evaluated, strict=True)], columns=columns)


def _require_grid(f: Function, grid: Any, gradients: bool) -> None:
    """Raise KernelTypeError or KernelValueError for a grid that would be read as something else."""
    if not isinstance(grid, Mapping) or not grid or not all(np.ndim(values) == 1 for values in grid.values()):
        hint = 'write sweep(f, {"mass": [1.0, 2.0], "speed": np.linspace(0.0, 1.0, 5)})'
        raise KernelTypeError.of("a grid is a dict from names to sequences of numbers", "grid", hint)
    columns = ["value", *(f"d_{name}" for name in grid if gradients)]
    twice = next((name for name in grid if name in columns), None)
    if twice is not None:
        message = f"`{twice}` of the grid is a column of the result, too"
        raise KernelValueError.of(message, "grid", "call it otherwise: the order counts")
    try:
        names = [*signature(f).parameters]
    except (TypeError, ValueError):  # what Python cannot look into is called by position
        return
    moved = next((name for n, name in enumerate(grid) if name in names and names.index(name) != n), None)
    if moved is not None:
        message = f"`{moved}` is parameter {names.index(moved) + 1} of {name_of(f)}, and name "
        message += f"{[*grid].index(moved) + 1} of the grid, whose order counts"
        hint = f"write the grid in the order of the parameters: {', '.join(names[: len(grid)])}"
        raise KernelValueError.of(message, "grid", hint)


def _points(f: Function, gradients: bool, points: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Values and derivatives of a function of numbers at some points."""
    if not gradients:
        return [(_number(f(*at)),) for at in points]
    both = func.value_and_grad(f, tuple(range(len(points[0]))))
    rows = (both(*at) for at in points)
    return [(_number(value), *(_number(d) for d in slopes)) for value, slopes in rows]


def _number(value: Any) -> float:
    return float(value.item() if isinstance(value, array) else value)
