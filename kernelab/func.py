"""Transforms of Python functions that launch kernels: ``kl.func.grad``, ``jacfwd``, ``vmap``.

They compose: ``vmap(jacfwd(f))``, ``jacfwd(jacrev(f))``.  A function takes arrays, and other things, and
returns arrays, alone or in tuples, lists or dicts; it must not change its arguments.  `requires_grad` plays
no part.  A struct, or an array of structs, stands for its fields of floats: a gradient with respect to it
is such a struct (a number in it an array of one element), a Jacobian a dict by the names of fields.
The computation is in `kernelab.autodiff.transforms.transforms`.

The module is also the decorator ``@kl.func``, which makes a function that kernels may call.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper, wraps
from importlib import import_module
from itertools import cycle
from types import ModuleType
from typing import Any, Literal

import numpy as np

from kernelab.autodiff.jacobians.subject import mark_gradient
from kernelab.autodiff.transforms import rows_and_columns, transforms
from kernelab.autodiff.transforms.base_level import current, run_host_call
from kernelab.autodiff.transforms.compared import Compared
from kernelab.autodiff.transforms.host_calls import HostCall, shared_defaults
from kernelab.autodiff.transforms.host_numbers import (
    Opened,
    arrays_like,
    lanes_of_values,
    like_array,
    opened,
    reshaped,
)
from kernelab.autodiff.transforms.transforms import with_flat_structs
from kernelab.autodiff.transforms.trees import (
    chosen_by,
    cotangents_of,
    in_order_of,
    leaves,
    rebuilt,
    require_callable,
    require_like,
    scalar_shape,
)
from kernelab.autodiff.transforms.vmap import map_lanes
from kernelab.data_classes import replace
from kernelab.errors import GradientError, KernelTypeError, KernelValueError, a_thing, name_of
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.guidance.missing_names import face
from kernelab.runtime.array.array import array, require_array
from kernelab.runtime.array.layout import is_integer
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.kernel import decorators

Function = Callable[..., Any]
Randomness = Literal["error", "same", "different"]
Argnums = int | Sequence[int]

__all__ = ["as_numpy", "custom_vjp", "grad", "hessian", "hvp", "jacfwd", "jacrev", "jvp"]
__all__ += ["value_and_grad", "vjp", "vmap"]

__getattr__, __dir__ = face(__name__, __all__)


class Made:
    """A function that a transform made of another: it is called as such, and pickled as that call."""

    def __init__(self, run: Function, call: partial[Any]) -> None:
        update_wrapper(self, run)
        self._call, self.run = call, run

    def __call__(self, *args: Any, **named: Any) -> Any:
        __tracebackhide__ = True  # IPython shows the frames of the user
        return self._run_named(args, named) if named else self.run(*args)

    def _run_named(self, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """Call with what was passed by name in its position, where it has one; the rest is closed over."""
        make, (func, *rest) = self._call.func, self._call.args
        try:
            bound = inspect.signature(func).bind(*args, **named)
        except (TypeError, ValueError) as error:
            raise refusal(KernelTypeError, f"{name_of(func)}: {error}", "argument") from None
        bound.apply_defaults()
        left = {name: value for name, value in bound.kwargs.items() if name in named}
        if not left:
            return self.run(*bound.args)
        if make in (vmap, custom_vjp):
            message = f"{make.__name__} passes arguments on by position, and {name_of(func)} takes "
            message += f"{', '.join(left)} by name only"
            raise refusal(KernelTypeError, message, "argument", "close over it: lambda x: f(x, name=...)")
        closed = update_wrapper(partial(func, **left), func)
        return partial(make, closed, *rest, **self._call.keywords)()(*bound.args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._call,)

    def __repr__(self) -> str:
        return f"<{self._call.func.__name__} of {self._call.args[0]!r}>"


def _made(make: Function, *arguments: Any, **options: Any) -> Callable[[Function], Function]:
    require_callable(arguments[0])

    def mark(run: Function) -> Function:
        return Made(wraps(arguments[0])(run), partial(make, *arguments, **options))

    return mark


def _again(call: partial[Any]) -> Any:
    return call()


@explains_bad_calls(
    back="write kl.func.custom_vjp(f, back): back takes the arguments of f, then a cotangent for each result"
)
def custom_vjp(func: Function, back: Function, check: bool = True) -> Function:
    """A function that computes what `func` does, and is differentiated by `back`.

    Both read the values of the arrays that they are given, with NumPy and SciPy if they like, and return
    arrays, of NumPy too, or numbers, whose floats get the type of the first array of floats.  The arrays of
    floats that they get are copies, which they may change; so are arrays of integers that differ between
    the lanes of a vmap.  `back` takes the arguments, then the results if it has parameters for them, then a
    cotangent for each result.  A default is among the arguments of a call that leaves it out if `back` has a
    parameter of its name at its place.  `back` returns the adjoint of each argument that is an array of
    floats, None for zeros.  It has to be linear in the cotangents: forward mode calls it once for each number
    of the results.  Second derivatives differentiate `back` as any function: where they pass, compute in it
    with kernels, arrays and functions of `custom_vjp`.  Tapes call it in `backward`.  Raises GradientError
    for adjoints that do not fit.

    When it is first used, it is compared with differences of `func`, which then runs at least four times
    more for each argument; ``check=False`` declares that it is a surrogate and not the derivative.

        def back(a, b, x, x_bar):
            b_bar = np.linalg.solve(a.numpy().T, x_bar.numpy())
            return -np.outer(b_bar, x.numpy()), b_bar

        solve = kl.func.custom_vjp(lambda a, b: np.linalg.solve(a.numpy(), b.numpy()), back)
    """

    compared, defaults = Compared.of(func, back) if check else None, shared_defaults(func, back)

    @_made(custom_vjp, func, back, check=check)
    def call(*args: Any) -> Any:
        while len(args) in defaults:
            args = *args, defaults[len(args)]
        host_call = HostCall.of(func, back, args, compared)
        results = run_host_call(host_call, [host_call.args[n] for n in host_call.places])
        return tuple(results) if host_call.is_several else results[0]

    return call


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function that returns the gradient of `func`, which returns an array of one float.

    The gradient has the shape and dtype of the argument; with a tuple for `argnums` it is a tuple.  With
    `has_aux`, `func` returns a pair ``(output, aux)``, and so does the new function.  Raises GradientError
    where the output is not one number, or was not computed from the arguments.

    >>> square = kl.compile("def square(x: float) -> float:\\n    return x * x")["square"]
    >>> float(kl.func.grad(square)(3.0))
    6.0
    """
    both = value_and_grad(func, argnums, has_aux)

    @_made(grad, func, argnums, has_aux)
    def gradient(*args: Any) -> Any:
        __tracebackhide__ = True  # IPython shows the frames of the user
        value, gradients = both(*args)
        return (gradients, value[1]) if has_aux else gradients

    return gradient if has_aux or isinstance(argnums, Sequence) else mark_gradient(gradient, argnums)


