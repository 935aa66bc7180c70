"""What the text of the user's code says of numbers on their way: whether those of one line may reach another.

    r = math.sqrt(s.item())          line 3: the host takes a number, of which `math` loses sight
    launch(step, n, [x, 0.1 * r])    line 4: is given one that may come from it

For numbers that do not know their origins.  Names are followed within one file or cell, whatever the order of
its lines: through assignments, arguments, results of its functions and attributes of `self`; conditions,
comparisons and integers hand nothing on.  Knows Python's syntax and lines; must not know arrays.
"""

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

from kernelab.runtime.recorder import Place

_TAKES = frozenset(("item", "numpy", "list", "float", "asarray", "float32", "float64", "from_dlpack"))
"""Functions and methods by which the host takes numbers out of arrays."""

_STEPS = frozenset({
    "int", "len", "bool", "range", "isinstance", "type", "print", "id", "any", "all", "sign", "floor",
    "argmax", "argmin", "argsort", "nonzero", "flatnonzero", "searchsorted", "digitize", "histogram",
    "ceil", "trunc", "rint", "zeros_like", "ones_like", "empty_like", "isnan", "isfinite", "isinf",
    "allclose", "array_equal", "count_nonzero", "index", "heaviside",
})  # fmt: skip
"""Functions and methods whose results do not follow the numbers that they are given, or only by jumps."""

_FACTS = frozenset(("shape", "size", "ndim", "dtype", "nbytes"))
"""Attributes that say nothing of numbers."""

