"""Types from the syntax tree: annotations, which are never evaluated, and classes as structs.

`float`, `vec3`, `array[float]`, `array2d[vec3]`, `array(dtype=float, ndim=2)`, each with or without a prefix,
or as text.  A class of a cell, or a Python class with annotations, is a struct: fields with types and
defaults.  Methods, base classes and fields of the struct itself are refused.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, KernelTypeError, Source, Span, with_article
from kernelab.frontend.meaning.frame import Mistake
from kernelab.frontend.meaning.meanings import (
    BuiltinRef,
    Meaning,
    ModuleRef,
    Poison,
    StructRef,
    TupleOf,
    TypeRef,
    Weak,
    describe,
)
from kernelab.frontend.meaning.name_lookup import Scope, Unknown, meaning_of, named_in
from kernelab.frontend.meaning.source import Places, annotations_of
from kernelab.frontend.meaning.syntax_trees import expression_of, nodes, word
from kernelab.frontend.meaning.trial import NOT_RUN
from kernelab.host.traced import follow
from kernelab.lang.rounding import rounded, widened
from kernelab.lang.structs import AnyType, Field, Struct, StructArray, unfit_for_arrays
from kernelab.lang.types import (
    LARGEST,
    Array,
    Mat,
    Quat,
    Scalar,
    Transform,
    Value,
    Vec,
    float32,
    scalar_of,
    shape_of,
    size_of,
)

DIMENSIONS = {
    head + suffix: ndim
    for head in ("array", "indexedarray")
    for suffix, ndim in (("", 1), ("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4))
}
"""The words for array types; in a kernel, picked elements are elements like others."""

_OF_STRUCTS = "for a struct, write the class in a %%kernel cell, or @kl.struct above it"
_HINT = "write float, int, vec3, array[float], array2d[float], ..."
_ARRAY = "write array[float], or array2d[float] for two dimensions: a launch takes arrays of others, too"


def annotation(scope: Scope, places: Places, node: ast.expr) -> AnyType:
    """The type that an annotation means; raises Mistake."""
    type = _meant(scope, places, node)
    if isinstance(type, Vec | Mat) and size_of(type) == 0:
        hint = "leave it out: there is nothing to hand over"
        raise _mistake(places, node, f"{type} has no components", hint)
    return type


def _meant(scope: Scope, places: Places, node: ast.expr) -> AnyType:
    match node:
        case ast.Constant(value=str() as text):
            return annotation(scope, places, _parsed(places, node, text))
        case ast.Name(name) if isinstance(scope.namespace.get(name), Array | StructArray):
            alias: Array | StructArray = scope.namespace[name]
            return alias
        case ast.Subscript(value=head, slice=elem):
            return _subscripted(scope, places, node, head, elem)
        case ast.Call(func=head):
            return _called(scope, places, node, head)
        case _:
            return _named(scope, places, node)


def is_any(node: ast.expr, scope: Scope) -> bool:
    """Whether an annotation leaves the type to the call: `Any`, a function, or an array or vector of `Any`.

    Names may stand for `Any`, or for what `kernelab.types` or `typing` has for several types.
    """
    return any(_stands_for_any(part, scope) for part in ast.walk(node))


def _stands_for_any(node: ast.AST, scope: Scope) -> bool:
    match node:
        case ast.Constant(value=str() as text):
            return text.rpartition(".")[2] == "Any"
        case ast.Name(name):
            value = scope.assigned.get(name, scope.namespace.get(name))
        case ast.Attribute(value=inner, attr=name):
            value = getattr(scope.namespace.get(word(inner)), name, None)
        case _:
            return False
    is_open = name in ("Any", "Function", "Callable") or value is Any
    return is_open or isinstance(value, TypeVar) or type(value).__name__ == "AnyOf"


def open_ndim(node: ast.expr) -> int | None:
    """The number of dimensions of an array of `Any`; None for an annotation that is not an array."""
    match node:
        case ast.Subscript(value=head, slice=ast.Tuple(elts=[_, ast.Constant(value=int() as ndim)])):
            return ndim if word(head) in DIMENSIONS else None
        case ast.Subscript(value=head):
            return DIMENSIONS.get(word(head))
        case ast.Call(func=head, keywords=words) if word(head) in DIMENSIONS:
            match {keyword.arg: keyword.value for keyword in words}.get("ndim"):
                case ast.Constant(value=int() as ndim):
                    return ndim
                case _:
                    return DIMENSIONS[word(head)]
        case _:
            return None


def _parsed(places: Places, node: ast.Constant, text: str) -> ast.expr:
    try:
        parsed = expression_of(text)
    except SyntaxError:
        raise _mistake(places, node, f"'{text}' is not a type", _HINT) from None
    for inner in ast.walk(parsed):
        ast.copy_location(inner, node)
    return parsed


def _mistake(
    places: Places, node: ast.expr, message: str, hint: str = "", code: str = "annotation"
) -> Mistake:
    return Mistake.of(message, code, hint, places(node))


def _meaning(scope: Scope, places: Places, node: ast.expr) -> Meaning:
    try:
        match node:
            case ast.Name(name):
                return scope.lookup(name)
            case ast.Attribute(value=inner, attr=attr):
                module = _meaning(scope, places, inner)
                if isinstance(module, ModuleRef):
                    return scope.attribute(module, attr)
    except Unknown as unknown:
        raise _mistake(places, node, unknown.message, unknown.hint, "name") from None
    except Mistake as mistake:
        is_array = isinstance(node, ast.Attribute) and node.attr in ("Tensor", "ndarray", "Array")
        if not is_array:
            raise
        raise Mistake(replace(mistake.diagnostic, hint=_ARRAY)) from None
    raise _mistake(places, node, f"{places.text(node)} is not a type", _HINT)


def _named(scope: Scope, places: Places, node: ast.expr) -> AnyType:
    match _meaning(scope, places, node):
        case StructRef(struct):
            return struct
        case Poison(unknown=True):
            raise _mistake(places, node, "", code=NOT_RUN)
        case Poison():
            raise _mistake(places, node, f"{places.text(node)} has a mistake of its own")
        case TypeRef(type):
            return type
        case BuiltinRef(name) if name in DIMENSIONS:
            hint = f"write «{name}[float]»"
            raise _mistake(places, node, f"{name} does not say what its elements are", hint)
        case meaning:
            is_class = isinstance(meaning, ModuleRef) and inspect.isclass(meaning.module)
            hint = _OF_STRUCTS if is_class else _HINT
            raise _mistake(places, node, f"{places.text(node)} is {describe(meaning)}, not a type", hint)


def _dimensions(scope: Scope, places: Places, node: ast.expr, head: ast.expr) -> int:
    match _meaning(scope, places, head):
        case BuiltinRef(name) if name in DIMENSIONS:
            return DIMENSIONS[name]
        case meaning:
            inside = places.text(node).removeprefix(text := places.text(head))
            like = f"array{inside.count(',') + 1}d" if "," in inside else "array"
            hint = f"write «{like}[{text}]»" if ":" in inside and isinstance(meaning, TypeRef) else _HINT
            raise _mistake(places, node, f"{describe(meaning)} takes nothing in brackets as a type", hint)


def _subscripted(scope: Scope, places: Places, node: ast.expr, head: ast.expr, elem: ast.expr) -> AnyType:
    ndim = _dimensions(scope, places, node, head)
    match elem:
        case ast.Tuple(elts=[inner, ast.Constant(value=int() as stated)]) if ndim == 1:
            return _array(scope, places, node, inner, stated)
        case _:
            return _array(scope, places, node, elem, ndim)


def _shaped(scope: Scope, places: Places, node: ast.Call, name: str) -> Value:
    def said(part: ast.expr) -> Meaning:
        match part:
            case ast.Constant(value=int() as number):
                return Weak(number)
            case ast.Tuple(elts=parts):
                return TupleOf(tuple(said(inner) for inner in parts))
            case _:
                return _meaning(scope, places, part)

    plain = [said(part) for part in node.args]
    named = {keyword.arg or "": said(keyword.value) for keyword in node.keywords}
    try:
        return shaped_type(name, type_words(name, plain, named))
    except Unshaped as error:
        raise _mistake(places, node, error.message, error.hint) from None


def _called(scope: Scope, places: Places, node: ast.Call, head: ast.expr) -> AnyType:
    match _meaning(scope, places, head):
        case BuiltinRef("vector" | "matrix" as name):
            return _shaped(scope, places, node, name)
    ndim = _dimensions(scope, places, node, head)
    words = {keyword.arg: keyword.value for keyword in node.keywords}
    words |= dict(zip(("dtype", "ndim"), node.args, strict=False))
    unknown = set(words) - {"dtype", "ndim"}
    if unknown or "dtype" not in words:
        hint = "write array(dtype=float, ndim=2)"
        raise _mistake(places, node, "an array annotation takes dtype and ndim", hint)
    match words.get("ndim"):
        case None:
            return _array(scope, places, node, words["dtype"], ndim)
        case ast.Constant(value=int() as wanted):
            return _array(scope, places, node, words["dtype"], wanted)
        case other:
            raise _mistake(places, other or node, "ndim is a number from 1 to 4")


def _array(scope: Scope, places: Places, node: ast.expr, elem: ast.expr, ndim: int) -> AnyType:
    type = annotation(scope, places, elem)
    if isinstance(type, Array | StructArray):
        hint = f"write array{type.ndim + ndim}d[{type.elem}]"
        raise _mistake(places, elem, "an array cannot hold arrays", hint)
    if not 1 <= ndim <= 4:
        raise _mistake(places, node, f"an array has 1 to 4 dimensions, not {ndim}")
    if isinstance(type, Struct):
        unfit = unfit_for_arrays(type)
        if unfit is not None:
            raise _mistake(places, elem, *unfit)
        return StructArray(type, ndim)
    return Array(type, ndim)


# ----------------------------------------------------------------------------------------- types of any shape


IDENTITIES = ("identity", "quat_identity", "transform_identity")
ROTATIONS = ("quaternion", "transformation")
SHAPED_WORDS = ("vector", "matrix", *ROTATIONS, *IDENTITIES)
_EXAMPLES = {
    "quaternion": "x, y, z, w, dtype=float",
    "transformation": "p, q, dtype=float",
    "quat_identity": "dtype=float",
    "transform_identity": "dtype=float",
    "vector": "length=5, dtype=float",
    "matrix": "shape=(2, 3), dtype=float",
    "identity": "n=3, dtype=float",
}
_KEYWORDS = {name: tuple(re.findall(r"(\w+)=", example)) for name, example in _EXAMPLES.items()}


class Unshaped(Exception):
    """The words do not say which type; the message says what is missing, `hint` what to write."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = f"write {name}({_EXAMPLES[name]})"