def value_and_grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function that returns what `func` returns, and its gradient; as for `grad`.

    >>> square = kl.compile("def square(x: float) -> float:\\n    return x * x")["square"]
    >>> value, gradient = kl.func.value_and_grad(square)(3.0)
    >>> float(value), float(gradient)
    (9.0, 6.0)
    """

    chosen_by(func, argnums)

    @_made(value_and_grad, func, argnums, has_aux)
    def value_and_gradient(*args: Any) -> Any:
        __tracebackhide__ = True  # IPython shows the frames of the user
        inputs = opened(func, args, argnums)
        value, gradients, aux = transforms.gradients(*inputs.call, has_aux)
        value, asked = inputs.closed(value), _as_asked(inputs.by_argument(gradients), argnums)
        return (value, aux) if has_aux else value, asked

    return value_and_gradient


def jvp(
    func: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> tuple[Any, ...]:
    """Compute `func` at `primals` and its derivative along `tangents`, in the structure of the results.

    `tangents` are arrays of the shapes and dtypes of the primals.  The derivative of an array of integers is
    an array of zeros.  With `has_aux`, a third item follows.

    >>> square = kl.compile("def square(x: float) -> float:\\n    return x * x")["square"]
    >>> value, tangent = kl.func.jvp(square, (3.0,), (1.0,))
    >>> float(value), float(tangent)
    (9.0, 6.0)
    """
    _require_sequence(primals, "primals")
    _require_sequence(tangents, "tangents")
    inputs = opened(func, primals, range(len(primals)))
    primals = inputs.args
    if len(tangents) != len(primals):
        message = f"{len(tangents)} tangents for {len(primals)} primals"
        raise refusal(GradientError, message, "tangents", "pass one tangent for each primal")
    tangents = [like_array(*pair) for pair in zip(tangents, primals, strict=True)]
    for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        require_like(tangent, primal, f"tangents[{i}]")
    along = with_flat_structs(func, tangents, inputs.chosen)
    value, dots, aux = transforms.push(*inputs.call, [along.args[n] for n in along.chosen], has_aux)
    value, moved = inputs.closed(value), inputs.closed(rebuilt(value, iter(dots)))
    return (value, moved, aux) if has_aux else (value, moved)


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Compute `func` at `primals`, and a function from cotangents of the result to a tuple of adjoints.

    The function takes cotangents in the structure of what `func` returned, and may be called again.  None is
    a cotangent of zeros; that of an array of integers does not count.

    >>> y, pull = kl.func.vjp(lambda x: kl.sqrt(x), kl.array([4.0, 16.0]))
    >>> (x_bar,) = pull(kl.ones(2))
    >>> x_bar.list()
    [0.25, 0.125]
    """
    if not primals:
        message = f"vjp() was given no arguments of {name_of(func)}"
        raise refusal(KernelTypeError, message, "arguments", "write vjp(f, x, y), not vjp(f)(x, y)")
    inputs = opened(func, primals, range(len(primals)))
    recorded = transforms.record(*inputs.call, has_aux)

    def pull(cotangents: Any) -> tuple[Any, ...]:
        cotangents = in_order_of(cotangents, recorded.result)
        bars = cotangents_of(arrays_like(cotangents, recorded.outputs), pull)
        if len(bars) != len(recorded.outputs):
            message = f"{len(bars)} cotangents for the {len(recorded.outputs)} arrays that were returned"
            raise refusal(GradientError, message, "cotangents")
        for i, (cotangent, output) in enumerate(zip(bars, recorded.outputs, strict=True)):
            if cotangent is not None:
                require_like(cotangent, output, f"cotangent {i}")
        return tuple(inputs.by_argument(recorded.pull(current(), bars)))

    result = inputs.closed(recorded.result)
    return (result, pull, recorded.aux) if has_aux else (result, pull)