_FILLS = frozenset(("append", "extend", "insert", "add", "update", "put", "fill", "appendleft", "setdefault"))
"""Methods that put numbers into the object."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_INNER = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_SELF = "self."


def may_reach(taken: Place, used: Place, position: int | None = None, count: int = 0) -> bool | None:
    """Whether numbers of one line may be among those that another uses; None if the text does not tell.

    With a `position`, as that of the `count` arguments of a launch.  It tells where both lines stand in one
    file or cell.
    """
    if taken.filename != used.filename:
        return None
    text = _text("".join(linecache.getlines(taken.filename)))
    if text is None:
        return None
    scope = text.scope(used.line)
    way = _ways(text, taken.line).get(scope)
    return way is not None and way.uses(text.heads(scope, used.line), position, count)


class _Text:
    """The scopes of a text: itself, and each function in it; what stands in them, and who calls whom."""

    def __init__(self, tree: ast.Module) -> None:
        self.statements: dict[ast.AST, list[ast.stmt]] = {}
        self.around: dict[ast.AST, ast.AST] = {}
        self.called: dict[ast.AST, str] = {}
        self.functions: dict[str, list[ast.AST]] = {}
        self.naming: dict[str, set[ast.AST]] = {}
        self._add(tree)
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                self.called.setdefault(node, node.name)
                self.functions.setdefault(self.called[node], []).append(node)
                self._add(node)
            elif isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, _FUNCTIONS)]
                self.called |= {method: f".{method.name}" for method in methods}

    def _add(self, scope: ast.AST) -> None:
        self.statements[scope] = list(_statements(scope))
        for statement in self.statements[scope]:
            for node in (statement, *_expressions(statement)):
                if isinstance(node, ast.Call):
                    self.naming.setdefault(_called(node), set()).add(scope)
                elif isinstance(node, ast.Attribute):
                    self.naming.setdefault(_name(node), set()).add(scope)
                elif isinstance(node, ast.ClassDef):
                    self.around |= dict.fromkeys((f for f in node.body if isinstance(f, _FUNCTIONS)), scope)
                elif isinstance(node, _FUNCTIONS):
                    self.around[node] = scope

    def callees(self, call: ast.Call) -> list[ast.AST]:
        """The functions of the text that a call may be of."""
        return self.functions.get(_called(call), [])

    def scope(self, line: int) -> ast.AST:
        """The innermost scope around a line."""
        whole, *functions = self.statements
        around = [node for node in functions if _covers(node, line)]
        return max(around, key=lambda node: getattr(node, "lineno", 0), default=whole)

    def heads(self, scope: ast.AST, line: int) -> list[ast.stmt]:
        """The statements to which a line itself belongs, not to one within it."""
        found = [statement for statement in self.statements[scope] if _covers(statement, line)]
        return [one for one in found if not any(_covers(inner, line) for inner in _statements(one))]


@lru_cache(maxsize=64)
def _text(text: str) -> _Text | None:
    try:
        return _Text(ast.parse(text)) if text else None
    except SyntaxError:
        return None


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


@lru_cache(maxsize=1024)
def _ways(text: _Text, taken: int) -> "dict[ast.AST, _Way]":
    """In each scope that what was taken on a line can reach, how it goes there."""
    ways: dict[ast.AST, _Way] = {}
    sources: set[str] = set()
    waiting = {text.scope(taken)}
    while waiting:
        scope = waiting.pop()
        way = ways.setdefault(scope, _Way(taken, sources))
        way.follow_all(text.statements[scope])
        for other, names in _handed_on(text, scope, way, sources):
            reached = ways.setdefault(other, _Way(taken, sources))
            if names is None or not names <= reached.names:
                reached.names |= names or set()
                waiting.add(other)
    return ways


def _handed_on(
    text: _Text, scope: ast.AST, way: "_Way", sources: set[str]
) -> Iterator[tuple[ast.AST, set[str] | None]]:
    """The other scopes that what was taken reaches from this one, and under which names.

    None for those that call this one, which returns it.
    """
    for name in [name for name in way.names if name.startswith(_SELF)]:
        yield from ((other, {name}) for other in text.naming.get(name, ()) if other is not scope)
    for inner, around in text.around.items():
        if around is scope:
            yield inner, way.names - _own_names(inner, text.statements[inner])
    for statement in text.statements[scope]:
        for node in _expressions(statement):
            if isinstance(node, ast.Call):
                yield from ((callee, way.handed(node, callee)) for callee in text.callees(node))
        called = text.called.get(scope, "")
        if isinstance(statement, ast.Return) and way.carries(statement.value) and called not in sources:
            sources.add(called)
            yield from ((caller, None) for caller in text.naming.get(called, ()))


def _own_names(function: ast.AST, statements: list[ast.stmt]) -> set[str]:
    """The names that mean something of its own in a function."""
    own = {argument.arg for argument in _arguments(function)}
    return own | {_name(target) for statement in statements for target, _ in _assigned(statement)}


def _arguments(function: ast.AST) -> list[ast.arg]:
    if not isinstance(function, _FUNCTIONS):
        return []
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


class _Way:
    """The names that may hold what was taken on a line, and what is computed of it."""

    def __init__(self, taken: int, sources: set[str]) -> None:
        self.taken = taken
        self.sources = sources
        self.names: set[str] = set()

    def follow_all(self, statements: list[ast.stmt]) -> None:
        """Add the names to which statements hand it on, in any order."""
        before = -1
        while before < len(self.names):
            before = len(self.names)
            for statement in statements:
                self.follow(statement)

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

    def handed(self, call: ast.Call, callee: ast.AST) -> set[str]:
        """The parameters of a function that a call hands it to."""
        names = [argument.arg for argument in _arguments(callee)]
        if names[:1] == ["self"] and isinstance(call.func, ast.Attribute):
            names = names[1:]
        found = {name for name, given in zip(names, call.args, strict=False) if self.carries(given)}
        return found | {k.arg for k in call.keywords if k.arg in names and self.carries(k.value)}

    def uses(self, statements: list[ast.stmt], position: int | None, count: int) -> bool:
        """Whether statements hand it to what they call, or store it in elements of an array."""
        every = [_given(node) for statement in statements for node in _followed(statement)]
        launches = [] if position is None else [given[position] for given in every if len(given) == count]
        if launches:
            return any(map(self.carries, launches))
        pairs = [pair for statement in statements for pair in _assigned(statement)]
        stored = [value for target, value in pairs if isinstance(target, ast.Subscript)]
        return any(any(map(self.carries, given)) for given in [*every, stored])

    def carries(self, value: ast.AST | None) -> bool:
        """Whether the value of an expression may follow what was taken."""
        match value:
            case None | ast.Constant() | ast.Compare() | ast.Lambda() | ast.Slice():
                return False
            case ast.Name():
                return value.id in self.names
            case ast.Attribute(value=inner, attr=name):
                return _name(value) in self.names or (name not in _FACTS and self.carries(inner))
            case ast.Subscript(value=inner, slice=index):
                taken = _covers(value, self.taken) and not isinstance(index, ast.Slice)
                return self.carries(inner) or (taken and _last(inner) not in ("", *_FACTS))
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
        if (takes and _covers(call, self.taken)) or _called(call) in self.sources:
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


def _called(call: ast.Call) -> str:
    """The name of a function that is called, that of a method with a point before it."""
    return f".{call.func.attr}" if isinstance(call.func, ast.Attribute) else _name(call.func)


def _last(node: ast.AST | None) -> str:
    """The last part of a name, as of a method."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
