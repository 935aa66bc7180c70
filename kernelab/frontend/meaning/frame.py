"""The state of one lowering of a def: builder, variables, errors, and the types found for weak variables.

A weak variable (`s = 0` before a loop) gets its type by lowering again: the type that an attempt needs is
stored in `WeakTypes`, and the next attempt starts with it.
"""

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from typing import Any, Self

from kernelab import hooks
from kernelab.data_classes import dataclass, field
from kernelab.errors import Diagnostic, Related, Span, counted
from kernelab.frontend.meaning.meanings import ArrayRef, FunctionRef, LateSum, Meaning, Origin, Poison, Typed
from kernelab.frontend.meaning.name_lookup import SPECIAL, Scope
from kernelab.frontend.meaning.scope import Facts
from kernelab.frontend.meaning.source import Place, Places
from kernelab.frontend.meaning.trial import NOT_RUN, may_run
from kernelab.lang.build import Builder
from kernelab.lang.ir import Var
from kernelab.lang.structs import AnyType
from kernelab.lang.types import Scalar, int32


class Mistake(Exception):
    """A mistake of the user, to be collected where the statement ends."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.diagnostics = (diagnostic,)

    @classmethod
    def of(cls, message: str, code: str, hint: str = "", span: Span | None = None) -> Self:
        """The mistake of one finding."""
        return cls(Diagnostic(message, span, code, hint=hint))


class NotSet(Mistake):
    """The mistake of reading an array field that is not set; as a condition it is false."""


class Poisoned(Exception):
    """Something depends on a mistake that has been reported already."""


class BrokenCall(Poisoned):
    """A call of a function that has errors, which are reported once."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__()
        self.diagnostics = diagnostics


class Recursion(Exception):
    """A function is called while it is being lowered."""


@dataclass(frozen=True, slots=True)
class WeakType:
    """The type that a weak variable needs; `weak` while still only literals are known to go into it."""

    scalar: Scalar
    weak: bool


@dataclass(slots=True)
class WeakTypes:
    """The types of weak variables found by the attempts so far, and whether the last one found more."""

    by_origin: dict[Origin, WeakType] = field(default_factory=dict)
    changed: bool = False

    def require(self, origins: frozenset[Origin], weak_type: WeakType) -> None:
        """From the next attempt on, the variables of these origins have this type."""
        for origin in origins:
            if self.by_origin.get(origin) != weak_type:
                self.by_origin[origin] = weak_type
                self.changed = True


@dataclass(slots=True)
class Frame:
    """One def being lowered."""

    name: str
    places: Places
    scope: Scope
    facts: Facts
    weak_types: WeakTypes
    lower: Callable[["Frame", ast.expr], Meaning | None]
    is_kernel: bool
    uses_warp: bool = False
    result: AnyType | None = None
    refused: Set[ast.AST] = frozenset()
    builder: Builder = field(default_factory=Builder)
    env: dict[str, Meaning] = field(default_factory=dict)
    bounds: dict[Var, int] = field(default_factory=dict)
    locals: set[Var] = field(default_factory=set)
    threads: tuple[Var, ...] = ()
    threads_span: Span | None = None
    diagnostics: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    broken: bool = False
    unknown: set[str] = field(default_factory=set)
    set_at: dict[str, Span] = field(default_factory=dict)
    late_sums: list[LateSum] = field(default_factory=list)
    changed_copies: set[ast.expr] = field(default_factory=set)

    def value(self, node: ast.expr) -> Meaning:
        """The value of an expression; raises Mistake, or Poisoned after a mistake that has been reported."""
        value = self.lower(self, node)
        if value is None:
            own = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SPECIAL
            hint = "call it on a line of its own"
            hint = hint if own else f"add a return with a value to the function, or {hint}"
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            callee = None if own or not name else self.scope.lookup(name)
            span = callee.function.span if isinstance(callee, FunctionRef) else None
            related = () if span is None else (Related(f"{name} has no return with a value:", span),)
            raise self.error(node, f"{self.places.text(node)} returns nothing", hint=hint, related=related)
        return value

    def error(
        self,
        node: Place,
        message: str,
        code: str = "type",
        hint: str = "",
        note: str = "",
        related: tuple[Related, ...] = (),
    ) -> Mistake:
        """A mistake at a node, to be raised."""
        return Mistake(Diagnostic(message, self.places(node), code, hint=hint, note=note, related=related))

    def report(self, diagnostic: Diagnostic) -> None:
        """Collect a mistake; the def is not usable any more."""
        self.broken = True
        self.diagnostics.append(diagnostic)

    def poison(self, name: str) -> None:
        """Make reads of a variable silent: what it should be is unknown since a mistake."""
        match self.env.get(name):
            case ArrayRef(picks=()):
                pass
            case _:
                self.env[name] = Poison()

    @contextmanager
    def branch(self) -> Iterator[None]:
        """A context with its own variables: afterwards they are as before."""
        outside = self.env, self.set_at
        self.env, self.set_at = dict(self.env), dict(self.set_at)
        try:
            yield
        finally:
            self.env, self.set_at = outside