def jacrev(
    func: Function, argnums: Argnums = 0, has_aux: bool = False, *, chunk_size: int | None = None
) -> Function:
    """A function that returns the Jacobian of `func`, computed from batches of `chunk_size` adjoints.

    For each array returned, an array of the shape of the output, then that of the argument; components of
    vectors are axes of their own.  With a tuple for `argnums`, a tuple of them.

    >>> kl.func.jacrev(lambda x: kl.map(lambda v: v * v, x))(kl.array([2.0, 3.0])).numpy()
    array([[4., 0.],
           [0., 6.]], dtype=float32)
    """
    _require_chunk(chunk_size)
    chosen_by(func, argnums)

    @_made(jacrev, func, argnums, has_aux, chunk_size=chunk_size)
    def jacobian(*args: Any) -> Any:
        inputs = opened(func, args, argnums)
        recorded = transforms.record(*inputs.call, has_aux)
        jacobians = _jacobians(inputs, recorded.result, rows_and_columns.rows(recorded, chunk_size), argnums)
        return (jacobians, recorded.aux) if has_aux else jacobians

    return jacobian


def jacfwd(
    func: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: Randomness = "same",
) -> Function:
    """A function that returns the Jacobian of `func`, computed from batches of `chunk_size` tangents.

    As `jacrev`.  All columns draw the same random numbers; with ``randomness="error"`` none may be drawn.

    >>> kl.func.jacfwd(lambda x: kl.map(lambda v: v * v, x))(kl.array([2.0, 3.0])).numpy()
    array([[4., 0.],
           [0., 6.]], dtype=float32)
    """
    chosen_by(func, argnums)
    made = _made(jacfwd, func, argnums, has_aux, chunk_size=chunk_size, randomness=randomness)
    return made(_forward_jacobian("jacfwd", func, argnums, has_aux, chunk_size, randomness))


