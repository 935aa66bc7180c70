"""A decorated function as Python runs it: names get copies of structs, vectors and matrices, as in kernels.

    q = p                   q = copied(p)
    for q in (p, r):        for q in (p, r):
        q.x = 1.0               q = copied(q)
                                q.x = 1.0
    v += w                  v = copied(v)
                            v += w

A draw, `randf(state)`, advances the variable `state`.  What a parameter annotated with `ref` holds at the end
goes back to the caller's struct, vector or matrix.  Functions that assign to no component or field, draw
nothing, hand nothing back and call nothing that does run as they are: there nobody can tell.
"""

import ast
import builtins
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from kernelab.errors import KernelSyntaxError
from kernelab.frontend.meaning.scope import draws, filled, state_of
from kernelab.frontend.meaning.source import source_of
from kernelab.runtime.host.host_words import word
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.kernel.loading import closure

VALUES = np.ndarray | Instance
"""What kernels pass by value and Python by reference: vectors and matrices, NumPy's own too, and structs."""

_COPIED, _NEXT_STATE, _WRITE_BACK = "__copied", "__next_state", "__write_back"
_VALUE, _AROUND, _CALLERS = "__value", "__around", "__callers_"


def copied(value: Any) -> Any:
    """A copy of a struct, a vector or a matrix, and of those in a tuple; anything else as it is."""
    if isinstance(value, VALUES):
        return value.copy()
    if type(value) in (tuple, list):
        return type(value)(copied(item) for item in value)
    return value


def next_state(function: Any, name: str, state: Any) -> Any:
    """The state after a call of the function, if that is the operation of this name."""
    if getattr(function, "__kernelab_name__", None) == name:
        for _ in range(draws(name)):
            state = word("rand_next")(state)
    return state


def write_back(place: Any, value: Any) -> None:
    """Set the struct, vector or matrix of a caller to a value; a number of Python's cannot be set."""
    if value is place:
        return
    if isinstance(place, np.ndarray):
        place[...] = value
    elif isinstance(place, Instance):
        for name in place._values:
            setattr(place, name, getattr(value, name))


def with_copies(function: Callable[..., Any], refs: Collection[str] = ()) -> Callable[..., Any]:
    """The function, in which names get copies; as it is where that changes nothing, or its text is gone.

    `refs` are the parameters that it hands back.
    """
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return function  # another decorator has put something around the text
    try:
        source, module = source_of(function)
    except KernelSyntaxError:
        return function
    tree = module.body[0]
    if not isinstance(tree, ast.FunctionDef):
        return function
    names = ChainMap(closure(function), function.__globals__, vars(builtins))
    if not refs and not any(_mutates_or_draws(node, names) for node in ast.walk(tree)):
        return function
    tree.decorator_list, tree.returns = [], None
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    ast.increment_lineno(tree, source.first_line - 1)
    _Copying().visit(tree)
    if refs:
        kept = "; ".join(f"{_CALLERS}{name} = {name}" for name in refs)
        returned = "; ".join(f"{_WRITE_BACK}({_CALLERS}{name}, {name})" for name in refs)
        around = ast.parse(f"{kept}\ntry: pass\nfinally: {returned}").body
        around[-1].body = tree.body  # type: ignore[attr-defined]
        tree.body = around
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {_COPIED: CellType(copied), _NEXT_STATE: CellType(next_state), _WRITE_BACK: CellType(write_back)}
    code = _compiled(tree, tuple(cells), function.__code__.co_filename)
    held = tuple(cells[name] for name in code.co_freevars)
    copying = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, held)
    copying.__kwdefaults__ = function.__kwdefaults__
    return copying


def _mutates_or_draws(node: ast.AST, names: Mapping[str, Any]) -> bool:
    """Whether it shows what a name stands for: it sets a part of that, or advances or fills it."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.AugAssign):
        return True  # of a vector that is NumPy's own, in place
    return isinstance(node, ast.Call) and (_drawn(node) is not None or _fills(node, names))


def _fills(node: ast.Call, names: Mapping[str, Any]) -> bool:
    """Whether a call may change an argument: of a function with `ref` parameters, or one not there yet."""
    match node.func:
        case ast.Name(name):
            callee = names.get(name)
        case ast.Attribute(ast.Name(root), name):
            callee = getattr(names.get(root), name, None)
        case _:
            return True
    return callee is None or bool(node.args[filled(name, len(node.args))] or getattr(callee, "_refs", ()))


def _drawn(node: ast.Call) -> tuple[str, str] | None:
    """The operation of a call that draws, and the variable that it advances."""
    match node.func, state_of(node):
        case ast.Name(name) | ast.Attribute(attr=name), ast.Name(state) if draws(name):
            return name, state
    return None


def _compiled(tree: ast.FunctionDef, names: tuple[str, ...], file: str) -> CodeType:
    """The code of a def, to which these names are free variables."""
    around = ast.parse(f"def {_AROUND}({', '.join(names)}): pass")
    around.body[0].body = [tree]  # type: ignore[attr-defined]
    ast.fix_missing_locations(around)
    found = compile(around, file, "exec", dont_inherit=True)
    for name in (_AROUND, tree.name):
        found = next(each for each in found.co_consts if isinstance(each, CodeType) and each.co_name == name)
    return found


class _Copying(ast.NodeTransformer):
    """Lets names be set to copies."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Targets of one assignment get a copy each."""
        self.generic_visit(node)
        if len(node.targets) == 1:
            node.value = _copy(node.value)
            return node
        kept = ast.Assign([ast.Name(_VALUE, ast.Store())], node.value)
        read = [_copy(ast.Name(_VALUE, ast.Load())) for _ in node.targets]
        each = [ast.Assign([target], value) for target, value in zip(node.targets, read, strict=True)]
        return [ast.copy_location(new, node) for new in (kept, *each)]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        return (
            [ast.copy_location(_copy_named(node.target.id), node), node]
            if isinstance(node.target, ast.Name)
            else node
        )

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        node.value = None if node.value is None else _copy(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`randf(s)` becomes `(randf(s), s := next_state(randf, "randf", s))[0]`."""
        self.generic_visit(node)
        drawn = _drawn(node)
        if drawn is None:
            return node
        name, state = drawn
        given = [node.func, ast.Constant(name), ast.Name(state, ast.Load())]
        after = ast.Call(ast.Name(_NEXT_STATE, ast.Load()), given, [])
        both = ast.Tuple([node, ast.NamedExpr(ast.Name(state, ast.Store()), after)], ast.Load())
        return ast.copy_location(ast.Subscript(both, ast.Constant(0), ast.Load()), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.generic_visit(node)
        node.value = _copy(node.value)
        return node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        node.iter = _copied_items(node.iter)
        names = [each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)]
        node.body[:0] = [ast.copy_location(_copy_named(name), node) for name in names]
        return node


def _copied_items(several: ast.expr) -> ast.expr:
    """What a loop goes over, as it is when the loop begins."""
    match several:
        case ast.Call(ast.Name("zip" | "enumerate" | "reversed")):
            several.args = [_copied_items(each) for each in several.args]
            return several
    return _copy(several)


def _copy_named(name: str) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], _copy(ast.Name(name, ast.Load())))


def _copy(value: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(_COPIED, ast.Load()), [value], []), value)
