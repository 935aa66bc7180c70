"""What the text of the user's code says of numbers on their way: whether those of one line may reach another.

    r = math.sqrt(s.item())          line 3: the host takes a number, of which `math` loses sight
    launch(step, n, [x, 0.1 * r])    line 4: is given one that may come from it

For numbers that do not know their origins.  Names are followed within one function or cell, whatever the
order of its lines; conditions, comparisons and integers hand nothing on.  Knows Python's syntax and lines;
must not know arrays.
"""

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

from kernelab.runtime.recorder import Place

_TAKES = frozenset(("item", "numpy", "list", "float", "asarray", "float32", "float64", "from_dlpack"))
"""Functions and methods by which the host takes numbers out of arrays."""

_STEPS = (
    frozenset(
        ("int", "len", "bool", "range", "isinstance", "type", "print", "id", "any", "all", "sign", "floor")
    )
    | frozenset(
        ("argmax", "argmin", "argsort", "nonzero", "flatnonzero", "searchsorted", "digitize", "histogram")
    )
    | frozenset(
        ("ceil", "trunc", "rint", "zeros_like", "ones_like", "empty_like", "isnan", "isfinite", "isinf")
    )
    | frozenset(("allclose", "array_equal", "count_nonzero", "index", "heaviside"))
)
"""Functions and methods whose results do not follow the numbers that they are given, or only by jumps."""

_FACTS = frozenset(("shape", "size", "ndim", "dtype", "nbytes"))
"""Attributes that say nothing of numbers."""

_FILLS = frozenset(("append", "extend", "insert", "add", "update", "put", "fill", "appendleft", "setdefault"))
"""Methods that put numbers into the object."""

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def may_reach(taken: Place, used: Place, position: int | None = None, count: int = 0) -> bool | None:
    """Whether numbers of one line may be among those that another uses; None if the text does not tell.

    With a `position`, as that of the `count` arguments of a launch.  It tells where both lines stand in one
    function, or in one cell or module outside of any.
    """
    if taken.filename != used.filename:
        return None
    tree = _parsed("".join(linecache.getlines(taken.filename)))
    if tree is None:
        return None
    scope = _scope(tree, taken.line)
    if scope is not _scope(tree, used.line):
        return None
    way = _way(scope, taken.line)
    return any(way.uses(head, position, count) for head in _statements(scope) if _heads(head, used.line))


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if text else None
    except SyntaxError:
        return None


def _scope(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, or all of the text."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [node for node in ast.walk(tree) if isinstance(node, functions) and _covers(node, line)]
    return max(around, key=lambda node: node.lineno, default=tree)


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and bool(first <= line <= last)


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a scope, without those of functions and classes in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, _INNER):
            yield from _statements(child)


def _heads(statement: ast.stmt, line: int) -> bool:
    """Whether a line belongs to a statement itself, not to one within it."""
    return _covers(statement, line) and not any(_covers(inner, line) for inner in _statements(statement))


@lru_cache(maxsize=1024)
def _way(scope: ast.AST, taken: int) -> "_Way":
    way, before = _Way(taken), -1
    statements = list(_statements(scope))
    while before < len(way.names):
        before = len(way.names)
        for statement in statements:
            way.follow(statement)
    return way