def type_words(name: str, plain: Sequence[Meaning], named: Mapping[str, Meaning]) -> Mapping[str, Meaning]:
    """The words of a type by name; raises Unshaped."""
    words = dict(zip(_KEYWORDS[name], plain, strict=False)) | dict(named)
    if len(plain) > len(_KEYWORDS[name]) or set(words) - set(_KEYWORDS[name]):
        raise Unshaped(name, f"{name} takes {' and '.join(_KEYWORDS[name])}")
    return words


def shaped_type(name: str, words: Mapping[str, Meaning], components: Sequence[Value] = ()) -> Vec | Mat:
    """The type that the words of `vector`, `matrix` or `identity` name.

    What they leave out, components say; raises Unshaped where neither does.
    """
    scalar = _component_scalar(name, words.get("dtype"), components)
    match name, words.get(_KEYWORDS[name][0]):
        case (("quat_identity" | "transform_identity" | "quaternion" | "transformation"), _) if (
            not scalar.is_float
        ):
            raise Unshaped(name, f"{name} holds floats, not {scalar}")
        case "quat_identity" | "quaternion", _:
            return Quat(scalar)
        case "transform_identity" | "transformation", _:
            return Transform(scalar)
        case "vector", Weak(int() as n):
            type: Vec | Mat = Vec(scalar, n)
        case "vector", None if len(components) > 1:
            type = Vec(scalar, sum(size_of(part) for part in components))
        case "matrix", TupleOf((Weak(int() as n), Weak(int() as m))):
            type = Mat(scalar, n, m)
        case "identity", Weak(int() as n):
            type = Mat(scalar, n, n)
        case _, None:
            raise Unshaped(name, f"{name} does not say its {_KEYWORDS[name][0]}")
        case _:
            message = f"the {_KEYWORDS[name][0]} of {name} has to be known when the kernel is compiled"
            raise Unshaped(name, message)
    if min(type.shape) < 0 or size_of(type) > LARGEST:
        raise Unshaped(name, f"a kernel value holds at most {LARGEST} numbers, not {size_of(type)}")
    return type


