"""The `builtin` decorator: makes the record of an operation, and the callable for derivative rules.

A decorated function is never called: its name, annotations and docstring are the record's.  What the
decorator returns is the operation as users and rules meet it: called with `Expr` operands it appends IR,
called with numbers or NumPy arrays it computes with NumPy.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.errors import KernelTypeError, KernelValueError, KernelZeroDivisionError
from kernelab.host.traced import follow, untraced
from kernelab.host.values import type_of, value_of
from kernelab.lang import ops
from kernelab.lang.build import Expr
from kernelab.lang.ops import (
    Derivative,
    KindPattern,
    MatPattern,
    Op,
    Parameter,
    Partials,
    Pattern,
    ScalarPattern,
    VecPattern,
    Zero,
)
from kernelab.lang.promotion import Promotable, default_scalar, promoted
from kernelab.lang.rounding import Numpy, computed, rounded
from kernelab.lang.types import (
    BY_DTYPE,
    Mat,
    Quat,
    Scalar,
    Transform,
    Value,
    Vec,
    bool_,
    int32,
    scalar_of,
    shape_of,
    size_of,
    with_scalar,
)

# ------------------------------------------------- components of vectors and matrices, for expansions


def parts(x: Expr) -> list[Expr]:
    """The scalars of a value, by rows."""
    return [Expr(x.builder, component) for component in x.builder.components(x.atom)]


def rows(m: Expr) -> list[list[Expr]]:
    """The entries of a matrix, a list a row."""
    assert isinstance(m.type, Mat)
    return [[m.at(i, j) for j in range(m.type.m)] for i in range(m.type.n)]


def vector(components: Sequence[Expr]) -> Expr:
    """The vector of these components."""
    first = components[0]
    return first.make(Vec(scalar_of(first.type), len(components)), *components)


def matrix(entries: Sequence[Sequence[Expr]]) -> Expr:
    """The matrix of these rows."""
    first = entries[0][0]
    flat = [entry for row in entries for entry in row]
    return first.make(Mat(scalar_of(first.type), len(entries), len(entries[0])), *flat)


def each(operation: Callable[..., Expr], *operands: Expr) -> Expr:
    """An operation on every component of vectors or matrices of one shape; a scalar goes with each."""
    shaped = next((x for x in operands if not isinstance(x.type, Scalar)), None)
    if shaped is None:
        return operation(*operands)
    size = size_of(shaped.type)
    columns = [[x] * size if isinstance(x.type, Scalar) else parts(x) for x in operands]
    results = [operation(*components) for components in zip(*columns, strict=True)]
    return results[0].make(with_scalar(shaped.type, scalar_of(results[0].type)), *results)


def zero_of(x: Expr) -> Expr:
    """The zero of the type of `x`."""
    return x.const(0)


def or_zero(tangent: Expr | None, x: Expr) -> Expr:
    """A tangent of `x`, where None stands for zero."""
    return zero_of(x) if tangent is None else tangent


def in_scalar(x: Expr, scalar: Scalar) -> Expr:
    """A number converted to another type."""
    return x if x.type == scalar else x.apply(str(scalar))


def added(terms: Sequence[Any]) -> Any:
    """The sum of expressions or NumPy arrays, from the first to the last."""
    return reduce(add, terms)


def stacked(components: Sequence[Any], axis: int = -1) -> Numpy:
    """Arrays of one component each, joined along a new trailing axis."""
    if not any(map(np.ndim, components)):
        return np.array(components)
    return np.stack(np.broadcast_arrays(*components), axis)


def stacked_rows(entries: Sequence[Sequence[Any]]) -> Numpy:
    """Arrays of one matrix entry each, joined along two new trailing axes."""
    shape = (len(entries), len(entries[0]))
    flat = stacked([entry for row in entries for entry in row])
    return flat.reshape(*flat.shape[:-1], *shape)


def components_of(v: Numpy) -> list[Numpy]:
    """A NumPy array of vectors as one array for each component."""
    return [v[..., k] for k in range(v.shape[-1])]


def entries_of(m: Numpy) -> list[list[Numpy]]:
    """A NumPy array of matrices as one array for each entry."""
    return [[m[..., i, j] for j in range(m.shape[-1])] for i in range(m.shape[-2])]


# The operands of records: `Any` makes them types for a type checker, the patterns are what the table reads.
Float: Any = ScalarPattern("Float", ("float",))
Signed: Any = ScalarPattern("Signed", ("int",))
Unsigned: Any = ScalarPattern("Unsigned", ("uint",))
Int: Any = ScalarPattern("Int", ("int", "uint"))
Whole: Any = ScalarPattern("Whole", ("bool", "int", "uint"))
Number: Any = ScalarPattern("Number", ("int", "uint", "float"))
Element: Any = ScalarPattern("Element", ("bool", "int", "uint", "float"))
Bool: Any = bool_
Index: Any = int32
VecN: Any = VecPattern(Float, "n")
VecM: Any = VecPattern(Float, "m")
Vec3: Any = VecPattern(Float, 3)
NumVecN: Any = VecPattern(Number, "n")
NumVec3: Any = VecPattern(Number, 3)
AnyVecN: Any = VecPattern(Element, "n")
MatNN: Any = MatPattern(Float, "n", "n")
Mat33: Any = MatPattern(Float, 3, 3)
NumVecM: Any = VecPattern(Number, "m")
NumMat33: Any = MatPattern(Number, 3, 3)
NumMatNM: Any = MatPattern(Number, "n", "m")
NumMatMN: Any = MatPattern(Number, "m", "n")
NumMatMK: Any = MatPattern(Number, "m", "k")
NumMatNK: Any = MatPattern(Number, "n", "k")
AnyVecM: Any = VecPattern(Element, "m")
AnyMatNM: Any = MatPattern(Element, "n", "m")
QuatF: Any = KindPattern(Quat, Float)
TransformF: Any = KindPattern(Transform, Float)
Vec2: Any = VecPattern(Float, 2)
Vec4: Any = VecPattern(Float, 4)
Vec6: Any = VecPattern(Float, 6)
Vec8: Any = VecPattern(Float, 8)
Vec10: Any = VecPattern(Float, 10)
Vec12: Any = VecPattern(Float, 12)
Vec18: Any = VecPattern(Float, 18)
Vec21: Any = VecPattern(Float, 21)
Mat22: Any = MatPattern(Float, 2, 2)
Mat44: Any = MatPattern(Float, 4, 4)
Mat66: Any = MatPattern(Float, 6, 6)
IntVecN: Any = VecPattern(Int, "n")
NumMatNN: Any = MatPattern(Number, "n", "n")


# ----------------------------------------------------------------------------------------------------- table


Interval = tuple[float, float]
ANYWHERE: Interval = (-3.0, 3.0)

_FAMILIES: dict[Op, str] = {}


class Builtin:
    """All operations of one name, as a callable."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = name
        self.__kernelab_name__ = name

    @property
    def overloads(self) -> tuple[Op, ...]:
        """The records of this name, in the order in which they are tried."""
        return ops.overloads(self.name)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """The documentation of each record."""
        return "\n\n".join(f"{signature(op)}\n    {op.doc}" for op in self.overloads)

    def __repr__(self) -> str:
        return f"<kernelab builtin {self.name}>"

    def __call__(self, *operands: Any, **named: Any) -> Any:
        """The result for numbers, vectors and matrices, and for each element of arrays.

        In a kernel, and for `Expr` in rules, a statement.
        """
        operands = self._in_order(operands, named)
        if self.name in ("max", "min") and len(operands) > 2:
            return reduce(self, operands)
        expressions = [x for x in operands if isinstance(x, Expr)]
        if not expressions:
            return self._of_elements(operands) if any(map(_is_array, operands)) else self._on_host(operands)
        # A number takes the type of an operand beside it, but not that of a condition.
        model = next((x for x in expressions if x.type != bool_), expressions[0])
        atoms = [model.wrap(x).atom for x in operands]
        return Expr(model.builder, model.builder.apply(self.name, *atoms))

    def _in_order(self, operands: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        choices = [[param.name for param in op.params] for op in self.overloads] if named else []
        for names in choices:
            if len(names) == len(operands) + len(named) and set(names[len(operands) :]) == set(named):
                return (*operands, *(named[name] for name in names[len(operands) :]))
        if named:
            wanted = " or ".join(dict.fromkeys(f"({', '.join(names)})" for names in choices))
            message = f"the arguments of {self.name} are {wanted}"
            raise KernelTypeError.of(message, "overload", "leave the keywords out")
        return operands

    def _of_elements(self, operands: tuple[Any, ...]) -> Any:
        try:
            results = hooks.mapped(self, *operands)
        except KernelTypeError as error:
            mistake = error.diagnostics[0]
            if mistake.code != "type":
                raise
            message = f"{self.name} goes through an array element by element: {mistake.message}"
            message = message.replace(f" of {self.name}_ ", " ")
            hint = _OF_WHOLE.get((self.name, len(operands)), mistake.hint)
            if any(_is_wide(x) for x in operands) and not all(map(_is_wide, operands)):
                hint = "NumPy's array is one of float64: write kl.array(..., dtype=float)"
            raise KernelTypeError.of(message, "overload", hint) from None
        return tuple(results) if isinstance(results, list) else results

    def _on_host(self, operands: tuple[Any, ...]) -> Any:
        op, result, types = self._resolved(operands)
        pairs = zip(operands, types, strict=True)
        values = [np.asarray(x) if type_of(x) is t else _held(untraced(x), t) for x, t in pairs]
        if self.name in ("mod", "floordiv") and scalar_of(result).is_int and not np.all(values[1]):
            raise KernelZeroDivisionError.of("integer division by zero", "division")
        with np.errstate(all="ignore"):
            value = computed(op.numpy, values, scalar_of(result).dtype)
        host_value = _split(value, op.results(result)) if op.parts else value_of(result, value)
        return host_value if op.derivative.__class__ is Zero else follow(host_value, *operands)

    def _resolved(self, operands: tuple[Any, ...]) -> tuple[Op, Value, tuple[Value, ...]]:
        own = [*map(host_type, operands)]
        for types in (own, list(map(_kind_of, operands, own))):
            resolved = promoted(self.name, tuple(map(_promotable, operands, types)))
            if resolved is not None:
                return resolved
        shown = ", ".join(str(t) for t in own)
        wanted = "; ".join(signature(op) for op in self.overloads)
        draws = any(param.name == "state" for param in self.overloads[0].params)
        hint = "NumPy draws on the host: write np.random.default_rng(0).normal(size=n)" if draws else ""
        message = f"{self.name} takes no ({shown}); it is defined as {wanted}"
        raise KernelTypeError.of(message, "overload", hint)


def _is_wide(operand: Any) -> bool:
    """Whether an operand is an array of NumPy that holds float64."""
    is_foreign = isinstance(operand, np.ndarray) and operand.ndim > 0 and not type_of(operand)
    return is_foreign and operand.dtype == np.float64


_OF_WHOLE = {
    **{(name, 1): f"write x.{name}()" for name in ("max", "min")},
    **{(name, 1): f"write np.{name}(x.numpy()) on the host" for name in ("argmax", "argmin")},
    **{
        (name, 1): f"write np.linalg.{call}(a.numpy()), in kl.func.custom_vjp where a gradient is needed"
        for name, call in {"inverse": "inv", "determinant": "det"}.items()
    },
    ("outer", 2): "write x[:, None] * y[None, :]",
    ("diag", 1): "write x[:, None] * kl.array(np.eye(len(x)), dtype=float)",
    ("trace", 1): "write (a * kl.array(np.eye(len(a)), dtype=float)).sum()",
    ("where", 1): "write x[mask] for elements, np.flatnonzero(mask.numpy()) for indices",
    **{(name, 2): "write x @ y" for name in ("dot", "matmul")},
    ("length", 1): "write kl.sqrt((x * x).sum())",
    ("transpose", 1): "write x.transpose()",
}
"""What to write for the operation of a whole array, by its name and its number of operands."""


def _is_array(value: Any) -> bool:
    if isinstance(value, int | float | np.ndarray | np.generic) or type_of(value) is not None:
        return False
    # In this order: a transform refuses to tell the address of values that it computes with.
    return isinstance(getattr(value, "dtype", None), Value) or hasattr(value, "__array_interface__")


def _split(value: np.ndarray[Any, Any], types: Sequence[Value]) -> tuple[Any, ...]:
    """The several results of an operation, of the vector that holds their components."""
    ends = np.cumsum([size_of(type) for type in types])
    pieces = zip(np.split(value, ends[:-1]), types, strict=True)
    return tuple(value_of(type, piece.reshape(shape_of(type))) for piece, type in pieces)


def _held(value: Any, type: Value) -> np.ndarray[Any, Any]:
    try:
        return rounded(value, scalar_of(type).dtype)
    except OverflowError:
        shown = value if abs(value) < 2**128 else "an int of so many digits"
        raise KernelValueError.of(f"{shown} does not fit {type}", "range") from None


def host_type(value: Any) -> Value:
    """The kernel type of a host value: Python numbers are 32 bits wide, NumPy arrays vectors or matrices."""
    type = type_of(value)
    if type is not None:
        return type
    if _is_literal(value):
        return default_scalar(value)
    array = np.asarray(untraced(value))
    scalar = BY_DTYPE.get(array.dtype)
    if scalar is None or array.ndim > 2:
        message = f"{value!r} is not a number, vector or matrix that a kernel can hold"
        raise KernelTypeError.of(message, "host")
    match array.shape:
        case (n,):
            return Vec(scalar, n)
        case (n, m):
            return Mat(scalar, n, m)
        case _:
            return scalar


def _kind_of(operand: Any, type: Value) -> Value:
    """An array of NumPy's with four numbers may stand for a quaternion, one with seven for a transform."""
    match type:
        case _ if type_of(operand) is not None:
            return type
        case Vec(scalar, 4):
            return Quat(scalar)
        case Vec(scalar, 7):
            return Transform(scalar)
        case _:
            return type


def _promotable(operand: Any, type: Value) -> Promotable:
    return type, "literal" if _is_literal(operand) else "own"


def _is_literal(operand: Any) -> bool:
    return isinstance(operand, int | float) and not isinstance(operand, np.generic)


def signature(op: Op) -> str:
    """The operation as documentation shows it: ``dot(a: vec[n], b: vec[n]) -> Float``."""
    params = ", ".join(f"{p.name}: {_spell(p.pattern)}" for p in op.params)
    results = f"({', '.join(map(_spell, op.parts))})" if op.parts else _spell(op.result)
    return f"{op.name}({params}) -> {results}"


def _spell(pattern: Pattern) -> str:
    match pattern:
        case ScalarPattern(name):
            return name
        case VecPattern(scalar, n):
            return f"vec[{n}, {_spell(scalar)}]"
        case KindPattern(kind, scalar):
            return f"{kind.__name__.lower()}[{_spell(scalar)}]"
        case MatPattern(scalar, n, m):
            return f"mat[{n}, {m}, {_spell(scalar)}]"
        case _:
            return str(pattern)


def families() -> dict[str, list[Op]]:
    """All records by the title under which documentation lists them: the first line of their module."""
    by_title: dict[str, list[Op]] = {}
    for op, family in _FAMILIES.items():
        by_title.setdefault(family, []).append(op)
    return by_title


def define(op: Op, family: str) -> Builtin:
    """Add a record to the table; the callable of its name."""
    if (op.cpp is None) == (op.expand is None):
        raise ValueError(f"{op.name} needs either cpp or expand")
    if len(op.domain) != len(op.params):
        raise ValueError(f"{op.name} needs a domain for each operand")
    ops.register(op)
    _FAMILIES[op] = family
    return Builtin(op.name)


def builtin(
    *,
    numpy: Callable[..., Any] | None = None,
    name: str = "",
    cpp: str | None = None,
    partials: Callable[..., Any] | None = None,
    singular: bool = False,
    derivative: Derivative | None = None,
    expand: Callable[..., Any] | None = None,
    domain: Interval | tuple[Interval, ...] = ANYWHERE,
    exact: bool = False,
    symbol: str = "",
    tags: Sequence[str] = (),
    parts: Sequence[Pattern] = (),
    matrices: Callable[..., Any] | None = None,
    by_component: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Expr]]:
    """Register the decorated function's record.

    Give either `partials` (with `singular`) or `derivative`; either `cpp` or, for vectors, matrices and what
    other operations can say, `expand`.  Where `numpy` is left out, `expand` computes with NumPy arrays, too.
    `domain` is one interval for all operands or one for each.
    An operation that works on vectors component by component is that of matrices, too, where `matrices`
    computes it with NumPy for these.  An operation on numbers that `by_component` documents for vectors and
    matrices is applied to their components; it has the same NumPy function and the same derivative there.
    """

    def decorate(template: Callable[..., Any]) -> Builtin:
        annotations = inspect.signature(template)
        params = tuple(Parameter(p.name, p.annotation) for p in annotations.parameters.values())
        rule = Partials(partials, singular) if partials is not None else derivative
        if rule is None:
            raise ValueError(f"{template.__name__} needs a derivative")
        oracle = numpy or expand
        if oracle is None:
            raise ValueError(f"{template.__name__} needs a NumPy function")
        domains = domain if isinstance(domain[0], tuple) else (domain,) * len(params)
        op = Op(
            name or template.__name__,
            params,
            annotations.return_annotation,
            oracle,
            rule,
            cpp,
            expand,
            domains,
            exact,
            symbol,
            inspect.getdoc(template) or "",
            frozenset(tags),
            tuple(parts),
        )
        operation = define(op, title_of(template.__module__))
        if matrices is not None:
            params = tuple(Parameter(param.name, _of_matrices(param.pattern)) for param in op.params)
            define(replace(op, params=params, result=_of_matrices(op.result), numpy=matrices), "Matrices")
        if by_component:
            _define_by_component(op, partial(each, operation), by_component)
        return operation

    return decorate


