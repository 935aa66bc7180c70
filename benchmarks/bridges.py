"""Gradients through `kernelab.interop` beside bridges to PyTorch, JAX and SciPy that are written by hand.

    make test-interop                       # makes the environment
    .venv-interop/bin/python benchmarks/bridges.py

A hand-written bridge is what one writes in a notebook in a quarter of an hour: a tape in forward, its
backward in backward, first derivatives only.  Value and gradient of 50 elements; the two take turns, and the
medians of the rounds and of their ratios are printed, in microseconds of the processor.
"""

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from jax import numpy as jnp
from scipy import optimize

import kernelab as kl
from kernelab.interop import jax as kj
from kernelab.interop import torch as kt
from kernelab.interop.scipy import problem

COUNT, ROUNDS, CALLS = 50, 20, 10
TEXT = """
def wave(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * x[i] * x[i]

def energy(x: array[float64], e: array[float64]):
    i = tid()
    e[0] += sin(x[i]) * x[i] * x[i]
"""
MADE = kl.compile(TEXT)


def wave(x: Any) -> Any:
    y = kl.zeros_like(x)
    kl.launch(MADE["wave"], dim=x.shape, inputs=[x], outputs=[y])
    return y


def energy(x: Any) -> Any:
    e = kl.zeros(1, dtype=kl.float64)
    kl.launch(MADE["energy"], dim=x.shape, inputs=[x], outputs=[e])
    return e


class ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        given = kl.from_torch(x.detach(), requires_grad=True)
        y = kl.zeros(len(given), dtype=float, requires_grad=True)
        with kl.Tape() as tape:
            kl.launch(MADE["wave"], dim=len(given), inputs=[given], outputs=[y])
        ctx.run = given, y, tape
        return torch.from_numpy(y.numpy())

    @staticmethod
    def backward(ctx: Any, bar: Any) -> Any:
        given, y, tape = ctx.run
        tape.backward(grads={y: kl.from_torch(bar.contiguous())})
        return torch.from_numpy(given.grad.numpy())


def jax_by_hand() -> Callable[[Any], Any]:
    def forward(x: Any) -> Any:
        y = kl.zeros(len(x), dtype=float)
        kl.launch(MADE["wave"], dim=len(x), inputs=[kl.array(np.asarray(x))], outputs=[y])
        return y.numpy()

    def back(x: Any, bar: Any) -> Any:
        given = kl.array(np.asarray(x), requires_grad=True)
        y = kl.zeros(len(x), dtype=float, requires_grad=True)
        with kl.Tape() as tape:
            kl.launch(MADE["wave"], dim=len(x), inputs=[given], outputs=[y])
        tape.backward(grads={y: kl.array(np.asarray(bar))})
        return given.grad.numpy()

    f: Any = jax.custom_vjp(lambda x: jax.pure_callback(forward, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
    f.defvjp(
        lambda x: (f(x), x),
        lambda x, bar: (jax.pure_callback(back, jax.ShapeDtypeStruct(x.shape, x.dtype), x, bar),),
    )
    return f


def of_torch(f: Callable[[Any], Any]) -> Callable[[], Any]:
    x = torch.linspace(0.1, 1.0, COUNT, requires_grad=True)

    def run() -> Any:
        x.grad = None
        f(x).sum().backward()
        return x.grad.numpy()

    return run


def of_jax(f: Callable[[Any], Any], compiled: bool) -> Callable[[], Any]:
    x, both = jnp.linspace(0.1, 1.0, COUNT), jax.value_and_grad(lambda x: f(x).sum())
    run = jax.jit(both) if compiled else both
    return lambda: np.asarray(run(x)[1])


def scipy_by_hand(x: Any) -> tuple[float, Any]:
    given = kl.array(x, dtype=kl.float64, requires_grad=True)
    e = kl.zeros(1, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(MADE["energy"], dim=len(x), inputs=[given], outputs=[e])
    tape.backward(e)
    return e.numpy()[0], given.grad.numpy()


def of_scipy() -> dict[str, Callable[[], Any]]:
    x = np.linspace(0.1, 1.0, COUNT)
    p = problem(energy, kl.array(x, dtype=kl.float64))

    def solved(fun: Any, jac: Any) -> Any:
        """The gradient after a few steps, each of which asks for value and gradient."""
        return optimize.minimize(fun, x, jac=jac, method="L-BFGS-B", options={"maxiter": 3}).jac

    p.jac(x)
    return {"by hand": lambda: solved(scipy_by_hand, True), "kernelab": lambda: solved(p.fun, p.jac)}


def compared(name: str, ways: dict[str, Callable[[], Any]]) -> None:
    """Print the medians of both, and of the ratio of a round."""
    np.testing.assert_allclose(ways["kernelab"](), ways["by hand"](), rtol=1e-5)
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, run in ways.items():
            start = time.process_time()
            for _ in range(CALLS):
                run()
            taken[way].append((time.process_time() - start) / CALLS * 1e6)
    ratio = statistics.median(a / b for a, b in zip(taken["kernelab"], taken["by hand"], strict=True))
    hand, ours = (statistics.median(taken[way]) for way in ("by hand", "kernelab"))
    print(f"| {name} | {hand:.0f} | {ours:.0f} | {ratio:.2f} |")


def main() -> None:
    print(
        f"{platform.processor() or platform.machine()}, PyTorch {torch.__version__}, JAX {jax.__version__}\n"
    )
    print("| value and gradient of 50 elements | by hand, us | kernelab, us | ratio |\n|---|---|---|---|")
    compared("PyTorch", {"by hand": of_torch(ByHand.apply), "kernelab": of_torch(kt.function(wave))})
    compared(
        "PyTorch, of a kernel",
        {"by hand": of_torch(ByHand.apply), "kernelab": of_torch(kt.function(MADE["wave"]))},
    )
    for compiled in (False, True):
        ways = {"by hand": of_jax(jax_by_hand(), compiled), "kernelab": of_jax(kj.function(wave), compiled)}
        compared("JAX under jit" if compiled else "JAX", ways)
    compared("SciPy", of_scipy())


if __name__ == "__main__":
    main()