def identity_pattern(type: Vec | Mat) -> Sequence[bool]:
    """The components of an identity that are 1, the others being 0."""
    if isinstance(type, Mat):
        return [i == j for i in range(type.n) for j in range(type.m)]
    return [i == type.n - 1 for i in range(type.n)]


def _component_scalar(name: str, dtype: Meaning | None, components: Sequence[Value]) -> Scalar:
    match dtype:
        case TypeRef(Scalar() as scalar):
            return scalar
        case None:
            return scalar_of(components[0]) if components else float32
        case _:
            raise Unshaped(name, f"the dtype of {name} has to be a type of numbers")


# --------------------------------------------------------------------------------------------------- classes


@dataclass(frozen=True, slots=True)
class StructDefinition:
    """A struct that a cell defines."""

    name: str
    struct: Struct
    span: Span


Evaluate = Callable[[ast.expr], Any]


def lower_class(
    node: ast.ClassDef, places: Places, scope: Scope, evaluate: Evaluate
) -> tuple[StructDefinition | None, list[Diagnostic]]:
    """The struct that a class statement defines, None where it has mistakes, and these."""
    errors = list(_refused(node, places))
    fields: dict[str, Field] = {}
    for stmt in node.body:
        if not isinstance(stmt, ast.AnnAssign) or not isinstance(stmt.target, ast.Name):
            continue
        name = stmt.target.id
        try:
            if name.startswith("_"):
                raise Mistake(_underscore(name, places(stmt)))
            if name in fields:
                raise Mistake.of(f"{node.name} has two fields {name}", "name", span=places(stmt))
            if _names(stmt.annotation, node.name):
                raise Mistake(_recursive(node.name, places(stmt.annotation)))
            type = annotation(scope, places, stmt.annotation)
            default = None if stmt.value is None else evaluate(stmt.value)
            fields[name] = Field(name, type, _default(type, default, name, places(stmt)))
        except Mistake as mistake:
            errors.append(mistake.diagnostic)
    if errors:
        return None, errors
    doc = ast.get_docstring(node) or ""
    return StructDefinition(node.name, Struct(node.name, tuple(fields.values()), doc), places.head(node)), []


