"""Refuses Python constructs that a kernel cannot contain, and says what to write instead."""

import ast
import builtins
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from kernelab.errors import Diagnostic
from kernelab.frontend.meaning.meanings import ArrayRef, BuiltinRef, FunctionRef, Meaning, Typed
from kernelab.frontend.meaning.source import Places
from kernelab.frontend.meaning.syntax_trees import word
from kernelab.guidance.hint_tables import NAMES, OF_ARRAYS, SYNTAX, Guidance
from kernelab.lang import ops
from kernelab.lang.ops import ScalarPattern
from kernelab.lang.types import Mat, Quat, Scalar, Transform, Vec

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


def check(function: ast.FunctionDef, places: Places) -> dict[ast.AST, Diagnostic]:
    """The constructs of a def that a kernel cannot contain, in the order of the text, with their messages."""
    stars = [star for star in (function.args.vararg, function.args.kwarg) if star is not None]
    refusals: list[tuple[ast.AST, str]] = [(star, "star_parameters") for star in stars]
    for stmt in function.body:
        refusals += refused(stmt)
    return {node: _diagnostic(refusal, node, places) for node, refusal in refusals}


def refusal_of(name: str) -> Guidance:
    """Why a construct is refused, and what to write instead, by the name of its node or of its case."""
    guidance = SYNTAX.find(name)
    assert guidance is not None
    return guidance


def _diagnostic(name: str, node: ast.AST, places: Places) -> Diagnostic:
    assert isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword)
    refusal = refusal_of(name)
    span = places.first_line(node) if isinstance(node, ast.stmt) else places(node)
    return Diagnostic(refusal.reason, span, "unsupported", hint=refusal.hint)


def refused(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The outermost refused constructs inside a statement or expression, each with its entry of SYNTAX."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.__class__ in _NAMES:
            continue
        refusal = _refusal(node)
        if refusal is not None:
            yield node, refusal
            continue
        waiting += reversed([*_children(node)])


_BY_PARTS = (ast.For, ast.Compare, ast.Constant, ast.Subscript, ast.keyword, ast.BinOp, ast.Call)
"""The classes of nodes that are refused for what is in them."""

_LEAVES = (ast.Name, ast.Constant, ast.operator, ast.expr_context)
_NAMES = frozenset({ast.Name, ast.Load, ast.Store})
"""Leaves that are never refused."""


def _refusal(node: ast.AST) -> str | None:
    """The entry of SYNTAX for a construct that is refused."""
    if not isinstance(node, _BY_PARTS):
        return _named(type(node).__name__)
    match node:
        case ast.For(iter=ast.Call(func=ast.Name("map" | "filter" | "sorted"))):
            return "keys"
        case ast.For(iter=iterable) if not _may_be_known(iterable):
            return "iteration"
        case ast.For(target=target, iter=iterable) if range_of(iterable) and not isinstance(target, ast.Name):
            return "target"
        case ast.Compare(ops=[operator], comparators=[ast.Constant(value=None)]) if is_identity(operator):
            return None
        case ast.Compare(ops=operators) if any(map(is_identity, operators)):
            return "identity"
        case ast.Compare(ops=[_, _, *_] as operators) if any(is_search(op) for op in operators):
            return "membership"
        case ast.Constant(value=str() | bytes()):
            return "text"
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod() | ast.Add()):
            return "formatting"
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format" | "join")):
            return "formatting"
        case ast.Subscript(slice=ast.Constant(value=types.EllipsisType())):
            return "ellipsis"
        case ast.Subscript(slice=ast.Tuple(elts=[])):
            return "no_index"
        case ast.Subscript(slice=ast.Constant(value=None) | ast.Tuple(elts=[*_, ast.Constant(value=None)])):
            return "new_axis"
        case ast.Constant(value=complex()):
            return "complex"
        case ast.Constant(value=None):
            return "nothing"
        case ast.Constant(value=types.EllipsisType()):
            return "dots"
        case ast.keyword(arg=None):
            return "star_call"
        case _:
            return _named(type(node).__name__)


