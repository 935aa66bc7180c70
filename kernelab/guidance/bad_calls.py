"""Explains calls that do not fit the parameters of one of kernelab's functions.

Knows signatures; must not know what the functions do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from kernelab.errors import KernelTypeError, closest, counted

P = ParamSpec("P")
R = TypeVar("R")


def explains_bad_calls(**instead: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: a call with wrong arguments raises KernelTypeError; `instead` has hints for some names.

    A hint for ``positional`` is for a call with too many arguments.
    """

    def decorate(func: Callable[P, R]) -> Callable[P, R]:
        @wraps(func)
        def call(*given: P.args, **named: P.kwargs) -> R:
            __tracebackhide__ = True  # IPython shows the frames of the user
            try:
                return func(*given, **named)
            except TypeError as error:
                # One frame, this one: Python refused the call, and nothing of the function has run.
                if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                    raise
                raise misfit(func, given, named, instead) from None

        return call

    return decorate


def show_signature(
    shown: Any, func: Callable[..., Any], without: Collection[str] = (), **options: Any
) -> None:
    """Set the signature of `func` for help and Shift-Tab, less some parameters, with the options by name."""
    written = signature(func)
    kept = [p for p in written.parameters.values() if p.name not in {"self", *without}]
    more = [Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in options.items()]
    shown.__signature__ = written.replace(parameters=[*kept, *more])


def misfit(
    func: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any], instead: Mapping[str, str]
) -> KernelTypeError:
    """The error for a call that Python refuses, with the signature of the function."""
    name = func.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    accepted = signature(func).parameters
    parameters = [p for p in accepted.values() if p.name != "self"]
    arguments = arguments["self" in accepted :]
    unknown = next((key for key in named if key not in {p.name for p in parameters}), None)
    if unknown is not None:
        return no_argument(name, unknown, [p.name for p in parameters], instead)
    placed = [p.name for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
    twice = next((key for key in placed[: len(arguments)] if key in named), None)
    needed = [p.name for p in parameters if p.default is Parameter.empty]
    missing = [key for key in needed if key not in named and key not in placed[: len(arguments)]]
    if twice is not None:
        message = f"{name}() gets {twice} twice: by position and by name"
    elif missing:
        message = f"{name}() needs {' and '.join(missing)}"
    else:
        count = counted(len(placed), "argument")
        message = f"{name}() takes {count} by position, not {len(arguments)}"
        missing = ["positional"]
    written = ", ".join(p.name if p.name in needed else f"{p.name}=..." for p in parameters)
    hint = next((instead[key] for key in missing if key in instead), f"write {name}({written})")
    return KernelTypeError.of(message, "call", hint)


def no_argument(
    func: str, name: str, known: Iterable[str], instead: Mapping[str, str] | None = None
) -> KernelTypeError:
    """The error for an argument by a name that a function does not have."""
    names = list(known)
    close = closest(name, names)
    hint = (instead or {}).get(name) or (
        f"did you mean {close}=?" if close else f"its arguments are {', '.join(names)}"
    )
    return KernelTypeError.of(f"{func}() has no argument {name}", "call", hint)