def _refused(node: ast.ClassDef, places: Places) -> Iterator[Diagnostic]:
    if node.bases or node.keywords:
        first = node.bases[0] if node.bases else node.keywords[0].value
        yield _base(node.name, places(first))
    for decorator in node.decorator_list:
        match decorator:
            case ast.Name("struct") | ast.Attribute(attr="struct"):
                pass
            case _:
                message = f"the decorator @{ast.unparse(decorator)} is not known here"
                hint = "a class of a kernel cell may be decorated with @struct"
                yield Diagnostic(message, places(decorator), "name", hint=hint)
    for stmt in node.body:
        match stmt:
            case ast.AnnAssign(target=ast.Name()) | ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield _method(node.name, stmt.name, places.head(stmt))
            case ast.Assign(targets=[ast.Name(name)]):
                hint = f"write {name}: float = ..."
                yield Diagnostic(f"the field {name} has no type", places(stmt), "annotation", hint=hint)
            case _:
                hint = "write one line for each field, such as mass: float"
                message = f"the struct {node.name} holds fields only"
                yield Diagnostic(message, places.first_line(stmt), "unsupported", hint=hint)


def _base(name: str, span: Span | None) -> Diagnostic:
    hint = "make the other struct the type of a field"
    return Diagnostic(f"the struct {name} cannot inherit from a class", span, "unsupported", hint=hint)


