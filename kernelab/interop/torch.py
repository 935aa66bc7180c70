"""Functions of arrays as functions of PyTorch's tensors, differentiated by both, to any order."""

import inspect
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from kernelab.errors import KernelTypeError
from kernelab.func import Made, vmap
from kernelab.interop import Function, Grid, copy_of, launched, pullback, pushforward, recorded, results_of
from kernelab.runtime.array.array import array
from kernelab.runtime.context.recorder import refusal
from kernelab.runtime.host.foreign import from_torch, host_of, to_torch
from kernelab.runtime.memory.memory import youngest


def function(f: Function, dim: Grid = None) -> Function:
    """`f`, which takes and returns arrays of kernelab, as a function of tensors with their gradients.

    Tensors share their memory with the arrays, on the CPU and on CUDA devices; where gradients are wanted
    `f` gets copies of the tensors that require them, and runs once.  Other arguments pass as they are.  A
    tensor of no dimensions comes as an array of one element.  A kernel is launched over `dim`, as
    `kernelab.interop.launched` says.  Backward and forward mode, second derivatives (`gradgradcheck`) and
    `torch.func.vmap` compute with `kl.func`; `f` must not change its arguments.  Under `torch.compile` the
    graph breaks here.

        squares = function(lambda x: x * x)
        squares(torch.ones(3, requires_grad=True)).sum().backward()
    """
    of_arrays, name = launched(f, dim), getattr(f, "__name__", "function")

    def call(*args: Any) -> Any:
        places = [n for n, argument in enumerate(args) if isinstance(argument, torch.Tensor)]
        several: list[bool] = []

        def of_tensors(*arrays: array) -> tuple[array, ...]:
            whole = list(args)
            for n, argument in zip(places, arrays, strict=True):
                whole[n] = argument
            returned = of_arrays(*whole)
            several.append(isinstance(returned, tuple | list))
            return results_of(returned)

        of_tensors.__name__ = name
        if len(places) == len(args):  # messages call arguments as `f` does
            of_tensors.__wrapped__ = of_arrays  # type: ignore[attr-defined]
        tensors = [args[n] for n in places]
        traced = [n for n, t in enumerate(tensors) if t.requires_grad] if torch.is_grad_enabled() else []
        results = _Bridge.apply(_Traced(of_tensors, traced) if traced else of_tensors, *tensors)
        return results if several[-1] else results[0]

    call.__name__ = name
    made = Made(call, partial(function, f, dim))
    made.run = torch.compiler.disable(call)
    return made


class _Traced:
    """A function of arrays that keeps how to go back from its results to the arguments at `places`."""

    def __init__(self, f: Function, places: Sequence[int]) -> None:
        self.f, self.places = f, places
        self.pull: Function | None = None

    def __call__(self, *arrays: array) -> Any:
        return self.f(*arrays)

    def taken(self, tensors: Sequence[Any]) -> list[array]:
        """The arrays that `f` gets: copies of the tensors that require gradients."""
        return [_copied(t) if n in self.places else _shared(t) for n, t in enumerate(tensors)]

    def forward(self, arrays: Sequence[array]) -> Sequence[array]:
        results, self.pull = recorded(self.f, arrays, self.places, own=True)
        return results

    def backward(self, bars: Sequence[Any], tensors: Sequence[Any]) -> tuple[Any, ...]:
        assert self.pull is not None
        cotangents = self.pull([_copied(bar) for bar in bars], own=True)
        grads: list[Any] = [None] * (len(tensors) + 1)
        for n, bar in zip(self.places, cotangents, strict=True):
            grads[n + 1] = to_torch(bar, requires_grad=False).reshape(tensors[n].shape)
        return tuple(grads)


def _shared(tensor: Any) -> array:
    return from_torch(_values(tensor), requires_grad=False)


def _values(tensor: Any) -> Any:
    """A tensor without its graph; raises KernelTypeError for one that has no numbers of its own."""
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if proxies is not None and proxies.get_proxy_mode() is not None:
        message = (
            "PyTorch writes this call down to run it again, and a function of kernelab would be left out"
        )
        hint = "for torch.func.linearize take torch.func.jvp; leave the call out of make_fx and torch.export"
        raise refusal(KernelTypeError, message, "interop", hint)
    try:
        return tensor.detach()
    except RuntimeError as problem:
        message = f"this tensor has no numbers of its own: {problem}"
        hint = "for vectorize=True and is_grads_batched=True take torch.func.jacrev, hessian and vmap"
        raise refusal(KernelTypeError, message, "interop", hint) from None


def _copied(tensor: Any) -> array:
    """An array with the numbers of a tensor, in memory of its own."""
    return copy_of(host_of(_values(tensor))) if tensor.device.type == "cpu" else _shared(tensor.clone())


def _is_shared(results: Sequence[array], n: int, begin: int) -> bool:
    """Whether a change of result `n` in place would change more than that result.

    Memory from before `begin` is that of an argument, or of an array that another call may write, too.
    PyTorch does not know that results share memory: what it changes in one it would not see in another.
    """
    memory = results[n].allocation
    return memory.serial < begin or memory.borrowed or any(map(results[n].overlaps, results[:n]))


class _Bridge(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A function of arrays that returns a tuple of them, applied to tensors."""

    @staticmethod
    def forward(f: Function, *tensors: Any) -> Any:
        arrays = f.taken(tensors) if isinstance(f, _Traced) else [_shared(t) for t in tensors]
        begin = youngest()
        results = f.forward(arrays) if isinstance(f, _Traced) else results_of(f(*arrays))
        made = [to_torch(result, requires_grad=False) for result in results]
        return tuple(t.clone() if _is_shared(results, n, begin) else t for n, t in enumerate(made))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.f, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *bars: Any) -> Any:
        tensors = ctx.saved_tensors
        if isinstance(ctx.f, _Traced) and ctx.f.pull is not None and not torch.is_grad_enabled():
            return ctx.f.backward(bars, tensors)
        floats = [n for n, t in enumerate(tensors) if t.is_floating_point()]
        back = pullback(ctx.f, len(tensors), floats)
        cotangents = _Bridge.apply(back, *tensors, *(bar.contiguous() for bar in bars))
        grads: list[Any] = [None] * (len(tensors) + 1)
        for n, bar in zip(floats, cotangents, strict=True):
            grads[n + 1] = bar.reshape(tensors[n].shape)
        return tuple(grads)

    @staticmethod
    def jvp(ctx: Any, _: Any, *dots: Any) -> Any:
        tensors = ctx.saved_tensors
        moved = [n for n, dot in enumerate(dots) if dot is not None]
        pushed = pushforward(ctx.f, len(tensors), moved)
        results = _Bridge.apply(pushed, *tensors, *(dots[n].contiguous() for n in moved))
        return tuple(dot if dot.is_floating_point() else None for dot in results)

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], f: Function, *tensors: Any) -> Any:
        results = _Bridge.apply(vmap(f, tuple(in_dims[1:])), *tensors)
        return results, (0,) * len(results)


# PyTorch asks for the signature in each call, and to find it takes longer than the call.
_Bridge.forward.__signature__ = inspect.signature(_Bridge.forward)  # type: ignore[attr-defined, unused-ignore]
