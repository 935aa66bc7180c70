"""What every launch does with its arguments, written out as Python for one kernel: no loop over parameters.

Of the arguments that nearly every launch has, arrays of the very types and plain numbers in range, all that
is to be checked fits into one condition.  Where it does not hold, the loop of `launch.bind` looks closer and
says what is wrong.  Knows parameters; must not know launches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelab.lang.types import Array
from kernelab.runtime.arguments.arguments import Parameter
from kernelab.runtime.array.array import array
from kernelab.runtime.memory.memory import Allocation

Slots = Callable[[Sequence[Any], bytes], list[bytes] | None]
Memories = Callable[[Sequence[Any]], list[Allocation]]
Marks = Callable[[Sequence[Allocation]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Straight:
    """The functions of one kernel.

    `slots` gives the packed arguments behind those of the grid, None unless all arguments are of the usual
    kind and can be written where the kernel writes; `memories` the allocations of the arrays among the
    arguments; `wanted` and `versions`, of these, whether each requires gradients and how often it was
    written.
    """

    slots: Slots
    memories: Memories
    wanted: Marks
    versions: Marks


def straight(parameters: Sequence[Parameter], written: Sequence[int]) -> Straight:
    """The functions of a kernel with these parameters, some of which it writes, by position."""
    arrays = [i for i, parameter in enumerate(parameters) if isinstance(parameter.type, Array)]
    known: dict[str, Any] = {"array": array}
    text = [
        *_slots(parameters, written, known),
        "def memories(arguments):",
        f"    return [{', '.join(f'arguments[{i}].allocation' for i in arrays)}]",
        *_marks("wanted", "requires_grad", len(arrays)),
        *_marks("versions", "version", len(arrays)),
    ]
    exec("\n".join(text), known)  # made of numbers alone: no word of the user's is in it
    return Straight(known["slots"], known["memories"], known["wanted"], known["versions"])


def _slots(parameters: Sequence[Parameter], written: Sequence[int], known: dict[str, Any]) -> list[str]:
    conditions, packed = ["True"], ["grid"]
    for i, parameter in enumerate(parameters):
        if isinstance(parameter.type, Array):
            known[f"type{i}"] = parameter.type
            conditions += [f"a{i}.__class__ is array", f"a{i}.type is type{i}"]
            packed.append(f"a{i}.packed")
            continue
        quick = parameter.quick
        if quick is None:
            return ["def slots(arguments, grid):", "    return None"]
        known[f"kind{i}"], known[f"pack{i}"] = quick.kind, quick.pack
        conditions += [f"a{i}.__class__ is kind{i}", f"{quick.low!r} <= a{i} <= {quick.high!r}"]
        packed.append(f"pack{i}(a{i})")
    for i in written:
        conditions += [f"a{i}.allocation.writable", f"not a{i}.allocation.folded"]
    return [
        "def slots(arguments, grid):",
        f"    if len(arguments) != {len(parameters)}:",
        "        return None",
        f"    [{', '.join(f'a{i}' for i in range(len(parameters)))}] = arguments",
        f"    if {' and '.join(conditions)}:",
        f"        return [{', '.join(packed)}]",
        "    return None",
    ]


def _marks(name: str, attribute: str, count: int) -> list[str]:
    items = "".join(f"memories[{k}].{attribute}, " for k in range(count))
    return [f"def {name}(memories):", f"    return ({items})"]