def _method(name: str, method: str, span: Span | None) -> Diagnostic:
    hint = f"write a function that takes the struct: def {method}(s: {name}, ...)"
    return Diagnostic(f"the struct {name} cannot have the method {method}", span, "unsupported", hint=hint)


def _underscore(name: str, span: Span | None) -> Diagnostic:
    message = f"the name of a field cannot begin with an underscore, as {name} does"
    return Diagnostic(message, span, "name", hint=f"call it {name.strip('_') or 'value'}")


def _recursive(name: str, span: Span | None) -> Diagnostic:
    message = f"the struct {name} cannot hold itself"
    return Diagnostic(message, span, "annotation", hint="keep an index into an array of structs instead")


def _names(node: ast.expr, name: str) -> bool:
    return any(
        (isinstance(part, ast.Name) and part.id == name)
        or (isinstance(part, ast.Constant) and part.value == name)
        for part in nodes(node)
    )


def _default(type: AnyType, value: Any, name: str, span: Span | None) -> Any:
    """A default as a Python number or a NumPy array of the field's type, with its origins; raises Mistake."""
    if value is None:
        return None
    if not isinstance(type, Scalar | Vec | Mat):
        message = f"the field {name} of type {type} cannot have a default"
        raise Mistake.of(message, "value", "set it where the struct is made", span)
    array = widened(np.asarray(value))
    kinds = {"bool": "b", "int": "iu", "uint": "iu", "float": "iuf"}[scalar_of(type).kind]
    if array.dtype.kind not in kinds or array.shape != shape_of(type):
        message = f"the default of {name} is {value!r}, not {with_article(type)}"
        raise Mistake.of(message, "value", span=span)
    stored = rounded(array, scalar_of(type).dtype)
    return follow(stored.item() if isinstance(type, Scalar) else stored, value)


# ------------------------------------------------------------------------- classes of plain Python


def struct_of(cls: type, namespace: Mapping[str, Any]) -> Struct:
    """The struct of a Python class with annotations; raises KernelTypeError."""
    name = cls.__name__
    if cls.__bases__ != (object,):
        raise KernelTypeError(_base(name, None))
    for attr, value in vars(cls).items():
        is_method = isinstance(value, FunctionType | classmethod | staticmethod | property)
        if is_method and attr != "__annotate_func__":  # which Python 3.14 keeps annotations in
            raise KernelTypeError(_method(name, attr, None))
    try:
        fields = [_field(cls, entry, stated, namespace) for entry, stated in annotations_of(cls).items()]
    except Mistake as mistake:
        raise KernelTypeError(mistake.diagnostic) from None
    return Struct(name, tuple(fields), cls.__doc__ or "")


def _field(cls: type, name: str, annotation: Any, namespace: Mapping[str, Any]) -> Field:
    if name.startswith("_"):
        raise Mistake(_underscore(name, None))
    type = _type(cls.__name__, name, annotation, namespace)
    return Field(name, type, _default(type, vars(cls).get(name), name, None))


def _type(struct: str, field: str, stated: Any, namespace: Mapping[str, Any]) -> AnyType:
    if isinstance(stated, str):
        tree = expression_of(stated)
        if _names(tree, struct):
            raise Mistake(_recursive(struct, None))
        scope = Scope({}, {}, named_in(tree, namespace), namespace)
        return annotation(scope, Places(Source(stated, f"the field {field} of {struct}")), tree)
    if isinstance(stated, Array | StructArray):
        return stated
    match meaning_of(field, stated):
        case TypeRef(type):
            return type
        case StructRef(inner):
            return inner
        case _:
            message = f"the field {field} of {struct} is annotated with {stated!r}, which is not a type"
            raise Mistake.of(message, "annotation", "write float, kl.vec3, kl.array[float], ...")
