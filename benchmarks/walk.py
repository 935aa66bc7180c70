"""How far a reader has to walk: the modules and functions that a gradient passes.

    python -m benchmarks.walk

Counts distinct functions of kernelab that run, by `sys.setprofile`: in a warm `backward` of one recorded
launch, and in the example of ARCHITECTURE.md from its text to its gradient.  Lambdas and comprehensions count
with the function that they stand in; what only runs because a module is imported does not count.
"""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import kernelab as kl

PACKAGE = str(Path(kl.__file__).parent)
TEXT = """
def eighth(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    for k in range(3):
        s = s * s
    y[i] = s
"""


def walked(run: Callable[[], Any]) -> tuple[int, int]:
    """The numbers of modules and of functions of kernelab that run in a call."""
    codes: set[CodeType] = set()
    loading = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal loading
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name == "<module>":
            loading += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not loading:
            codes.add(code)

    gc.collect()
    gc.disable()  # what is dropped elsewhere is not part of the call
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    functions = {(code.co_filename, code.co_qualname.partition(".<locals>")[0]) for code in codes}
    return len({name for name, _ in functions}), len(functions)


def recorded(kernel: Any) -> tuple[kl.Tape, kl.array]:
    """A tape of one launch, and what it wrote."""
    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    y = kl.zeros(2, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, dim=2, inputs=[x], outputs=[y])
    return tape, y


def backward(tape: kl.Tape, y: kl.array) -> None:
    tape.backward(grads={y: kl.ones_like(y)})


def example() -> None:
    """The example of ARCHITECTURE.md, from its text to its gradient."""
    backward(*recorded(kl.compile(TEXT)["eighth"]))


def main() -> None:
    kl.config.kept_memory = 1 << 30  # else a launch asks, now and then, how much is free
    cold = walked(example)
    tape, y = recorded(kl.compile(TEXT)["eighth"])
    ones = {y: kl.ones_like(y)}
    tape.backward(grads=ones)
    tape.zero()
    warm = walked(lambda: tape.backward(grads=ones))
    print(f"warm backward of one record: {warm[0]} modules, {warm[1]} functions")
    print(f"the example of ARCHITECTURE.md: {cold[0]} modules, {cold[1]} functions")


if __name__ == "__main__":
    main()
