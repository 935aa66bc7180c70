"""Lowers the body of a def with parameters of known types; the options that its decorator takes."""

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelab.data_classes import dataclass, field
from kernelab.errors import Diagnostic, Span, near
from kernelab.frontend.definitions.statements import block
from kernelab.frontend.expressions.expressions import any_expr
from kernelab.frontend.expressions.joins import RETURNED, WATCH
from kernelab.frontend.meaning import unsupported
from kernelab.frontend.meaning.annotations import annotation, is_any
from kernelab.frontend.meaning.byref import Calls, hand_back
from kernelab.frontend.meaning.frame import Frame, WeakTypes, evaluated
from kernelab.frontend.meaning.meanings import FunctionRef, Meaning, ModuleRef, Poison, RefParameters, Weak
from kernelab.frontend.meaning.name_lookup import Scope, Unknown
from kernelab.frontend.meaning.scope import Known, analyse, changed_in
from kernelab.frontend.meaning.source import Places
from kernelab.frontend.meaning.syntax_trees import nodes, on_own_lines, parameters, plain_loops, word
from kernelab.lang.operators import COMPUTED, OPERATIONS
from kernelab.lang.structs import AnyType

_ATTEMPTS = 40
"""The most lowerings of a def to find the types of its weak variables.  Most defs need one."""


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A def as it stands in the cell, before any types are known.

    `then` holds what its defaults name as it was at the def, as in Python: the cell may assign it anew.
    """

    node: ast.FunctionDef
    body: list[ast.stmt]
    places: Places
    scope: Scope
    options: Mapping[str, Any] = field(default_factory=dict)
    ref_parameters: RefParameters | None = None
    then: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def span(self) -> Span:
        return self.places.head(self.node)

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def arguments(self) -> list[ast.arg]:
        return parameters(self.node.args)

    def type(self, node: ast.expr) -> AnyType:
        """The type that an annotation means; raises Mistake."""
        return annotation(self.scope, self.places, node)

    def is_open(self, node: ast.expr) -> bool:
        """Whether an annotation leaves the type to the call."""
        return is_any(node, self.scope)

    @property
    def defaults(self) -> dict[str, ast.expr]:
        """The defaults of the parameters that have one."""
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        last = positional[len(positional) - len(arguments.defaults) :]
        defaults = dict(zip((argument.arg for argument in last), arguments.defaults, strict=True))
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return defaults | {argument.arg: default for argument, default in named if default is not None}


def template(node: ast.FunctionDef, places: Places, scope: Scope, options: Mapping[str, Any]) -> Template:
    """The def with its loops, and what it hands back, in the form that lowering knows."""
    node.body = plain_loops(node.body)
    handed = hand_back(node)
    node.body = on_own_lines(node.body)
    return Template(node, node.body, places, scope, options, handed)


def _known(template: Template) -> Known:
    """The trip counts and the conditions that numbers in the text or constants of the notebook decide."""
    scope = template.scope
    variables = changed_in(template.body) | {argument.arg for argument in template.arguments}

    def number(node: ast.expr) -> bool | int | float | None:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(name) if name not in variables:
                captured = scope.assigned.get(name, scope.namespace.get(name))
                return captured if isinstance(captured, bool | int | float) else None
            case ast.Call(args=[inner], keywords=[]) if word(node).lstrip("_") == "static":
                return number(inner)
            case ast.UnaryOp(op=ast.USub() | ast.Not() as operator, operand=operand):
                numbers = [number(operand)]
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as operator], comparators=[right]):
                numbers = [number(left), number(right)]
            case _:
                return None
        if None in numbers:
            return None
        result: bool | int | float = COMPUTED[OPERATIONS[type(operator)]](*numbers)
        return result

    def trips(loop: ast.For) -> int | None:
        if isinstance(loop.iter, ast.Tuple):
            return len(loop.iter.elts)
        ranges = unsupported.range_of(loop.iter)
        bounds = [] if ranges is None else map(number, ranges.args)
        known = unsupported.known_range(bound if isinstance(bound, int) else None for bound in bounds)
        return None if known is None else len(known)

    def holds(test: ast.expr) -> bool | None:
        value = number(test)
        return None if value is None else bool(value)

    return Known(trips, holds)


def lower_def(
    template: Template, params: Mapping[str, Meaning], is_kernel: bool = False, result: AnyType | None = None
) -> Frame:
    """The def with parameters of known types; lowered again until the types of weak variables are settled."""
    names = template.scope.within()
    refused = unsupported.check(template.node, template.places)
    handed = Calls(template.places, lambda callee: _handed_back(template, callee))
    handed.written(template.body)
    facts = analyse(template.node.args, template.body, _known(template))
    weak_types = WeakTypes()
    for _ in range(_ATTEMPTS):
        weak_types.changed = False
        frame = Frame(
            template.name,
            template.places,
            names.within(),
            facts,
            weak_types,
            any_expr,
            is_kernel,
            any(isinstance(part, ast.Name) and part.id == "wp" for part in nodes(template.node)),
            result,
            refused.keys() | handed.refused,
        )
        for error in (*refused.values(), *handed.errors):
            frame.report(error)
        # What a loop's index holds before its loop is never read, but a loop around it carries it.
        frame.env |= {name: Weak(0) for name in sorted(facts.watched)}
        frame.env |= {WATCH + name: Weak(False) for name in sorted(facts.watched)}
        frame.env |= params
        frame.set_at |= {argument.arg: template.places(argument) for argument in template.arguments}
        block(frame, template.body, {RETURNED})
        if not weak_types.changed:
            return frame
    frame.report(
        Diagnostic(
            f"the types of the variables of {template.name} cannot be found",
            template.span,
            "type",
            hint="start each variable with a typed number, such as float32(0.0)",
        )
    )
    return frame


def _handed_back(template: Template, callee: ast.expr) -> RefParameters | None:
    """The values that a call writes back to the variables that it names; None for most."""
    scope = template.scope.within()
    try:
        match callee:
            case ast.Name(name):
                function = scope.lookup(name)
            case ast.Attribute(value=ast.Name(module), attr=name):
                around = scope.lookup(module)
                function = scope.attribute(around, name) if isinstance(around, ModuleRef) else Poison()
            case _:
                return None
    except Unknown:
        return None
    return function.function.ref_parameters if isinstance(function, FunctionRef) else None


def snapshot(captured: Mapping[str, Any]) -> dict[str, Any]:
    """Captured values as they are now, should the notebook change an array in place."""
    return {n: value.copy() if isinstance(value, np.ndarray) else value for n, value in captured.items()}


def default_of(template: Template, node: ast.expr) -> Any:
    """The value of a default, with the names of the notebook and the cell; raises Mistake."""
    if isinstance(node, ast.Constant):  # also a value that Python could not compile
        return node.value
    scope = template.scope
    names = {**scope.namespace, **scope.assigned, **template.then}
    return evaluated(node, template.places, names, "the default")


# -------------------------------------------------------------------------------------- options of decorators


KERNEL_OPTIONS = (
    *("enable_backward", "check", "module", "module_options", "launch_bounds", "grid_stride", "name"),
    *("cluster_dim", "cuda_max_registers", "enable_cuda_smem_spilling", "entry_point_abi"),
)
FUNC_OPTIONS = ("name", "module", "inline")
CHECKS = ("full",)
"""What `check` can be, beside None (`kernelab.settings.Check`)."""

MODULE_DEFAULTS: Mapping[str, Any] = {
    "enable_backward": True,
    "max_unroll": 16,
    "fast_math": False,
    "fuse_fp": True,
    "lineinfo": False,
    "mode": None,
    "block_dim": 256,
    "cuda_output": None,
    "optimization_level": None,
    "cpu_compiler_flags": None,
    "compile_time_trace": False,
    "verify_fp": False,
    "strip_hash": False,
    "enable_mathdx_gemm": None,
    "enable_mathdx_solver": None,
    "enable_mathdx_fft": None,
    "extra_build_options": None,
    "deterministic": False,
    "deterministic_max_records": 0,
    "default_grid_stride": None,
}
"""The options of a module, and what they are unless set."""


def unknown_option(word: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """The error in the options of a decorator, with a hint; None if there is none."""
    names = KERNEL_OPTIONS if word == "kernel" else FUNC_OPTIONS
    for name in options:
        if name not in names:
            return f"{word} has no option {name}", _option_instead(name, names)
    if not is_check(options.get("check")):
        return f'check is "full" or None, not {options["check"]!r}', 'write check="full"'
    inside = options.get("module_options") or {}
    if not isinstance(inside, Mapping):
        return "module_options is a dictionary", 'write module_options={"enable_backward": False}'
    for name in inside:
        if name not in MODULE_DEFAULTS:
            return f"module_options has no option {name}", _option_instead(str(name), tuple(MODULE_DEFAULTS))
    return None


def _option_instead(name: str, names: tuple[str, ...]) -> str:
    return near(name, names, f"there is {', '.join(names)}")


def is_check(wanted: object) -> bool:
    """Whether a value says what checked launches look for."""
    return wanted is None or (isinstance(wanted, str) and wanted in CHECKS)


def effective_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that mean something here, where they are said: a backward pass or none, and checks."""
    inside = options.get("module_options") or {}
    chosen = [stated.get("enable_backward") for stated in (options, inside)]
    said = [bool(backward) for backward in chosen if backward is not None]
    check = options.get("check")
    return ({"enable_backward": said[0]} if said else {}) | (
        {"check": check} if isinstance(check, str) else {}
    )
