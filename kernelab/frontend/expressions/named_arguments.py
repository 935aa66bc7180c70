"""Arguments by name: `clamp(x, low=0.0, high=1.0)`, `transform(p=p, q=q)`, `atomic_add(arr=a, i=i, value=v)`.

It knows by which names operations, words of the language and types take their arguments, and puts them in
order; nothing else of what is called.
"""

import ast
from collections.abc import Iterator, Sequence

from kernelab.frontend.expressions.passing import Argument, Arguments
from kernelab.frontend.meaning.frame import Frame
from kernelab.lang import ops
from kernelab.lang.types import Quat, Transform, Value, Vec

Names = tuple[str, ...]

_OF_VALUES = {"atomic_cas": ("compare", "value")}
_OF_INDICES = ("i", "j", "k", "l")
_OF_WORDS: dict[str, Names] = {
    "select": ("cond", "value_if_false", "value_if_true"),
    "len": ("a",),
    "transformation": ("p", "q"),
    "quaternion": ("x", "y", "z", "w"),
}


def in_order(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Arguments:
    """The arguments of an operation or a word, those with names where they belong."""
    return _sorted(frame, name, list(_of(name)), arguments, node)


def beside_type(frame: Frame, name: str, arguments: Arguments, node: ast.Call) -> Arguments:
    """The same of `transformation(p=p, q=q, dtype=float)`, where words that say the type stay behind."""
    words = [a for a in arguments if a.keyword == "dtype"]
    return [*in_order(frame, name, [a for a in arguments if a.keyword != "dtype"], node), *words]


def in_order_of(frame: Frame, type: Value, arguments: Arguments, node: ast.Call) -> Arguments:
    """The same of what a value of a type is made of."""
    return _sorted(frame, str(type), list(_of_type(type)), arguments, node)


def _of(name: str) -> Iterator[Names]:
    if name.startswith("atomic_"):
        values = _OF_VALUES.get(name, ("value",))
        yield from (("arr", *_OF_INDICES[:n], *values) for n in range(1, 5))
    elif name in _OF_WORDS:
        yield _OF_WORDS[name]
    else:
        yield from dict.fromkeys(tuple(param.name for param in op.params) for op in ops.overloads(name))


def _of_type(type: Value) -> Iterator[Names]:
    match type:
        case Transform():
            yield from (("p", "q"), ("p",))
        case Quat():
            yield ("x", "y", "z", "w")
        case Vec(_, 6):
            yield ("w", "v")
        case _:
            yield from _of(str(type))


def _sorted(
    frame: Frame, name: str, choices: Sequence[Names], arguments: Arguments, node: ast.Call
) -> Arguments:
    if all(a.keyword is None for a in arguments):
        return arguments
    plain = [a for a in arguments if a.keyword is None]
    named = {a.keyword: Argument(a.value, a.node) for a in arguments if a.keyword is not None}
    for names in choices:
        if len(names) == len(arguments) and set(names[len(plain) :]) == set(named):
            return [*plain, *(named[word] for word in names[len(plain) :])]
    if not choices:
        unknown = next(iter(named))
        raise frame.error(
            named[unknown].node, f"{name} takes no keyword {unknown}", hint="leave the keyword out"
        )
    wanted = " or ".join(f"({', '.join(names)})" for names in choices)
    raise frame.error(node, f"the arguments of {name} are {wanted}", hint="leave the keywords out")
