"""A class of a cell, or a Python class with annotations, as a struct: fields with types and defaults.

Methods, base classes and fields of the struct itself are refused.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass
from kernelab.errors import Diagnostic, KernelTypeError, Source, Span, with_article
from kernelab.frontend.meaning.annotations import annotation
from kernelab.frontend.meaning.frame import Mistake
from kernelab.frontend.meaning.meanings import StructRef, TypeRef
from kernelab.frontend.meaning.name_lookup import Scope, meaning_of, named_in
from kernelab.frontend.meaning.source import Places, annotations_of
from kernelab.frontend.meaning.syntax_trees import expression_of, nodes
from kernelab.lang.rounding import rounded, widened
from kernelab.lang.structs import AnyType, Field, Struct, StructArray
from kernelab.lang.types import Array, Mat, Scalar, Vec, scalar_of, shape_of


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
                raise Mistake(Diagnostic(f"{node.name} has two fields {name}", places(stmt), "name"))
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
    message = f"the struct {name} cannot have the method {method}"
    hint = f"write a function that takes the struct: def {method}(s: {name}, ...)"
    return Diagnostic(message, span, "unsupported", hint=hint)


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
    """A default as a Python number or a NumPy array of the field's type; raises Mistake."""
    if value is None:
        return None
    if not isinstance(type, Scalar | Vec | Mat):
        message = f"the field {name} of type {type} cannot have a default"
        raise Mistake(Diagnostic(message, span, "value", hint="set it where the struct is made"))
    array = widened(np.asarray(value))
    kinds = {"bool": "b", "int": "iu", "uint": "iu", "float": "iuf"}[scalar_of(type).kind]
    if array.dtype.kind not in kinds or array.shape != shape_of(type):
        raise Mistake(
            Diagnostic(f"the default of {name} is {value!r}, not {with_article(type)}", span, "value")
        )
    stored = rounded(array, scalar_of(type).dtype)
    return stored.item() if isinstance(type, Scalar) else stored


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
            raise Mistake(
                Diagnostic(message, None, "annotation", hint="write float, kl.vec3, kl.array[float], ...")
            )