@cache
def _named(name: str) -> str | None:
    return name if SYNTAX.find(name) is not None else None


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that are looked at: no docstrings, messages, annotations or static parts."""
    if isinstance(node, _LEAVES):
        return
    match node:
        case ast.BinOp(left=left, op=operator, right=right):
            yield from (left, operator, right)
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
        case ast.Call(func=func) if word(func) == "static":
            return
        case ast.Call(args=args, keywords=words) if is_range(node):
            yield from (*args, *(word for word in words if word.arg != "adjoint"))
        case ast.Call(func=func) if word(func) in ("print", "printf"):
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
    return word(node) in ("float", "float16", "float32", "float64", "bfloat16")


def is_text(node: ast.expr) -> bool:
    """Whether an expression is text in quotes."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def range_of(node: ast.expr) -> ast.Call | None:
    """The call of `range` that a loop goes over, forwards or in `reversed(...)`."""
    match node:
        case ast.Call(func=callee, args=[inner], keywords=[]) if word(callee) == "reversed":
            return inner if isinstance(inner, ast.Call) and is_range(inner) else None
        case ast.Call() if is_range(node):
            return node
        case _:
            return None


def known_range(bounds: Iterable[int | None]) -> range | None:
    """The range of these bounds; None where one of them is not known, or they are none of a range."""
    stated = list(bounds)
    numbers = [number for number in stated if number is not None]
    is_valid = len(numbers) == len(stated) and 1 <= len(numbers) <= 3 and numbers[2:] != [0]
    return range(*numbers) if is_valid else None


def is_range(node: ast.expr) -> bool:
    """Whether an expression is a call of `range`, bare or with a prefix."""
    return isinstance(node, ast.Call) and word(node.func) == "range"


# ------------------------------------------------------------------------------------------------------ hints


_METHODS_OF_VECTORS = {
    "norm": "length",
    "magnitude": "length",
    "mag": "length",
    "normalized": "normalize",
    "sqrmagnitude": "length_sq",
    "norm_sqr": "length_sq",
    "norm_sq": "length_sq",
    "length_squared": "length_sq",
    "det": "determinant",
    "inv": "inverse",
}
_COLOURS = dict(zip("rgba", "xyzw", strict=True))


def hint_of_name(name: str) -> str:
    """The hint for a name that means nothing in a kernel; empty where nothing is known."""
    is_pythons = not name.startswith("_") and callable(getattr(builtins, name, None))
    return NAMES.hint(name) or ("it is Python's, and has no meaning in a kernel" if is_pythons else "")


def hint_of_value(base: Meaning, attribute: str, text: str) -> str:
    """The hint for `text.attribute`; empty where nothing is known."""
    if isinstance(base, ArrayRef):
        hint = OF_ARRAYS.hint(attribute.rstrip("_"))
        return hint or _as_call(attribute, f"{text}[i]", 1)
    match base.type if isinstance(base, Typed) else None:
        case Transform():
            return ""
        case Vec(_, n) if set(attribute) <= set(_COLOURS) and n <= 4:
            return f"write «{text}.{''.join(_COLOURS[letter] for letter in attribute)}»"
        case Vec() | Mat():
            return _as_call(_METHODS_OF_VECTORS.get(attribute.lower(), attribute), text)
        case Scalar() if attribute.rstrip("_") in ("grad", "backward", "requires_grad"):
            return OF_ARRAYS.hint("grad")
        case Scalar():
            if attribute in ("detach", "stop_gradient"):
                return f"write «stop_gradient({text})»"
            if attribute in ("item", "value", "real"):
                return "it is one number already"
            hint = _as_call(attribute, text)
            return hint if hint or OF_ARRAYS.find(attribute) else NAMES.hint(attribute)
        case _:
            return ""


def hint_of_uncalled(value: Meaning, text: str) -> str:
    """The hint where `tid` itself stands for the index, or a function is indexed; else empty."""
    if value == BuiltinRef("tid"):
        return f"write «{text}()»"
    is_function = isinstance(value, BuiltinRef | FunctionRef)
    return f"what a function takes stands in parentheses: write {text}(...)" if is_function else ""


def hint_of_method(name: str, text: str) -> str:
    """The hint where a property is called like a method."""
    if name == "size":
        return f"write «{text}.shape[0]» for its length, {text}.size without brackets for all elements"
    return _as_call(name, text) or f"write «{text}.{name}» without brackets"


def _as_call(attribute: str, text: str, most: int = 2) -> str:
    """`v.dot(w)` is `dot(v, w)`."""
    counts = [len(op.params) for op in ops.overloads(attribute)]
    if not counts or min(counts) > most:
        return ""
    return f"write {attribute}({text}, ...)" if min(counts) > 1 else f"write «{attribute}({text})»"