class _Way:
    """The names that may hold what was taken on a line, and what is computed of it."""

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.names: set[str] = set()

    def follow(self, statement: ast.stmt) -> None:
        """Add the names to which a statement hands it on."""
        for target, value in _assigned(statement):
            if self.carries(value):
                self._mark(target)
        for node in _expressions(statement):
            match node:
                case ast.NamedExpr(target=target, value=value) if self.carries(value):
                    self._mark(target)
                case ast.comprehension(target=target, iter=values) if self.carries(values):
                    self._mark(target)
                case ast.Call():
                    self._fill(node)

    def _fill(self, call: ast.Call) -> None:
        """What a call puts into its object, its first argument or its `out`."""
        if not any(map(self.carries, _given(call))):
            return
        if isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS:
            self._mark(call.func.value)
        for keyword in call.keywords:
            if keyword.arg == "out":
                self._mark(keyword.value)
        if _last(call.func) == "copyto" and call.args:
            self._mark(call.args[0])

    def uses(self, statement: ast.stmt, position: int | None, count: int) -> bool:
        """Whether a statement hands it to what it calls, or stores it in elements of an array."""
        every = [_given(node) for node in _followed(statement)]
        launches = [] if position is None else [given[position] for given in every if len(given) == count]
        if launches:
            return any(map(self.carries, launches))
        stored = [value for target, value in _assigned(statement) if isinstance(target, ast.Subscript)]
        return any(any(map(self.carries, given)) for given in [*every, stored])

    def carries(self, value: ast.AST | None) -> bool:
        """Whether the value of an expression may follow what was taken."""
        match value:
            case None | ast.Constant() | ast.Compare() | ast.Lambda() | ast.Slice():
                return False
            case ast.Name():
                return value.id in self.names
            case ast.Attribute(value=inner, attr=name):
                return name not in _FACTS and (_name(value) in self.names or self.carries(inner))
            case ast.Subscript(value=inner, slice=index):
                taken = _covers(value, self.taken) and not isinstance(index, ast.Slice)
                return self.carries(inner) or (taken and isinstance(inner, ast.Name | ast.Attribute))
            case ast.IfExp(body=body, orelse=orelse):
                return self.carries(body) or self.carries(orelse)
            case ast.Call():
                return self._call_carries(value)
            case _:
                return any(map(self.carries, ast.iter_child_nodes(value)))

    def _call_carries(self, call: ast.Call) -> bool:
        name, first = _last(call.func), _last(call.args[0]) if call.args else ""
        if name in _STEPS or (name == "round" and len(call.args) == 1):
            return False
        if name == "astype" and first.startswith(("int", "bool", "uint")):
            return False
        takes = name in _TAKES or _name(call.func) in ("np.array", "numpy.array")
        if takes and _covers(call, self.taken):
            return True
        if isinstance(call.func, ast.Attribute) and self.carries(call.func.value):
            return True
        return any(map(self.carries, _given(call)))

    def _mark(self, target: ast.AST) -> None:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._mark(part)
            case ast.Subscript(value=held) | ast.Starred(value=held):
                self._mark(held)
            case _ if name := _name(target):
                self.names.add(name)


def _expressions(statement: ast.AST) -> Iterator[ast.AST]:
    """What a statement evaluates, without the statements and functions in it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, *_INNER)):
            yield child
            yield from _expressions(child)


def _followed(node: ast.AST) -> Iterator[ast.AST]:
    """What a statement evaluates, without what reaches it through functions that end the way."""
    for child in ast.iter_child_nodes(node):
        ends = isinstance(child, ast.Compare) or (isinstance(child, ast.Call) and _last(child.func) in _STEPS)
        if not ends and not isinstance(child, (ast.stmt, *_INNER)):
            yield child
            yield from _followed(child)


def _assigned(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement assigns, and to what."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _paired(target, value)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.AugAssign(target=target, value=value)
        ):
            yield target, value
        case ast.For(target=target, iter=values):
            yield target, values
        case ast.With(items=items):
            yield from [(item.optional_vars, item.context_expr) for item in items if item.optional_vars]


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    match target, value:
        case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
            yield from zip(targets, values, strict=True)
        case _:
            yield target, value


def _given(node: ast.AST) -> list[ast.expr]:
    """What a call or an operator is given, lists of arguments taken apart."""
    match node:
        case ast.Call(args=args, keywords=keywords):
            given = [*args, *(keyword.value for keyword in keywords)]
        case ast.BinOp(left=left, right=right):
            given = [left, right]
        case _:
            return []
    if any(keyword.arg in ("inputs", "outputs") for keyword in getattr(node, "keywords", ())) or (
        _last(getattr(node, "func", None)) == "launch"
    ):
        return [part for lists in given if isinstance(lists, ast.List | ast.Tuple) for part in lists.elts]
    return given


def _name(node: ast.AST | None) -> str:
    """The dotted name that an expression is, if it is one."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            around = _name(inner)
            return f"{around}.{name}" if around else ""
        case _:
            return ""


def _last(node: ast.AST | None) -> str:
    """The last part of a name, as of a method."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
