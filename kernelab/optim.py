"""Optimisers that update parameters in place from their gradients: `SGD` and `Adam`.

    optimizer = Adam([weights, bias], lr=0.01)
    for k in range(200):
        loss = optimizer.minimize(f)            or zero_grad(), a backward pass of a tape, and step()

A step is one launch for each parameter.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from kernelab.autodiff.tape.tape import Tape
from kernelab.errors import KernelAttributeError, KernelTypeError, KernelValueError, a_thing, name_of
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.guidance.missing_names import OPTIMISERS, face
from kernelab.lang.types import Scalar, is_differentiable, scalar_of, wide
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.host.create import zeros
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import kernels_of
from kernelab.runtime.launch.launch import run
from kernelab.runtime.memory.spaces import space_of

_TEXT = """
def sgd_step(p: array[T], g: array[T], b: array[C], first: bool, lr: C, momentum: C, dampening: C,
             weight_decay: C, nesterov: bool):
    i = tid()
    d = C(g[i]) + weight_decay * C(p[i])
    if momentum != 0.0:
        kept = d if first else momentum * b[i] + (1.0 - dampening) * d
        b[i] = kept
        d = d + momentum * kept if nesterov else kept
    p[i] = T(C(p[i]) - lr * d)

def adam_step(p: array[T], g: array[T], m: array[C], v: array[C], lr: C, beta1: C, beta2: C,
              new1: C, new2: C, unbias1: C, unbias2: C, eps: C):
    i = tid()
    d = C(g[i])
    mean = beta1 * m[i] + new1 * d
    square = beta2 * v[i] + new2 * d * d
    m[i] = mean
    v[i] = square
    p[i] = T(C(p[i]) - lr * (mean * unbias1) / (sqrt(square * unbias2) + eps))