# ------------------------------------------------------------------------------------------- thread indices


def threads(frame: Frame, node: ast.Call, hints: tuple[str, ...]) -> tuple[Typed, ...]:
    """The thread indices that `tid()` gives, as many as there are hints."""
    if not frame.is_kernel:
        hint = "a def that returns a value is a function: return nothing, or pass the index to it"
        raise frame.error(node, f"tid() stands in a kernel only, and {frame.name} is a function", hint=hint)
    if node.args or node.keywords:
        hint = "write i = tid(), or i, j = tid()«/tid\\(.*?\\)/tid()/»"
        raise frame.error(node, "tid() takes no arguments", hint=hint)
    if len(hints) > 4:
        raise frame.error(node, f"tid() gives 1 to 4 indices, not {len(hints)}")
    if not frame.threads:
        frame.threads = tuple(Var(int32, hint, frame.places(node)) for hint in hints)
        frame.threads_span = frame.places(node)
    if len(frame.threads) != len(hints):
        related = (Related("the other tid() is here", frame.threads_span),) if frame.threads_span else ()
        raise frame.error(
            node,
            f"tid() gives {counted(len(frame.threads), 'index')} in one place and {len(hints)} in another",
            hint="call tid() once",
            related=related,
        )
    return tuple(Typed(var) for var in frame.threads)


# ------------------------------------------------------------------------------------------------ evaluation


def evaluated(node: ast.expr, places: Places, names: Mapping[str, Any], what: str = "this") -> Any:
    """The value of an expression among some names; raises Mistake, which calls the expression `what`."""
    words = words_in(node, names)
    if not may_run(node, {**words, **names}):
        raise Mistake.of("", NOT_RUN, span=places(node))
    tree = ast.fix_missing_locations(ast.Expression(node))
    try:
        return eval(compile(tree, places.source.label, "eval"), {**names, **as_builtins(words)})
    except Exception as error:  # noqa: BLE001 (whatever the user's expression raises is reported at its place)
        said = error.msg if isinstance(error, SyntaxError) else error
        message = f"{what} raised {type(error).__name__}: {said}"
        raise Mistake.of(message, "value", span=places(node)) from None


def words_in(node: ast.AST, names: Mapping[str, Any]) -> dict[str, Any]:
    """The words of the language in a text that Python runs, but for names of the notebook and of Python."""
    used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    words: dict[str, Any] = {}
    for name in used.difference(names, vars(builtins)):
        with suppress(AttributeError):
            words[name] = hooks.word(name)
    return words


def as_builtins(words: Mapping[str, Any]) -> dict[str, Any]:
    """The global name under which Python finds these words as it finds its own builtins."""
    return {"__builtins__": {**vars(builtins), **words}}
