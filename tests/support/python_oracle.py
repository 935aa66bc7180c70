"""The meaning of a kernel's text as plain Python: the same source, executed a thread at a time.

Numbers are Python's, so floats are double precision.  Arrays are NumPy arrays; vectors and matrices are small
values with the language's operators, structs small classes; both are copied where they are assigned.  Knows
the language's words, nothing of kernelab.
"""

import ast
import builtins
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Value:
    """A vector or a matrix, copied on assignment as kernels do it."""

    def __init__(self, data: Any) -> None:
        self.data = np.array(data, np.float64)
        self.whole: tuple[Any, Any] | None = None

    def __getitem__(self, index: Any) -> Any:
        found = _unwrapped(self.data[index])
        if isinstance(found, Value):
            found.whole = (self, index)  # m[i][j] = x writes into m
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        self.data[index] = _raw(value)
        if self.whole is not None:
            matrix, row = self.whole
            matrix[row] = self

    def __add__(self, other: Any) -> "Value":
        return Value(self.data + _raw(other))

    def __sub__(self, other: Any) -> "Value":
        return Value(self.data - _raw(other))

    def __neg__(self) -> "Value":
        return Value(-self.data)

    def __mul__(self, other: Any) -> Any:
        return _product(self, other)

    def __rmul__(self, other: Any) -> Any:
        return _product(self, other)

    def __matmul__(self, other: Any) -> Any:
        return _product(self, other)

    def __truediv__(self, other: Any) -> "Value":
        return Value(self.data / _raw(other))


for _k, _name in enumerate("xyzw"):
    setattr(
        Value,
        _name,
        property(lambda self, k=_k: self[k], lambda self, value, k=_k: self.__setitem__(k, value)),
    )


class Quaternion(Value):
    """A vector x, y, z, w whose products are those of Hamilton's numbers."""

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Quaternion):
            return super().__mul__(other)
        (a, s), (b, t) = ((q.data[:3], q.data[3]) for q in (self, other))
        return Quaternion([*(np.cross(a, b) + s * b + t * a), s * t - a @ b])


def _quaternion(*parts: Any) -> Quaternion:
    return Quaternion(np.broadcast_to(np.array(parts or 0.0, np.float64), (4,)))


def _product(a: Value, b: Any) -> Any:
    if isinstance(b, Value) and a.data.ndim == 2:
        return Value(a.data @ b.data)
    return Value(a.data * _raw(b))


def _raw(value: Any) -> Any:
    return value.data if isinstance(value, Value) else value


def _unwrapped(data: Any) -> Any:
    return Value(data) if np.ndim(data) else data.item()


class Elements:
    """An array as a kernel sees it: numbers and vectors by index, wrapped in a value when read."""

    def __init__(self, array: Array, ndim: int) -> None:
        self.array = array
        self.ndim = ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape[: self.ndim]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        count = sum(not isinstance(part, slice) for part in parts)
        found = self.array[index]
        if count < self.ndim:
            return Elements(found, self.ndim - count)
        element = _unwrapped(found)
        if isinstance(element, Value):
            element.whole = (self, index)  # d[i].x = v writes into d
        return element

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = _raw(value)