"""


_RATES = {"learning_rate": "write lr=0.01", "step_size": "write lr=0.01"}
_ELSEWHERE = {**_RATES, "betas": "set beta1 and beta2", **dict.fromkeys(("momentum", "weight_decay"), "")}


class Optimizer(ABC):
    """Base class of optimisers: the parameters, and the state that a step keeps for each."""

    KEPT = 0
    """How many arrays of state there are for a parameter."""

    RATES: ClassVar[Mapping[str, float]] = {}
    """The rates, each with what it has to be less than."""

    def __init__(self, params: Sequence[array] | None = None) -> None:
        self.params: list[array] = []
        self._state: list[list[array]] = []
        self._steps: list[int] = []
        if params is not None:
            self.set_params(params)

    def set_params(self, params: Sequence[array]) -> None:
        """Optimise these arrays of floats from now on.

        Raises KernelTypeError for any others, and KernelValueError for two that share memory.
        """
        _require_list(params, "parameters", f"write {type(self).__name__}([x])")
        for k, param in enumerate(params):
            is_plain = isinstance(param, array) and not isinstance(param, structarray)
            if not is_plain or not is_differentiable(param.dtype):
                what = f"an array of {param.dtype}" if isinstance(param, array) else described(param)
                message = f"parameter {k} is {what}: an optimiser changes arrays of floats"
                hint = "write kl.array(..., dtype=float, requires_grad=True)"
                given: Any = param
                if isinstance(given, Instance) and given._struct.fields:
                    field = given._struct.fields[0].name
                    hint = f"give its fields arrays, {hint[6:]}, and pass these: [s.{field}]"
                raise KernelTypeError.of(message, "optim", hint)
            if param.folds:
                message = f"elements of parameter {k} share memory: a step would change it several times"
                raise KernelValueError.of(message, "optim", "pass x.copy(), in which each has its own")
            shared = next((j for j, other in enumerate(params[:k]) if other.overlaps(param)), None)
            if shared is not None:
                message = f"parameters {shared} and {k} share memory: a step would change it twice"
                raise KernelValueError.of(message, "optim", "pass each array once")
        self.params = list(params)
        self.reset_internal_state()

    def reset_internal_state(self) -> None:
        """Forget all earlier steps."""
        self._steps = [0] * len(self.params)
        self._state = [[_kept(_flat(param.contiguous())) for _ in range(self.KEPT)] for param in self.params]

    def step(self, grad: Sequence[array | None] | None = None) -> None:
        """Change every parameter by its gradient in `grad`, or by its own; None leaves one as it is.

        Raises KernelValueError where the gradients are not those of the parameters, or where there is none.
        """
        if not self.params or len(self.params) != len(self._steps):
            message = "the parameters have changed" if self.params else "there are no parameters to optimise"
            raise KernelValueError.of(message, "optim", "call set_params([...]) first")
        if grad is None:
            is_reached = any(param.allocation.adjoint is not None for param in self.params)
            grad = [param.grad for param in self.params]
            if not is_reached or all(gradient is None for gradient in grad):
                message = "no backward pass has given a parameter its gradient"
                hint = "create them with requires_grad=True, compute the loss on a tape, and call "
                hint += "tape.backward(loss) before the step; or call minimize(f)"
                raise KernelValueError.of(message, "optim", hint)
        _require_list(grad, "gradients", "pass [x.grad for x in params], or call minimize(f)")
        if len(grad) != len(self.params):
            message = f"{len(grad)} gradients for {len(self.params)} parameters"
            raise KernelValueError.of(message, "optim", "pass [x.grad for x in params]")
        for k, (param, gradient) in enumerate(zip(self.params, grad, strict=True)):
            _require_gradient(k, param, gradient)
        for k, (param, gradient) in enumerate(zip(self.params, grad, strict=True)):
            if gradient is not None:
                self._steps[k] += 1
                values = param.contiguous()
                self._change(_flat(values), _flat(gradient.contiguous()), self._state[k], self._steps[k])
                if values is not param:
                    param.assign(values)

    def zero_grad(self) -> None:
        """Set the gradients of the parameters to zero, so that the next backward pass begins anew."""
        for param in self.params:
            # Only where there is one: who asks for a gradient that is missing is told why.
            if param.allocation.adjoint is not None and param.grad is not None:
                param.grad.zero_()

    def minimize(self, func: Callable[..., Any], steps: int = 1) -> array:
        """Take steps down the gradient of `func`, which returns an array of one float; the last loss.

        `func` gets the parameters, or nothing where it takes nothing, and runs on a tape of its own for each
        step; the gradients are zero before and after.  The loss is that before the last step.  Raises what
        `backward` and `step` raise, and KernelValueError where the loss comes from no parameter.
        """
        __tracebackhide__ = True  # IPython shows the frames of the user
        if not callable(func) or not isinstance(steps, int) or steps < 1:
            what = described(func) if not callable(func) else f"{steps!r} steps"
            message = f"minimize() takes a function, and 1 step or more, not {what}"
            hint = "write loss = optimizer.minimize(f), with a function f that returns the loss"
            raise KernelTypeError.of(message, "optim", hint)
        if not any(param.requires_grad for param in self.params):
            hint = "create what is to be minimised by with requires_grad=True"
            raise KernelTypeError.of("no parameter of this optimiser requires gradients", "optim", hint)
        arguments = self.params if inspect.signature(func).parameters else []
        for _ in range(steps):
            self.zero_grad()
            with Tape() as tape:
                loss: array = func(*arguments)
            if loss is None:
                raise KernelTypeError.of("the function returned None", "optim", "end it by return loss")
            tape.backward(loss)
            read = {source.allocation for record in tape for source in record.read}
            if read.isdisjoint([param.allocation for param in self.params]):
                message = f"{name_of(func)} computes the loss from no parameter of this optimiser"
                raise KernelValueError.of(message, "optim", "compute it from the arguments of the function")
            self.step()
            tape.zero()
        return loss

    def __getattr__(self, name: str) -> Any:
        """Raises KernelAttributeError that says what to write instead."""
        message, hint = f"an optimiser has no {name}", OPTIMISERS.hint(name) or None
        raise KernelAttributeError.of_name(message, hint, name, dir(type(self)))

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises KernelValueError for a wrong rate, KernelAttributeError for one of another optimiser."""
        if name in self.RATES:
            _require_rate(name, value, self.RATES[name])
        elif name in _ELSEWHERE and type(self) in (SGD, Adam):
            hint = "" if name == "betas" and "beta1" not in self.RATES else _ELSEWHERE[name]
            message = f"{type(self).__name__} has no {name}"
            raise KernelAttributeError.of_name(message, hint or None, name, self.RATES)
        object.__setattr__(self, name, value)

    @abstractmethod
    def _change(self, param: array, grad: array, state: list[array], step: int) -> None:
        """Take the step of that number, counted from 1, of one parameter."""


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum after Polyak or Nesterov (Sutskever et al. 2013).

    `weight_decay` adds that multiple of a parameter to its gradient, `dampening` lessens what a gradient adds
    to the momentum.

    >>> x = kl.array([1.0], requires_grad=True)
    >>> x.grad = kl.array([2.0])
    >>> kl.optim.SGD([x], lr=0.25).step()
    >>> x.list()
    [0.5]
    """

    KEPT = 1
    RATES: ClassVar = dict.fromkeys(("lr", "momentum", "dampening", "weight_decay"), math.inf)

    @explains_bad_calls(**_RATES)
    def __init__(
        self,
        params: Sequence[array] | None = None,
        lr: float = 0.001,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params)
        self.lr = lr
        self.momentum = momentum
        self.dampening = dampening
        self.weight_decay = weight_decay
        self.nesterov = nesterov

    def _change(self, param: array, grad: array, state: list[array], step: int) -> None:
        rates = [self.lr, self.momentum, self.dampening, self.weight_decay, self.nesterov]
        first = step == 1
        if first and self.momentum:
            _require_no_graph(param, "SGD takes its first step")
        run(_kernel("sgd_step", param.dtype), param.size, [param, grad, *state, first, *rates])


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015): steps scaled by running means of the gradient and of its square.

    `params` are arrays of floats, `betas` how much of each mean is kept.  Raises KernelTypeError for other
    parameters, KernelValueError for rates that are none.

    >>> x = kl.array([3.0], requires_grad=True)
    >>> optimizer = kl.optim.Adam([x], lr=0.1)
    >>> for _ in range(200):
    ...     with kl.Tape() as tape:
    ...         loss = kl.map(lambda v: v * v, x)
    ...     tape.backward(loss)
    ...     optimizer.step()
    ...     tape.zero()
    >>> abs(float(x[0])) < 0.01
    True
    """

    KEPT = 2
    RATES: ClassVar = {"lr": math.inf, "eps": math.inf, "beta1": 1.0, "beta2": 1.0}

    @explains_bad_calls(**_RATES)
    def __init__(
        self,
        params: Sequence[array] | None = None,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
    ) -> None:
        numbers: Any = betas
        if not isinstance(numbers, Sequence) or len(numbers) != 2:
            message = f"betas are two numbers, not {described(numbers)}"
            raise KernelTypeError.of(message, "optim", "write betas=(0.9, 0.999)")
        super().__init__(params)
        self.lr = lr
        self.beta1, self.beta2 = betas
        self.eps = eps

    def _change(self, param: array, grad: array, state: list[array], step: int) -> None:
        _require_no_graph(param, "Adam counts a step on the host")
        betas = self.beta1, self.beta2
        # In float32 the share of what is new would be 1e-5 off for a beta of 0.999.
        new = [1.0 - beta for beta in betas]
        unbias = [1.0 / (1.0 - beta**step) for beta in betas]
        rates = [self.lr, *betas, *new, *unbias, self.eps]
        run(_kernel("adam_step", param.dtype), param.size, [param, grad, *state, *rates])


