"""The fence: what Python has and a kernel cannot contain, each with a sentence and what to write instead.

Looks at the syntax alone; knows no types and no names but `range`, `static`, `print` and `printf`.
"""

import ast
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kernelab.errors import Diagnostic
from kernelab.frontend.source import Places


class Refusal(NamedTuple):
    """Why a construct is refused, and what to write instead."""

    message: str
    hint: str


_COMPREHENSION = Refusal(
    "a kernel cannot build a list", "write a for loop that adds up or stores what you need"
)
_CONTAINER = Refusal(
    "a kernel has no {0}", "use vec2, vec3 or vec4 for a few numbers and array parameters for many"
)
_ASYNC = Refusal(
    "a kernel cannot wait for anything: async and await have no meaning in it", "write a plain def"
)
_SCOPE = Refusal(
    "a kernel cannot assign to a variable outside of itself", "write the result into an array parameter"
)

REFUSALS: dict[type[ast.AST], Refusal] = {
    ast.Lambda: Refusal(
        "a kernel cannot contain a lambda", "define the function with def above the kernel and call it"
    ),
    ast.ListComp: _COMPREHENSION,
    ast.SetComp: _COMPREHENSION,
    ast.DictComp: _COMPREHENSION,
    ast.GeneratorExp: _COMPREHENSION,
    ast.List: Refusal(*(part.format("lists") for part in _CONTAINER)),
    ast.Dict: Refusal(*(part.format("dictionaries") for part in _CONTAINER)),
    ast.Set: Refusal(*(part.format("sets") for part in _CONTAINER)),
    ast.Try: Refusal("a kernel cannot catch exceptions", "test for the bad case with an if"),
    ast.TryStar: Refusal("a kernel cannot catch exceptions", "test for the bad case with an if"),
    ast.Raise: Refusal("a kernel cannot raise an exception", 'write assert condition, "message"'),
    ast.With: Refusal("a kernel cannot contain a with block", "open what you need outside of the kernel"),
    ast.ClassDef: Refusal("a kernel cannot define a class", "define it outside of the kernel"),
    ast.FunctionDef: Refusal(
        "a kernel cannot define a function", "move the def above the kernel and call it"
    ),
    ast.AsyncFunctionDef: _ASYNC,
    ast.AsyncFor: _ASYNC,
    ast.AsyncWith: _ASYNC,
    ast.Await: _ASYNC,
    ast.Yield: Refusal("a kernel cannot yield", "store the values into an array parameter"),
    ast.YieldFrom: Refusal("a kernel cannot yield", "store the values into an array parameter"),
    ast.Global: _SCOPE,
    ast.Nonlocal: _SCOPE,
    ast.Delete: Refusal(
        "a kernel cannot delete anything", "leave the del out: variables end with the kernel"
    ),
    ast.Import: Refusal("a kernel cannot import a module", "move the import to the top of the cell"),
    ast.ImportFrom: Refusal("a kernel cannot import a module", "move the import to the top of the cell"),
    ast.Starred: Refusal("a kernel cannot unpack with a star here", "write the values one by one"),
    ast.NamedExpr: Refusal(
        "a kernel cannot assign inside an expression here", "assign on a line of its own, then use the name"
    ),
    ast.Match: Refusal("a kernel cannot contain a match statement", "write if, elif and else"),
    ast.JoinedStr: Refusal("a kernel cannot build text", 'write print("x =", x), or printf("x = %f\\n", x)'),
}

_IDENTITY = Refusal("a kernel cannot compare with is", "write == or !=")
MEMBERSHIP = Refusal(
    "a kernel cannot search with in here", "write x in (a, b, c), or a for loop that compares"
)
ITERATION = Refusal(
    "a loop goes over range(...), arrays, vectors and tuples, not over this",
    "write for i in range(len(x)) and use x[i]",
)
_KEYS = Refusal(
    "a loop in a kernel cannot sort, filter or map", "write for i in range(n), with an if in its body"
)
_TARGET = Refusal("the index of a loop has to be one name", "write for i in range(...)")
_TEXT = Refusal(
    "a kernel cannot use text as a value", "use a number, for example an int that stands for the case"
)
_NOTHING = Refusal("a kernel has no None", "use a number that stands for nothing, for example -1")
_COMPLEX = Refusal("a kernel has no complex numbers", "use a vec2 for the real and the imaginary part")
_STAR_PARAMETERS = Refusal("a kernel cannot take *args or **kwargs", "name every argument, or pass an array")
_ELLIPSIS = Refusal(
    "a kernel cannot select with ...", "write x[:] for a whole array, x[i] for a row or an element"
)
_DOTS = Refusal("a kernel has no ...", "write what it stands for")
_NO_INDEX = Refusal(
    "there is no index in these brackets", "write x[i] for an element, x[:] for a whole array"
)
_STAR_CALL = Refusal("a call in a kernel cannot unpack with **", "write the arguments one by one")


_ITERATORS = ("map", "filter", "iter", "list", "sorted", "reversed")


def _may_be_known(iterable: ast.expr) -> bool:
    """Whether a loop may go over this: `range`, or what may turn out to have a few items that are known."""
    match iterable:
        case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Tuple() | ast.List():
            return True
        case ast.Call(func=ast.Name(name)):
            return name not in _ITERATORS or range_of(iterable) is not None
        case _:
            return isinstance(iterable, ast.Call)


@dataclass(frozen=True, slots=True)
class Checked:
    """What the fence refuses of a def: the constructs, and what to say about them."""

    nodes: frozenset[ast.AST]
    diagnostics: tuple[Diagnostic, ...]


