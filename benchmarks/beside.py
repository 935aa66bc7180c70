"""What the README says that others give: the same kernels by kernelab and by Warp, and their like by JAX.

    python benchmarks/beside.py kernelab
    PYTHON benchmarks/beside.py warp        (in an environment that has it: pip install warp-lang)
    PYTHON benchmarks/beside.py jax

Prints, for each row, the right derivative and what was given, or the first line of what was said.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

RIGHT = {
    "loop": 8 * 1.1**7,
    "while": 8 * 2.0**7,
    "break": 4 * 2.0**3,
    "component": 5 * 1.5**4,
    "in place": 4 * 2.0**3,
    "overwritten": 2 * 3.0,
    "mask": 0.0,
    "chain": 4 * 3.0**3,
    "integer": "no derivative",
    "custom": 3 * 2.0**2,
    "index": "an error",
}


def kernels(wp: Any) -> dict[str, Any]:
    """The kernels, in the words that kernelab and Warp have in common."""
    numbers = wp.array(dtype=float)

    @wp.kernel
    def loop(x: numbers, n: int, y: numbers):
        i = wp.tid()
        s = x[i]
        for _ in range(n):
            s = s * s
        y[i] = s

    @wp.kernel
    def converge(x: numbers, y: numbers):
        i = wp.tid()
        s = x[i]
        while s < 100.0:
            s = s * s
        y[i] = s

    @wp.kernel
    def leave(x: numbers, n: int, y: numbers):
        i = wp.tid()
        s = x[i]
        for _ in range(n):
            s = s * s
            if s > 10.0:
                break
        y[i] = s

    @wp.kernel
    def component(x: numbers, y: numbers):
        i = wp.tid()
        v = wp.vec3(x[i], 2.0, 3.0)
        v[0] = v[0] * v[0]
        v[1] = v[0] * x[i]
        y[i] = v[0] * v[1]

    @wp.kernel
    def in_place(x: numbers, y: numbers):
        i = wp.tid()
        x[i] = x[i] * x[i]
        y[i] = x[i] * x[i]

    @wp.kernel
    def square(x: numbers, y: numbers):
        i = wp.tid()
        y[i] = x[i] * x[i]

    @wp.kernel
    def mask(x: numbers, y: numbers):
        i = wp.tid()
        y[i] = wp.where(x[i] > 0.0, wp.sqrt(x[i]), 0.0)

    @wp.kernel
    def integer(x: numbers, y: numbers):
        i = wp.tid()
        y[i] = float(int(x[i]))

    @wp.func
    def cube(v: float):
        return v * v * v

    @wp.func_grad(cube)
    def adj_cube(v: float, adj_ret: float):
        wp.adjoint[v] += 2.0 * v * adj_ret

    @wp.kernel
    def custom(x: numbers, y: numbers):
        i = wp.tid()
        y[i] = cube(x[i])

    @wp.kernel
    def index(x: numbers, y: numbers):
        i = wp.tid()
        y[i] = x[i + 1]

    return locals()


def rows(wp: Any) -> dict[str, Callable[[], Any]]:
    """What to run for each row; each returns a gradient."""
    k = kernels(wp)

    def array(value: float, requires_grad: bool = True) -> Any:
        return wp.array([value], dtype=float, requires_grad=requires_grad)

    def gradient(value: float, *launches: Any, between: Callable[[Any], object] | None = None) -> Any:
        x, y = array(value), array(0.0)
        with wp.Tape() as tape:
            for kernel, *numbers in launches:
                wp.launch(kernel, dim=1, inputs=[x, *numbers], outputs=[y])
            if between:
                between(x)
        tape.backward(grads={y: array(1.0, requires_grad=False)})
        return x.grad.numpy()[0]

    def chain() -> Any:
        x, middle, y = array(3.0), array(0.0, requires_grad=False), array(0.0)
        with wp.Tape() as tape:
            wp.launch(k["square"], dim=1, inputs=[x], outputs=[middle])
            wp.launch(k["square"], dim=1, inputs=[middle], outputs=[y])
        tape.backward(grads={y: array(1.0, requires_grad=False)})
        return x.grad.numpy()[0]

    return {
        "loop": lambda: gradient(1.1, (k["loop"], 3)),
        "while": lambda: gradient(2.0, (k["converge"],)),
        "break": lambda: gradient(2.0, (k["leave"], 10)),
        "component": lambda: gradient(1.5, (k["component"],)),
        "in place": lambda: gradient(2.0, (k["in_place"],)),
        "overwritten": lambda: gradient(3.0, (k["square"],), between=lambda x: x.zero_()),
        "mask": lambda: gradient(0.0, (k["mask"],)),
        "chain": chain,
        "integer": lambda: gradient(1.5, (k["integer"],)),
        "custom": lambda: gradient(2.0, (k["custom"],)),
        "index": lambda: gradient(1.0, (k["index"],)),
    }


def rows_of_jax(jax: Any) -> dict[str, Callable[[], Any]]:
    """The rows that can be written there: its arrays are never overwritten, its functions have no threads."""
    np, lax = jax.numpy, jax.lax

    @jax.custom_vjp
    def cube(v: Any) -> Any:
        return v**3

    cube.defvjp(lambda v: (v**3, v), lambda v, g: (2 * v * g,))
    loop = jax.jit(lambda x, n: lax.fori_loop(0, n, lambda _, s: s * s, x))
    return {
        "loop": lambda: jax.grad(loop)(1.1, 3),
        "while": lambda: jax.grad(lambda x: lax.while_loop(lambda s: s < 100, lambda s: s * s, x))(2.0),
        "mask": lambda: jax.grad(lambda x: np.where(x > 0, np.sqrt(x), 0.0))(0.0),
        "integer": lambda: jax.grad(lambda x: x.astype(int).astype(float))(1.5),
        "custom": lambda: jax.grad(cube)(2.0),
        "index": lambda: jax.grad(lambda x: x[1])(np.ones(1))[0],
    }


def told(run: Callable[[], Any]) -> Iterator[str]:
    """What a run gives, and what it says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield f"{float(run()):.6g}"
        except Exception as error:  # noqa: BLE001 - what another system raises is what is asked for
            yield f"{type(error).__name__}: {str(error).splitlines()[0]}"
    yield from (f"{each.category.__name__}: {str(each.message).splitlines()[0]}" for each in caught)


if __name__ == "__main__":
    name = sys.argv[1]
    module = import_module(name)
    if name == "warp":
        module.config.quiet = True
        module.set_device("cpu")
    found = rows_of_jax(module) if name == "jax" else rows(module)
    for row, run in found.items():
        right = RIGHT[row] if isinstance(RIGHT[row], str) else f"{RIGHT[row]:.6g}"
        print(f"{row:12} right: {right:14} {name}: {'; '.join(told(run))}", flush=True)