def _forward_jacobian(
    asked: str,
    func: Function,
    argnums: Argnums,
    has_aux: bool = False,
    chunk_size: int | None = None,
    randomness: Randomness = "same",
    closes: bool = True,
) -> Function:
    """Implement `jacfwd`; `asked` is what the user called, and without `closes` all blocks are arrays."""
    _require_chunk(chunk_size)
    _require_randomness(randomness)
    if randomness == "different":
        message = f'{asked} with randomness="different" would draw other numbers for each column'
        hint = "leave it out: a Jacobian is that of one run, in which all columns draw the same"
        raise refusal(KernelValueError, message, "randomness", hint)

    @wraps(func)
    def jacobian(*args: Any) -> Any:
        inputs = opened(func, args, argnums)
        if not closes:
            inputs = replace(inputs, closes=False, is_of_kernels=False)
        value, columns, aux = rows_and_columns.columns(*inputs.call, has_aux, chunk_size, randomness, asked)
        jacobians = _jacobians(inputs, value, columns, argnums)
        return (jacobians, aux) if has_aux else jacobians

    return jacobian


def _jacobians(inputs: Opened, value: Any, rows: Sequence[Sequence[array]], argnums: Argnums) -> Any:
    """The blocks for each output, in the structure of the result."""
    pairs = zip(leaves(value, inputs.flat.func), rows, strict=True)
    return rebuilt(value, (_as_asked(inputs.jacobian(row, output), argnums) for output, row in pairs))


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """A function that returns the Hessian of `func`: ``jacfwd(jacrev(func))``.

    Where `func` returns one number, the result has the argument's shape twice, without an axis for it.  With
    a tuple for `argnums`, a tuple of tuples: what is at ``[i][j]`` has the shape of argument i, then j.

    >>> square = kl.compile("def square(x: float) -> float:\\n    return x * x")["square"]
    >>> float(kl.func.hessian(square)(3.0))
    2.0
    """

    chosen_by(func, argnums)

    @_made(hessian, func, argnums)
    def second(*args: Any) -> Any:
        inputs = opened(func, args, argnums)
        outer = _forward_jacobian("hessian", jacrev(func, argnums), argnums, closes=False)
        blocks = outer(*inputs.args)
        full = [scalar_shape(inputs.flat.args[n]) for n in inputs.flat.chosen]
        shapes = zip(
            *(cycle([(*a, *b) for a in sides for b in sides]) for sides in (full, inputs.shapes())),
            strict=False,
        )
        parts = []
        for part, (whole, shape) in zip(leaves(blocks, func), shapes, strict=False):
            is_number = part.shape == (1, *whole)
            parts.append(reshaped(part, shape if is_number else (*part.shape[: -len(whole)], *shape)))
        return rebuilt(blocks, iter(parts))

    return second