def _atomic(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(array: Elements, *rest: Any) -> Any:
        *index, value = rest
        old = array[tuple(index)]
        array[tuple(index)] = change(old, value)
        return old

    return run


def _cross(a: Value, b: Value) -> Value:
    return Value(np.cross(a.data, b.data))


def _copied(value: Any) -> Any:
    if isinstance(value, Value):
        return type(value)(value.data)
    return copy.deepcopy(value) if dataclasses.is_dataclass(value) else value


def _vector(n: int) -> Any:
    def make(*parts: Any) -> Value:
        return Value(np.broadcast_to(np.array(parts or 0.0, np.float64), (n,)))

    return make


def _matrix(n: int) -> Any:
    def make(*parts: Any) -> Value:
        data = np.array(parts or 0.0, np.float64)
        return Value(data.reshape(n, n) if data.size == n * n else np.full((n, n), data))

    return make


def _zeros(shape: Any, dtype: Any = float) -> Elements:
    array = np.zeros(shape)
    return Elements(array, array.ndim)


def _int(number: Any) -> int:
    """A float out of range becomes the nearest int, NaN 0."""
    if isinstance(number, float) and math.isnan(number):
        return 0
    return int(min(max(number, -(2**31)), 2**31 - 1)) if isinstance(number, float) else int(number)


WORDS: dict[str, Any] = {
    "int": _int,
    "range": lambda *bounds, adjoint="": range(*bounds),
    "zeros": _zeros,
    "atomic_add": _atomic(lambda old, value: old + value),
    "atomic_sub": _atomic(lambda old, value: old - value),
    "atomic_min": _atomic(lambda old, value: min(old, value)),
    "atomic_max": _atomic(lambda old, value: max(old, value)),
    "atomic_exch": _atomic(lambda old, value: value),
    "cross": _cross,
    "dot": lambda a, b: float(a.data.ravel() @ b.data.ravel()),
    "length": lambda v: math.sqrt(float(v.data @ v.data)),
    "where": lambda cond, a, b: a if cond else b,
    "vec2": _vector(2),
    "vec3": _vector(3),
    "vec4": _vector(4),
    "vec2d": _vector(2),
    "vec3d": _vector(3),
    "mat22": _matrix(2),
    "mat22d": _matrix(2),
    "mat33": _matrix(3),
    "mat33d": _matrix(3),
    "quatd": _quaternion,
    "float32": float,
    "float64": float,
    "int32": _int,
    "int64": int,
} | {
    name: getattr(math, name) for name in ("sin", "cos", "tan", "atan", "exp", "log", "sqrt", "floor", "tanh")
}


class _Copies(ast.NodeTransformer):
    """Classes get a constructor; what is assigned and what a function is given are copied."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.decorator_list = [ast.Name("_dataclass", ast.Load())]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        names = [arg.arg for arg in node.args.args]
        own = ast.parse("\n".join(f"{name} = _copied({name})" for name in names)).body
        node.body = [*own, *node.body]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        node.value = ast.Call(ast.Name("_copied", ast.Load()), [node.value], [])
        return node


def compiled(text: str) -> CodeType:
    """The text of a cell as Python's code."""
    tree = ast.parse("from __future__ import annotations\n" + text)
    return compile(ast.fix_missing_locations(_Copies().visit(tree)), "<cell>", "exec")


def run(
    text: str,
    name: str,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    ndims: Mapping[str, int],
    **namespace: Any,
) -> dict[str, Any]:
    """Run the kernel `name` of a cell over a grid; the arguments afterwards, arrays in double precision.

    `ndims` gives the dimensions of each array argument, without the axes of its components.
    """
    after = {key: _own(value) for key, value in arguments.items()}
    run_in_place(compiled(text), name, grid, after, ndims, **namespace)
    return after


def run_in_place(
    code: CodeType,
    name: str,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    ndims: Mapping[str, int],
    **namespace: Any,
) -> None:
    """The same for a cell compiled before, changing the arrays that it is given."""
    here: tuple[int, ...] = ()
    tools = {"_copied": _copied, "_dataclass": dataclasses.dataclass}
    scope = {
        **vars(builtins),
        **WORDS,
        **tools,
        **namespace,
        "__name__": __name__,
        "tid": lambda: here if len(here) > 1 else here[0],
    }
    exec(code, scope)
    wrapped = [Elements(value, ndims[key]) if key in ndims else value for key, value in arguments.items()]
    for here in itertools.product(*(range(extent) for extent in grid)):  # noqa: B007 (tid reads it)
        scope[name](*wrapped)


def _own(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return value.astype(np.float64) if value.dtype.kind == "f" else value.copy()