def _require_no_graph(param: array, what: str) -> None:
    """Raise LaunchError where a step is captured that a graph would repeat as one of the same number."""
    space = space_of(param.allocation)
    if space is not None:
        space.require_free(what)


def _require_rate(name: str, rate: Any, below: float) -> None:
    """Raise KernelValueError for a rate that is not a number of 0 or more, or not below a limit."""
    if not isinstance(rate, int | float | np.number) or isinstance(rate, bool) or not 0 <= rate < below:
        limit = "of 0 or more" if below == math.inf else f"from 0 up to, not including, {below:g}"
        message = f"{name} is a number {limit}, not {described(rate)}"
        raise KernelValueError.of(message, "optim", f"write {name}=0.01, or another such number")


def _require_list(arrays: Any, what: str, hint: str) -> None:
    if not isinstance(arrays, Sequence) or isinstance(arrays, str):
        kind = f"an array of shape {arrays.shape}" if isinstance(arrays, array) else a_thing(arrays)
        raise KernelTypeError.of(f"{what} are a list of arrays, not {kind}", "optim", hint)


def _require_gradient(k: int, param: array, grad: Any) -> None:
    if grad is None:
        return
    if not isinstance(grad, array) or (grad.shape, grad.dtype) != (param.shape, param.dtype):
        what = f"{grad.dtype} {grad.shape}" if isinstance(grad, array) else described(grad)
        message = f"gradient {k} is {what}, its parameter {param.dtype} {param.shape}"
        hint = "pass [x.grad for x in params], in the order of the parameters"
        raise KernelValueError.of(message, "optim", hint)


def _flat(values: array) -> array:
    """All numbers of a contiguous array in one row, components too."""
    is_row = values.ndim == 1 and isinstance(values.dtype, Scalar)
    return values if is_row else values.view(scalar_of(values.dtype)).flatten()


def _kept(param: array) -> array:
    """State of a parameter, zeros at first, for each of its numbers."""
    state: array = zeros(param.size, wide(scalar_of(param.dtype)), param.device)
    return state


@lru_cache(maxsize=32)
def _kernel(name: str, elem: Scalar) -> Kernel:
    return kernels_of(_TEXT.strip("\n"), "<optim>", {"T": elem, "C": wide(elem)})[name]


__all__ = ["SGD", "Adam", "Optimizer"]

__getattr__, __dir__ = face(__name__, __all__)