def hvp(func: Function, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The gradient with respect to `primals`, and the Hessian times `tangents`: forward over reverse.

    Each is a tuple with an entry an argument; of a function of one, the entry itself will do.
    """
    primals, tangents = (side if isinstance(side, tuple | list) else (side,) for side in (primals, tangents))
    everything = tuple(range(len(primals)))
    gradient, moved = jvp(grad(func, everything), primals, tangents)
    return (gradient[0], moved[0]) if len(everything) == 1 else (gradient, moved)


def as_numpy(func: Function, *like: array, dtype: Any = float) -> Function:
    """`func` for SciPy: a function of a NumPy vector that returns the value and its gradient in float64.

    ``scipy.optimize.minimize(kl.func.as_numpy(f), x0, jac=True)``.  `func` returns an array of one float; it
    gets one array of `dtype` in one dimension, or arrays like those in `like`, whose numbers stand in the
    vector one after another.  Programs over float32 run in their float64 builds; the host cannot read what
    they compute.  Raises what `grad` raises, and KernelValueError for a vector of another length.
    """
    for k, example in enumerate(like):
        require_array(example, f"as_numpy(): example {k} is")
    if isinstance(func, Made) and func._call.func in (grad, value_and_grad):
        made, name = func._call.func.__name__, name_of(func._call.args[0])
        message = f"as_numpy() takes the gradient itself, and was given {made} of {name}"
        raise refusal(KernelTypeError, message, "transform", f"write as_numpy({name})")

    @_made(as_numpy, func, *like, dtype=dtype)
    def value_and_gradient(x: Any, *args: Any) -> tuple[float, Any]:
        vector = np.ascontiguousarray(x, np.float64).reshape(-1)
        return transforms.at_vector(func, vector, like or (array(shape=vector.shape, dtype=dtype),), args)

    return value_and_gradient


@explains_bad_calls(in_axes="write in_dims=(0, None): None where all share it", out_axes="write out_dims=0")
def vmap(
    func: Function,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: Randomness = "error",
    *,
    chunk_size: int | None = None,
) -> Function:
    """A function that runs `func` for every slice of its arguments at once, and joins what it returns.

    `in_dims` says along which axis each argument is sliced, None for one that all slices share; `out_dims`
    along which axis results are joined.  `func` sees arrays without that axis, of at least one dimension: a
    slice of a one-dimensional array has one element.  `randomness` says what a kernel means that draws random
    numbers: an error, the same numbers for every slice, or different ones.

    >>> x = kl.array([[1.0, 2.0], [3.0, 4.0]])
    >>> kl.func.vmap(lambda row: kl.map(lambda v: v * v, row))(x).list()
    [1.0, 4.0, 9.0, 16.0]
    """
    _require_chunk(chunk_size)
    _require_randomness(randomness)

    @_made(vmap, func, in_dims, out_dims, randomness, chunk_size=chunk_size)
    def mapped(*args: Any) -> Any:
        result = map_lanes(func, args, in_dims, out_dims, randomness, chunk_size)
        return lanes_of_values(func, args, result) if out_dims == 0 else result

    return mapped


def _as_asked(by_argument: list[array], argnums: Argnums) -> Any:
    return by_argument[0] if is_integer(argnums) else tuple(by_argument)


def _require_chunk(size: int | None) -> None:
    if size is not None and (not is_integer(size) or size < 1):
        message = f"chunk_size={size!r} is not a number of lanes"
        raise refusal(KernelValueError, message, "chunk", "pass 1 or more")


def _require_randomness(randomness: str) -> None:
    if randomness not in ("error", "same", "different"):
        hint = 'use "error", "same" or "different"'
        raise refusal(KernelValueError, f"randomness={randomness!r} says nothing", "randomness", hint)


def _require_sequence(entries: Any, name: str) -> None:
    if not isinstance(entries, tuple | list):
        message = f"{name} is {a_thing(entries)}, and has to be a tuple with one entry an argument"
        raise refusal(GradientError, message, name, "write (x,) for one, (x, y) for two")


class _Decorator(ModuleType):
    # A static method is called without a frame in between: the decorator looks at its caller's names.
    __call__ = staticmethod(decorators.func)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Decorator
