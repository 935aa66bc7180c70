"""What arrays and kernels offer, and what they have not, said to those who know it from elsewhere."""

from functools import lru_cache
from typing import Any

from kernelab.errors import Diagnostic, KernelAttributeError, KernelTypeError
from kernelab.lang.absent import Offers
from kernelab.lang.single import Single

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


_LAUNCH = "write kl.launch(kernel, dim=n, inputs=[...]), or kernel[n](...)"
_SHOW = "show it as the value of a cell, or write kl.show(kernel): its adjoint stands beside its source"
_OF_KERNELS = (
    dict.fromkeys(("launch", "run", "forward", "call", "apply"), _LAUNCH)
    | dict.fromkeys(("show", "display", "plot", "view", "code", "adj", "adjoint"), _SHOW)
    | {
        "tangent": "%%kernel --show tangent shows it; kernel.jvp([...]) is the program",
        "backward": "record its launch, and ask the tape: tape.backward(loss)",
        "grad": "write kl.func.grad(function)(x) of a function that launches it",
        "jacobian": "write kl.autograd.jacobian(kernel, dim=n, inputs=[...], outputs=[...])",
        "gradcheck": "write kl.autograd.gradcheck(kernel, dim=n, inputs=[...], outputs=[...])",
        "trace": "write kl.trace(kernel, thread, dim=n, inputs=[...])",
        "args": "its parameters are in inspect.signature(kernel)",
    }
)


class KernelHints(Offers, Single):
    """The part of a kernel that answers what it has not."""

    OFFERED = ("doc", "effects", "jvp", "loops", "name", "primal", "source", "span", "vjp", "widened")

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        raise KernelAttributeError.of(f"a kernel has no {name}", _OF_KERNELS.get(name), name, dir(self))


class Hints(Offers):
    """The part of an array that answers what it has not."""

    __slots__ = ()
    OFFERED = (
        *("assign", "capacity", "contiguous", "device", "dtype", "fill_", "flatten", "grad", "is_contiguous"),
        *("item", "list", "mark_read", "mark_write", "ndim", "numpy", "pinned", "ptr", "requires_grad"),
        *("reshape", "retain_grad", "shape", "size", "strides", "to", "transpose", "view", "zero_"),
    )

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        kind: Any = type(self)
        raise KernelAttributeError(*_answer(kind, name).diagnostics)

    def __matmul__(self, other: Any) -> Any:
        raise _no_operator("@", "write kl.utils.array_inner(x, y), or a kernel with a loop")

    __rmatmul__ = __matmul__

    def __lt__(self, other: Any) -> Any:
        raise _no_operator("<, <=, > and >=", f"{_MAP}; on the host, x.numpy() < 1")

    __le__ = __gt__ = __ge__ = __lt__


@lru_cache(maxsize=256)
def _answer(cls: Any, name: str) -> KernelAttributeError:
    # Remembered: libraries ask arrays for many names that they may have.
    instead = _INSTEAD[name].format(name=name) if name in _INSTEAD else None
    return KernelAttributeError.of(f"an array has no {name}", instead, name, cls.OFFERED)


def _no_operator(symbol: str, hint: str) -> KernelTypeError:
    return KernelTypeError(Diagnostic(f"arrays have no {symbol}", code="operator", hint=hint))
