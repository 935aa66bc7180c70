"""What the language refuses: one text a message, and every message of the frontend has one."""

import re
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import kernelab as kl
from tests.conformance.rejection import rejections
from tests.conformance.templates import templates
from tests.frontend.helpers import cell

REJECTIONS = rejections()


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("name", REJECTIONS)
def test_a_text_is_answered_by_its_message(name: str) -> None:
    wanted = REJECTIONS[name]
    told = wanted.told()
    messages = tuple(found.message for found in told)
    assert wanted.fits(messages), messages
    assert wanted.hint in told[0].hint
    assert told[0].span is not None


def test_every_message_of_the_frontend_is_provoked_by_a_text() -> None:
    messages = {message for one in REJECTIONS.values() for message in one.messages}
    messages |= {*ON_THE_HOST, LATER, LOST, STORED}
    assert [one for one in templates() if not any(map(one.fits, messages))] == []


# ------------------------------------------------------------------------- on the host


def _chain(count: int) -> str:
    """A kernel whose variables learn their types one after another."""
    started = "".join(f"    v{k} = 0\n" for k in range(count))
    moved = "".join(f"        v{k} = v{k - 1}\n" for k in range(count - 1, 0, -1))
    head = f"def kernel(x: array[float]):\n{started}    for i in range(3):\n{moved}"
    return f"{head}        v0 = x[0]\n    x[0] = v{count - 1}\n"


def _no_result(x: float) -> None:
    pass


def _without_text() -> Any:
    names: dict[str, Any] = {}
    exec("def unseen(x): return x", names)
    return names["unseen"]


def _of_a_changed_file() -> object:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "edited.py"
        path.write_text("def changed(x): return x + 7.5\n")
        loader = SourceFileLoader("edited", str(path))
        names: dict[str, Any] = {"__loader__": loader, "__file__": str(path)}
        exec(compile(path.read_text(), str(path), "exec"), names)
        path.write_text("def changed(x): return x - 17.5\n")
        return kl.map(names["changed"], kl.zeros(1))


def _doubling(count: int) -> str:
    """Functions each of which calls the one before twice, and a kernel that calls the last."""
    defs = "".join(f"def f{k + 1}(x: float):\n    return f{k}(x) + f{k}(x)\n" for k in range(count))
    start = "def f0(x: float):\n    return x * x\n"
    return f"{start}{defs}def kernel(x: array[float]):\n    x[0] = f{count}(x[0])\n"


FUNCTION = "def f(x):\n    return x\n"


class _Odd:
    x: 3  # type: ignore[valid-type]


def _misused_generic() -> None:
    kernel = kl.compile("def kernel(x: array2d[Any]):\n    x[0, 0] = x.dtype(1)")["kernel"]
    kl.launch(kernel, 1, inputs=[kl.zeros(1)])


ON_THE_HOST: dict[str, Callable[[], object]] = {
    "`_no_result` returns nothing": lambda: kl.map(_no_result, kl.zeros(1)),
    "the source text of unseen cannot be found, so it cannot be compiled": lambda: kl.map(
        _without_text(), kl.zeros(1)
    ),
    "edited.py has changed since changed was imported from it": _of_a_changed_file,
    "this cell nests too deeply": lambda: kl.compile(f"def f(x):\n    return {'-' * 30_000}x"),
    "the field x of _Odd is annotated with 3, which is not a type": lambda: kl.struct(_Odd),
    "this is not Python: '\\ud800' is half of a character": lambda: kl.compile(
        "def f(x):\n    return x  # \ud800"
    ),
    "kernel is too long: 4,194,304 operations, each call of a function written out": lambda: kl.compile(
        _doubling(20)
    ),
    "the types of the variables of kernel cannot be found": lambda: kl.compile(_chain(50)),
    "`f` does not return a number, a vector, a matrix or a struct": lambda: kl.compile(
        "def f(x: array[float]):\n    return x\n"
    )["f"](kl.zeros(2)),
    "function `f` takes 1 argument, not 2": lambda: kl.compile(FUNCTION)["f"](1.0, 2.0),
    "function `f` takes 1 argument, not 0; `x` is missing": lambda: kl.compile(FUNCTION)["f"](),
    "function `f` gets two values for `x`": lambda: kl.compile(FUNCTION)["f"](1.0, x=2.0),
    "function `f` has no parameter `y`": lambda: kl.compile(FUNCTION)["f"](1.0, y=2.0),
    "argument `x` of function `f` is the text '1', no value of a kernel": lambda: kl.compile(FUNCTION)["f"](
        "1"
    ),
    "argument `x` of kernel `kernel` expects an array of 2 dimensions, not array[float32]": _misused_generic,
}


@pytest.mark.parametrize("message", ON_THE_HOST)
def test_a_call_on_the_host_is_answered_by_its_message(message: str) -> None:
    with pytest.raises(kl.KernelError, match=re.escape(message)):
        ON_THE_HOST[message]()


def test_a_launch_whose_threads_lose_a_sum_is_answered_by_its_message() -> None:
    total = kl.compile(
        "def total(x: array[float], s: array[float]):\n    i = tid()\n    s[0] = s[0] + x[i]\n"
    )["total"]
    with pytest.warns(kl.KernelWarning, match=re.escape(LOST)):
        total[2](kl.ones(2, dtype=float), kl.zeros(1, dtype=float))


def test_a_launch_whose_threads_all_store_to_one_element_is_answered_by_its_message() -> None:
    last = kl.compile("def last(x: array[float], s: array[float]):\n    s[0] = x[tid()]\n")["last"]
    with pytest.warns(kl.KernelWarning, match=re.escape(STORED)):
        last[2](kl.ones(2, dtype=float), kl.zeros(1, dtype=float))


def test_kernels_that_do_without_a_later_rule_are_mentioned() -> None:
    f = cell("def f(t: float):\n    return t * t\n").definitions["f"]
    (note,) = cell(LATE, f=f).diagnostics
    assert note.message == LATER


LOST = (
    "threads store to s[0] what they have read there, and more: where two do so at once, one addition is lost"
)
STORED = "every thread stores a value of its own to s[0], and one of them stays"
LATER = "kernels that were compiled before do without adj_f"
LATE = "@func_grad(f)\ndef adj_f(t: float, adj_ret: float):\n    adjoint[t] += adj_ret * 2.0 * t\n"
