"""What `array` does not do, said to those who know it from NumPy or PyTorch."""

import difflib
from functools import lru_cache
from typing import Any

from kernelab.errors import Diagnostic, KernelTypeError

_MAP = "apply a function to every element: kl.map(lambda a: ..., x)"
_INSTEAD = {
    "backward": "launch on a tape, and ask it: with kl.Tape() as tape: ..., then tape.backward(loss)",
    "detach": "write kl.clone(x, requires_grad=False)",
    "clone": "write kl.clone(x)",
    "copy": "write kl.clone(x), or kl.copy(dest, x)",
    "requires_grad_": "write x.requires_grad = True",
    "grad_fn": "a tape knows what was computed: show it as the value of a cell",
    "is_leaf": "every array with requires_grad=True gets a gradient",
    "zero_grad": "write tape.zero(), or x.grad.zero_()",
    "cpu": "write x.to('cpu'), or x.numpy() for NumPy",
    "cuda": "write x.to('cuda')",
    "T": "write x.transpose()",
    "mT": "write x.transpose((1, 0))",
    "permute": "write x.transpose((1, 0, 2))",
    "swapaxes": "write x.transpose((1, 0))",
    "sum": "write kl.utils.array_sum(x), into out= for a gradient",
    "mean": "write kl.utils.array_sum(x) / x.size",
    "dot": "write kl.utils.array_inner(x, y)",
    "cumsum": "write kl.utils.array_scan(x, out)",
    "tolist": "write x.list()",
    "astype": "write kl.array(x, dtype=...), or kl.utils.array_cast(x, out)",
    "type": "write kl.array(x, dtype=...)",
    "float": "write kl.array(x, dtype=float)",
    "double": "write kl.array(x, dtype=kl.float64)",
    "int": "write kl.array(x, dtype=int)",
    "fill": "write x.fill_(value)",
    "zero": "write x.zero_()",
    "data": "write x.numpy() for the elements, x.ptr for their address",
    "ravel": "write x.flatten()",
    "squeeze": "write x.reshape(...), or x[0]",
    "unsqueeze": "write x.reshape(...)",
    "append": "an array keeps its size: make a longer one with kl.zeros, and copy into it",
    "nbytes": "write x.numpy().nbytes",
    "itemsize": "write kl.types.type_size_in_bytes(x.dtype)",
} | dict.fromkeys(("abs", "sqrt", "exp", "log", "sin", "cos", "tanh", "pow", "relu", "clip", "clamp"), _MAP)
_INSTEAD |= dict.fromkeys(
    (
        "max",
        "min",
        "argmax",
        "argmin",
        "std",
        "var",
        "any",
        "all",
        "sort",
        "argsort",
        "prod",
        "norm",
        "round",
    ),
    "write x.numpy().{name}() on the host, or a kernel where a gradient is needed",
)


class Hints:
    """The part of an array that answers what it has not."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError that says what to write instead."""
        kind: Any = type(self)
        raise AttributeError(_answer(kind, name), name=name, obj=None)

    def __matmul__(self, other: Any) -> Any:
        raise _no_operator("@", "write kl.utils.array_inner(x, y), or a kernel with a loop")

    __rmatmul__ = __matmul__

    def __lt__(self, other: Any) -> Any:
        raise _no_operator("<, <=, > and >=", f"{_MAP}; on the host, x.numpy() < 1")

    __le__ = __gt__ = __ge__ = __lt__


@lru_cache(maxsize=256)
def _answer(cls: Any, name: str) -> str:
    # Remembered: libraries ask arrays for many names that they may have.
    message = f"an array has no {name}"
    if name in _INSTEAD:
        return f"{message}; {_INSTEAD[name].format(name=name)}"
    close = [] if name.startswith("_") else difflib.get_close_matches(name, dir(cls), 1)
    return f"{message}; did you mean {close[0]}?" if close else message


def _no_operator(symbol: str, hint: str) -> KernelTypeError:
    return KernelTypeError(Diagnostic(f"arrays have no {symbol}", code="operator", hint=hint))
