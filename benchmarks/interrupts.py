"""Measure how long an interrupt (Ctrl-C, the button of a notebook) takes to arrive in what kernelab does.

    python benchmarks/interrupts.py [--times 5] [--only launch backward] [--processor]

Each work is interrupted at several moments, from another thread, by the signal that a notebook sends.  What
is measured lasts from the signal to the KeyboardInterrupt at the caller.  Goals: 50 ms; 250 ms for the C++
compiler and for copies of gigabytes.
"""

import argparse
import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelab as kl
from kernelab.errors import Source
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.texts import compile_source
from kernelab.views.kernel.kernel_facts import view

TEXT = """
def endless(x: array[float], y: array[float]):
    s = x[0]
    while s > 0.0:
        s = s + 0.5
    y[0] = s

def step(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] + 0.01 * sin(x[i])

def long(x: array[float], y: array[float], n: int):
    i = tid()
    s = x[i]
    for k in range(n):
        s = s + 0.001 * sin(s)
    y[i] = s
"""
LINES = 20_000
LONG = "def k(x: array[float], y: array[float]):\n    a = x[0]\n{}    y[0] = a\n"

AGAIN = 5.0
"""Seconds after which a signal is sent again: Python drops a KeyboardInterrupt while it frees an object."""

Work = Callable[[], Any]


def works() -> dict[str, tuple[Work, float]]:
    """Each work, which goes on until it is interrupted, and the seconds within which an interrupt arrives."""
    made: Any = kl.compile(TEXT)
    x, y = kl.ones(1000, requires_grad=True), kl.zeros(1000, requires_grad=True)
    gigabytes = [np.ones(1 << 28, np.float32) for _ in range(2)]
    arrays = [kl.array(each, copy=False) for each in gigabytes]

    def forever(work: Work) -> Work:
        def again() -> None:
            while True:
                work()

        return again

    def many() -> kl.Tape:
        with kl.Tape() as tape:
            for _ in range(2000):
                kl.launch(made["step"], 1000, [x], [y])
        return tape

    tape = many()

    def swept() -> None:
        tape.zero()
        tape.backward(grads={y: kl.ones(1000)})

    def long_backward() -> None:
        with kl.Tape() as tape:
            kl.launch(made["long"], 1000, [x, y, 20_000])
        tape.zero()
        tape.backward(grads={y: kl.ones(1000)})

    def stepped(z: Any) -> Any:
        out = kl.zeros(z.shape, requires_grad=True)
        kl.launch(made["long"], z.size, [z, out, 2000])
        return out

    def checked() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            kl.autograd.gradcheck(stepped, inputs=[kl.ones(30, requires_grad=True)])

    def front_end() -> None:
        body = "".join(f"    a = a * 1.5 + {k}.0\n" for k in range(LINES))
        compiled = compile_source(Source(LONG.format(body), "cell"))
        for kernel in compiled.definitions.values():
            if isinstance(kernel, Kernel):
                view(kernel)

    def build() -> None:
        body = "".join(f"    a = sin(a) * {k}.5 + {time.monotonic()}\n" for k in range(400))
        kernel: Any = kl.compile(LONG.format(body))["k"]
        kl.launch(kernel, 1, [x, y])

    return {
        "launch": (lambda: kl.launch(made["endless"], 1, [x, y]), 0.05),
        "launches": (forever(lambda: kl.launch(made["step"], 1000, [x], [y])), 0.05),
        "recorded launches": (forever(many), 0.05),
        "backward": (forever(swept), 0.05),
        "backward of long loops": (forever(long_backward), 0.05),
        "jacobian": (forever(lambda: kl.func.jacrev(stepped)(kl.ones(100, requires_grad=True))), 0.05),
        "gradcheck": (forever(checked), 0.05),
        "front end, 20,000 lines": (forever(front_end), 0.2),
        "C++ compiler": (forever(build), 0.25),
        "copies of gigabytes": (forever(lambda: kl.array(gigabytes[0])), 0.25),
        "copies between arrays": (forever(lambda: kl.copy(*arrays)), 0.25),
        "assigned gigabytes": (forever(lambda: arrays[0].assign(gigabytes[1])), 0.25),
    }


def latency(work: Work, delay: float, clock: Callable[[], float]) -> float:
    """The seconds from a signal that is sent after a delay to its exception here."""
    sent: list[float] = []
    arrived = threading.Event()

    def send() -> None:
        sent.append(clock())
        os.kill(os.getpid(), signal.SIGINT)
        while not arrived.wait(AGAIN):
            os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(delay, send)
    timer.start()
    try:
        work()
    except KeyboardInterrupt:
        return clock() - sent[0]
    finally:
        arrived.set()
        timer.join()
    raise AssertionError("the work ended by itself")


def main() -> int:
    """Print a table; the exit status is 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--processor", action="store_true", help="time of the processors, on a busy machine")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    clock = time.process_time if options.processor else time.perf_counter
    late = 0
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["KERNELAB_CACHE_DIR"] = folder
        print(f"{'work':26}{'median':>10}{'longest':>10}{'goal':>9}")
        for name, (work, goal) in works().items():
            if options.only and name not in options.only:
                continue
            found = sorted(latency(work, 0.4 + 0.37 * k, clock) for k in range(options.times))
            late += found[-1] > goal
            middle = found[len(found) // 2]
            print(f"{name:26}{middle * 1e3:7.1f} ms{found[-1] * 1e3:7.1f} ms{goal * 1e3:6.0f} ms", flush=True)
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