piecewise_constant = partial(builtin, derivative=Zero(), exact=True)
"""The decorator of operations whose derivative is zero wherever it exists, computed exactly everywhere."""


def on_components(operation: Any, /, **record: Any) -> Callable[[Callable[..., Any]], Callable[..., Expr]]:
    """The decorator of an operation on numbers applied to components; a number stands beside each of them.

    There is one record for vectors, and one for matrices; `record` are more arguments of `builtin`.
    """
    of_numbers = operation.overloads[0].numpy

    def decorate(template: Callable[..., Any]) -> Callable[..., Expr]:
        patterns = [p.annotation for p in inspect.signature(template).parameters.values()]

        def spread(*axes: None) -> Callable[..., Any]:
            """The function of NumPy arrays, in which numbers get the axes that components have."""
            places = [... if isinstance(pattern, VecPattern) else (..., *axes) for pattern in patterns]
            return lambda *operands: of_numbers(*(x[at] for x, at in zip(operands, places, strict=True)))

        numpy, matrices = spread(None), spread(None, None)
        form = {"name": operation.name, "exact": True, **record}
        return builtin(expand=partial(each, operation), numpy=numpy, matrices=matrices, **form)(template)

    return decorate


def _of_matrices(pattern: Pattern) -> Pattern:
    """A pattern with matrices in place of vectors."""
    return MatPattern(pattern.scalar, "n", "m") if isinstance(pattern, VecPattern) else pattern


def _define_by_component(op: Op, expand: Callable[..., Any], doc: str) -> None:
    """Add the records of an operation on numbers for vectors and for matrices."""
    shapes: tuple[tuple[str, Callable[[Any], Pattern]], ...] = (
        ("Vectors", lambda scalar: VecPattern(scalar, "n")),
        ("Matrices", lambda scalar: MatPattern(scalar, "n", "m")),
    )
    for title, shaped in shapes:
        params = tuple(Parameter(param.name, shaped(param.pattern)) for param in op.params)
        define(replace(op, params=params, result=shaped(op.result), cpp=None, expand=expand, doc=doc), title)


def title_of(module: str) -> str:
    """The first line of a module's documentation, without its full stop."""
    return (sys.modules[module].__doc__ or module).partition("\n")[0].rstrip(".")