def check(function: ast.FunctionDef, places: Places) -> Checked:
    """What of a def a kernel cannot contain, in the order of the text."""
    stars = [star for star in (function.args.vararg, function.args.kwarg) if star is not None]
    found: list[tuple[ast.AST, Refusal]] = [(star, _STAR_PARAMETERS) for star in stars]
    for stmt in function.body:
        found += refused(stmt)
    diagnostics = tuple(_diagnostic(refusal, node, places) for node, refusal in found)
    return Checked(frozenset(node for node, _ in found), diagnostics)


def _diagnostic(refusal: Refusal, node: ast.AST, places: Places) -> Diagnostic:
    assert isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword)
    span = places.first_line(node) if isinstance(node, ast.stmt) else places(node)
    return Diagnostic(refusal.message, span, "unsupported", hint=refusal.hint)


def refused(node: ast.AST) -> Iterator[tuple[ast.AST, Refusal]]:
    """The outermost refused constructs inside a statement or expression."""
    refusal = _refusal(node)
    if refusal is not None:
        yield node, refusal
        return
    for child in _children(node):
        yield from refused(child)


def _refusal(node: ast.AST) -> Refusal | None:
    match node:
        case ast.For(iter=ast.Call(func=ast.Name("map" | "filter" | "sorted"))):
            return _KEYS
        case ast.For(iter=iterable) if not _may_be_known(iterable):
            return ITERATION
        case ast.For(target=target, iter=iterable) if range_of(iterable) and not isinstance(target, ast.Name):
            return _TARGET
        case ast.Compare(ops=[operator], comparators=[ast.Constant(value=None)]) if is_identity(operator):
            return None
        case ast.Compare(ops=operators) if any(map(is_identity, operators)):
            return _IDENTITY
        case ast.Compare(ops=[_, _, *_] as operators) if any(is_search(op) for op in operators):
            return MEMBERSHIP
        case ast.Constant(value=str() | bytes()):
            return _TEXT
        case ast.Subscript(slice=ast.Constant(value=types.EllipsisType())):
            return _ELLIPSIS
        case ast.Subscript(slice=ast.Tuple(elts=[])):
            return _NO_INDEX
        case ast.Constant(value=complex()):
            return _COMPLEX
        case ast.Constant(value=None):
            return _NOTHING
        case ast.Constant(value=types.EllipsisType()):
            return _DOTS
        case ast.keyword(arg=None):
            return _STAR_CALL
        case _:
            return REFUSALS.get(type(node))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What of a node the fence looks into: not docstrings, messages, annotations or static expressions."""
    match node:
        case ast.Expr(value=ast.Constant(value=str() | types.EllipsisType())):
            return
        case ast.Return(value=ast.Constant(value=None)):
            return
        case ast.Assert(test=test):
            yield test
        case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
            yield from (target, *_written_items(iterable), *body, *orelse)
        case ast.Compare(left=left, ops=[operator]) if is_identity(operator):
            yield left
        case ast.Compare(left=left, ops=[operator], comparators=[searched]) if is_search(operator):
            yield from (left, *_written_items(searched))
        case ast.Call(func=func, args=[ast.Constant(value=str())], keywords=[]) if _is_float(func):
            return
        case ast.AnnAssign(target=target, value=value):
            yield target
            if value is not None:
                yield value
        case ast.Call(func=ast.Name("static") | ast.Attribute(attr="static")):
            return
        case ast.Call(args=args, keywords=words) if is_range(node):
            yield from (*args, *(word for word in words if word.arg != "adjoint"))
        case ast.Call(func=ast.Name("print" | "printf") | ast.Attribute(attr="print" | "printf")):
            values = [part for part in node.args if not is_text(part)]
            yield from (*values, *(word for word in node.keywords if not is_text(word.value)))
        case ast.Call(func=func, args=args, keywords=words):
            # What a star unpacks in a call is known once its type is.
            values = [part.value if isinstance(part, ast.Starred) else part for part in args]
            yield from (func, *values, *words)
        case _:
            yield from ast.iter_child_nodes(node)


def _written_items(node: ast.expr) -> list[ast.expr]:
    """The items of a list that is written where it is gone through; anything else itself."""
    return node.elts if isinstance(node, ast.List) else [node]


def is_identity(operator: ast.cmpop) -> bool:
    """Whether a comparison is `is` or `is not`."""
    return isinstance(operator, ast.Is | ast.IsNot)


def is_search(operator: ast.cmpop) -> bool:
    """Whether a comparison is `in` or `not in`."""
    return isinstance(operator, ast.In | ast.NotIn)


def _is_float(node: ast.expr) -> bool:
    """Whether an expression may be a type of floats, which `"inf"` and `"nan"` can be written of."""
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name in ("float", "float16", "float32", "float64", "bfloat16")
        case _:
            return False


def is_text(node: ast.expr) -> bool:
    """Whether an expression is text in quotes."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def range_of(node: ast.expr) -> ast.Call | None:
    """The call of `range` that a loop goes over, forwards or in `reversed(...)`."""
    match node:
        case ast.Call(func=ast.Name("reversed") | ast.Attribute(attr="reversed"), args=[inner], keywords=[]):
            return inner if isinstance(inner, ast.Call) and is_range(inner) else None
        case ast.Call() if is_range(node):
            return node
        case _:
            return None


def is_range(node: ast.expr) -> bool:
    """Whether an expression is a call of `range`, bare or with a prefix."""
    match node:
        case ast.Call(func=ast.Name("range") | ast.Attribute(attr="range")):
            return True
        case _:
            return False