def hint_of_operator(name: str, operands: tuple[str, str], kinds: tuple[object, object]) -> str:
    """The hint for an operator between two vectors, or for one of C's; empty where nothing is known."""
    left, right = operands
    vectors = [type(kind) is Vec for kind in kinds]
    match name:
        case "mul" if all(vectors):
            return (
                f"write «cw_mul({left}, {right})» for each component, or «dot({left}, {right})» for their sum"
            )
        case "mul" | "matmul" if isinstance(kinds[0], Quat) and vectors[1]:
            return f"write «quat_rotate({left}, {right})» for the vector turned"
        case "matmul" if all(vectors):
            return f"write «dot({left}, {right})»"
        case "div" if all(isinstance(kind, Vec | Mat) for kind in kinds):
            return f"write «cw_div({left}, {right})»"
        case "cw_div" if all(isinstance(kind, Vec | Mat) and kind.scalar.is_int for kind in kinds):
            return f"it divides floats: write «{left} // {right}» for ints, rounded down"
        case "pow" | "bit_xor" if isinstance(kinds[0], Mat):
            return f"write «{left} @ {left}» for the product with itself"
        case "pow" | "bit_xor" if isinstance(kinds[0], Vec) and vectors[0]:
            powers = ", ".join(f"{left}[{k}] ** {right}" for k in range(kinds[0].n))
            is_square = right in ("2", "2.0")
            each = f"cw_mul({left}, {left})" if is_square else f"{kinds[0]}({powers})"
            return f"write «{each}» for each component, or «dot({left}, {left})» for the sum of the squares"
        case "mul" if vectors[0] and isinstance(kinds[1], Mat):
            return f"write «{left} @ {right}», or «{right} * {left}»"
        case "bit_xor" if _any_float(kinds):
            return f"^ is a bit operation of ints: write «{left} ** {right}» for a power"
        case "bit_and" | "bit_or" if _any_float(kinds):
            word = "and" if name == "bit_and" else "or"
            return f"it is a bit operation of ints: write {word} between conditions«/ *[&|] */ {word} /»"
        case "shl" | "shr" if _any_float(kinds):
            return "it shifts the bits of ints: write int(...), or multiply by a power of two"
        case "lt" | "le" | "gt" | "ge" if any(vectors):
            return "compare one component, or length(...), at a time"
        case _:
            return ""


def hint_of_each_component(name: str, text: str, kind: Vec | Mat, others: Sequence[str] = ()) -> str:
    """The hint for a function of numbers that is given a vector or a matrix."""
    taken = [[p.pattern for p in op.params] for op in ops.overloads(name)]
    if not any(len(each) == len(others) + 1 and isinstance(each[0], ScalarPattern) for each in taken):
        return ""
    if isinstance(kind, Mat) or kind.n > 4:
        return f"it takes one number: write a loop over the components of {text}"
    parts = ", ".join(f"{name}({', '.join((f'{text}[{k}]', *others))})" for k in range(kind.n))
    return f"it takes one number: write «{kind}({parts})»"


def hint_of_call(name: str, arguments: Sequence[str]) -> str:
    """The hint for a call with too few or too many arguments; empty where nothing is known."""
    if any(tag.startswith("draws ") for op in ops.overloads(name) for tag in op.tags) and len(arguments) != 1:
        return f"write state = rand_init(seed, i) first, then {name}(state)"
    if name in ("round", "rint") and len(arguments) == 2:
        return "it rounds to a whole number: write round(x * 100.0) / 100.0 for two places"
    if name in ("where", "select") and len(arguments) == 2:
        shown = ", ".join(arguments)
        return f"write where({shown}, other): the last one is taken where the condition does not hold"
    if name == "atan" and len(arguments) == 2:
        return f"write «atan2({', '.join(arguments)})»"
    if name == "step" and len(arguments) == 2:
        return "it is 1 where its one argument is negative: write float(x >= edge) for a step up at an edge"
    if name == "log" and len(arguments) == 2:
        known = {"2": "log2", "10": "log10"}.get(arguments[1].removesuffix(".0"))
        value, base = arguments
        return f"write «{known}({value})»" if known else f"write «log({value}) / log({base})»"
    return ""


def _any_float(kinds: tuple[object, object]) -> bool:
    return any(isinstance(kind, Scalar) and kind.is_float for kind in kinds)
