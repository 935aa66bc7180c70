"""Arguments that nobody should pass and messages that no page should send: what they may end in.

A launch is a function of its seed alone, so a finding is named by one number.
"""

import array as plain
import datetime
import decimal
import enum
import fractions
import json
import random
import warnings
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import comm
import numpy as np
from comm.base_comm import BaseComm

import kernelab as kl
from kernelab.errors import KernelError

TEXT = """
class Ball:
    at: vec3
    mass: float

def scale(x: array[float], y: array[float], a: float):
    i = tid()
    y[i] = x[i] * a

def table(x: array2d[float64], n: int, y: array[int]):
    i, j = tid()
    y[i] = int(x[i, j]) + n

def points(p: array[vec3], m: mat33, q: array[vec3], go: bool):
    i = tid()
    if go:
        q[i] = m * p[i]

def balls(b: array[Ball], one: Ball, v: vec2, total: array[float]):
    i = tid()
    atomic_add(total, 0, b[i].mass * one.mass + v[0])

def halves(x: array[float16], y: array[bfloat16], k: uint8, z: array3d[int64]):
    i, j, k2 = tid()
    z[i, j, k2] = int64(float(x[i])) + int64(k)

def anything(x: array[Any], s: Any, y: array[Any]):
    i = tid()
    y[i] = x[i] * s
"""

MADE: Any = kl.compile(TEXT)
KERNELS = [MADE[name] for name in ("scale", "table", "points", "balls", "halves", "anything")]
MINE = "the user's own error"


class Rude:
    """Raises an error of the user's, whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(MINE)

    def __len__(self) -> int:
        raise RuntimeError(MINE)

    def __index__(self) -> int:
        raise RuntimeError(MINE)

    def __float__(self) -> float:
        raise RuntimeError(MINE)

    def __repr__(self) -> str:
        raise RuntimeError(MINE)


class Interface:
    """Claims to be an array, in the terms of NumPy or CUDA, and lies."""

    def __init__(self, claim: Any) -> None:
        self.__array_interface__ = claim
        self.__cuda_array_interface__ = claim


class Wrong(enum.IntEnum):
    """A number with a name."""

    NUMBER = 3


_SHAPES: tuple[Any, ...] = (
    0,
    1,
    3,
    8,
    (2, 3),
    (3, 0),
    (1, 1, 1),
    (2, 2, 2, 2),
    (1,) * 5,
    (),
    (8, 3),
    (8, 3, 3),
)
_DTYPES = (
    *("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16", ">f4", ">i4"),
    *(
        "O",
        "U3",
        "S2",
        "M8[s]",
        "m8[D]",
        "V4",
        "g",
        [("a", "f4"), ("b", "u1")],
        [("at", "f4", 3), ("mass", "f4")],
    ),
)
_TYPES = (
    kl.float32,
    kl.float64,
    kl.int32,
    kl.vec3,
    kl.mat33,
    kl.float16,
    kl.bool,
    kl.uint8,
    MADE["Ball"],
    float,
)
_NUMBERS = (0, 1, 3, -1, 8, 2**31, 2**32, 2**63, 2**64, -(2**63) - 1, 10**400, True, 2.5, -0.0, 1e39, 1e-46)
_FLOATS = (
    float("nan"),
    float("inf"),
    1j,
    np.float16(2),
    np.float64(1e300),
    np.int64(7),
    np.bool_(True),
    np.str_("x"),
)
_ODD: tuple[Callable[[], Any], ...] = (
    *(lambda: None, lambda: "x", lambda: b"xyz", dict, set, object, Rude, lambda: int, lambda: lambda: 0),
    *(
        lambda: "\ud800",
        lambda: iter([1, 2]),
        lambda: range(3),
        lambda: memoryview(bytearray(12)),
        lambda: kl,
    ),
    *(lambda: bytearray(8), lambda: plain.array("d", [1, 2]), lambda: fractions.Fraction(1, 3), lambda: ...),
    *(lambda: decimal.Decimal("1.5"), lambda: Wrong.NUMBER, datetime.datetime.now, lambda: slice(3)),
    *(lambda: SimpleNamespace(shape=(3,), dtype="f4"), lambda: MADE["scale"], lambda: MADE["Ball"], kl.Tape),
    *(
        lambda: MADE["Ball"](),
        lambda: kl.vec3(1, 2, 3),
        lambda: kl.mat33(),
        lambda: kl.vec2(1, 2),
        kl.get_device,
    ),
    *(
        lambda: Interface({}),
        lambda: Interface(None),
        lambda: Interface(7),
        lambda: Interface({"shape": (3,)}),
    ),
    *(lambda: Interface({"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}),),
    *(
        lambda: Interface({"shape": (-1,), "typestr": "??", "data": None, "version": "x"}),
        lambda: np.ma.ones(3),
    ),
)


def thing(rng: random.Random, depth: int = 2) -> Any:
    """Some object: often an array that would do, sometimes one that no kernel can take."""
    match rng.randrange(12):
        case 0 | 1 | 2:
            return kl.zeros(rng.choice(_SHAPES), dtype=rng.choice(_TYPES), requires_grad=rng.random() < 0.3)
        case 3 | 4:
            return _numpy(rng)
        case 5 | 6:
            return rng.choice((*_NUMBERS, *_FLOATS))
        case 7 if depth:
            several = [thing(rng, depth - 1) for _ in range(rng.randrange(4))]
            return rng.choice((list, tuple))(several)
        case 8:
            return kl.ones(8)
        case 9:
            return kl.zeros((3, 8), dtype=kl.float64)[rng.choice((0, slice(None, None, -1), slice(1, 1)))]
        case _:
            return rng.choice(_ODD)()


def _numpy(rng: random.Random) -> Any:
    array = np.zeros(rng.choice(_SHAPES), rng.choice(_DTYPES))
    match rng.randrange(6):
        case 0:
            array.flags.writeable = False
        case 1 if array.ndim:
            array = array[::-1]
        case 2 if array.ndim == 1 and array.size:
            array = np.lib.stride_tricks.as_strided(array, (3,), (0,))
        case 3 if array.dtype.itemsize > 1 and array.ndim == 1 and array.dtype != object:
            array = array.view("u1")[1:][: array.itemsize * 2]
        case 4:
            return array.T
    return array


def _dim(rng: random.Random) -> Any:
    if rng.random() < 0.6:
        return rng.choice((0, 1, 2, (1, 2), (2, 2, 1)))
    return rng.choice(
        (-1, 2**63, 10**5000, 2.0, (), (1,) * 5, None, "3", (-1, 2), (2**40, 2**40), [2], thing(rng))
    )


_OPTIONS: dict[str, tuple[Any, ...]] = {
    "device": ("cpu", "cuda", "cuda:7", "", 3, None),
    "adjoint": (True, 1, "x"),
    "record_tape": (False, None),
    "record_cmd": (True,),
    "block_dim": (0, -1, 2.5, "x", 10**9),
    "max_blocks": (-1, "x", None),
    "stream": (None, 7, "x"),
    "nonsense": (1,),
}


def _launch(rng: random.Random) -> Any:
    kernel = rng.choice(KERNELS)
    arguments = [thing(rng) for _ in range(rng.choice((kernel.arity, kernel.arity, 3, rng.randrange(6))))]
    if rng.random() < 0.3:
        return kernel[_dim(rng)](*arguments)
    cut = rng.randrange(len(arguments) + 1)
    options = {name: rng.choice(_OPTIONS[name]) for name in _OPTIONS if rng.random() < 0.06}
    return kl.launch(kernel, _dim(rng), arguments[:cut], arguments[cut:], **options)


def _recorded(rng: random.Random) -> Any:
    with kl.Tape() as tape:
        _launch(rng)
    return tape.backward(thing(rng)) if rng.random() < 0.5 else tape.backward(grads={kl.ones(3): thing(rng)})


def _near(rng: random.Random) -> Any:
    """A launch that is right but for one argument."""
    right: list[Any] = [kl.ones(8), kl.zeros(8), 2.0]
    right[rng.randrange(3)] = thing(rng)
    return kl.launch(MADE["scale"], rng.choice((3, 8)), right)


def _constructed(rng: random.Random) -> Any:
    dtype = rng.choice((*_TYPES, *_DTYPES, thing(rng)))
    match rng.randrange(6):
        case 0:
            return kl.array(thing(rng), dtype=dtype)
        case 1:
            return kl.array(thing(rng))
        case 2:
            return kl.zeros(rng.choice((*_SHAPES, _small(rng))), dtype=dtype)
        case 3:
            return kl.full(rng.choice(_SHAPES), thing(rng))
        case 4:
            return kl.ones(8)[thing(rng)]
        case _:
            x = kl.ones(8)
            return x.assign(thing(rng)) if rng.random() < 0.5 else x.reshape(thing(rng))


def _small(rng: random.Random) -> Any:
    """A shape that takes no gigabytes."""
    return rng.choice(
        (-1, 2**63, 2**80, 2.5, None, "3", (2**40, 2**40), (-1, 3), [2, 2], (1,) * 9, {}, Rude())
    )


def checked_launch(seed: int) -> bool:
    """Launch a kernel, or make an array, with arbitrary arguments; whether they would do.

    Raises what is neither an error of kernelab's own nor one of the user's own objects.
    """
    rng = random.Random(seed)
    attempt = rng.choice((_launch, _launch, _near, _near, _recorded, _constructed))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempt(rng)
    except KernelError as error:
        str(error)
        return False
    except Exception as error:
        if MINE in str(error):
            return False
        error.add_note(f"def test_it() -> None:\n    checked_launch({seed})\n")
        raise
    return True


# ------------------------------------------------------------------------------------------------- messages


class Silent(BaseComm):
    """Keeps what is published, of the messages that can be sent."""

    def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **__: Any) -> None:
        json.dumps(data)
        content = (data or {}).get("content") or {}
        if content.get("op") == "answer":
            self.answers = getattr(self, "answers", 0) + 1


def checked_messages(seeds: Iterable[int]) -> None:
    """Send arbitrary messages to the view of a tape; each with a question is answered, none raises."""
    from kernelab.jupyter.live import TapeWidget

    create, comm.create_comm = comm.create_comm, Silent
    try:
        tape = kl.Tape()
        widget = TapeWidget(tape)
        with tape:
            x = kl.ones(3, requires_grad=True)
            kl.launch(MADE["scale"], 3, [x, kl.zeros(3, requires_grad=True), 2.0])
            kl.copy(kl.zeros(3), x)
        widget.refresh()
        for seed in seeds:
            _sent(widget, seed)
        widget.close()
    finally:
        comm.create_comm = create


def _sent(widget: Any, seed: int) -> None:
    rng = random.Random(seed)
    message = _message(rng)
    before = getattr(widget.comm, "answers", 0)
    is_question = not (isinstance(message, dict) and message.get("op") in ("settle", "hello"))
    try:
        widget._asked(widget, message, [])
        assert getattr(widget.comm, "answers", 0) == before + is_question, f"no answer to {message!r}"
    except Exception as error:
        error.add_note(f"def test_it() -> None:\n    checked_messages([{seed}])\n")
        raise


_ASKS = ("array", "record", "thread", "element", "settle", "", None, 7, "\ud800")


def _message(rng: random.Random) -> Any:
    """What a page may send: anything that JSON can say."""
    if rng.random() < 0.05:
        return _json(rng, 3)
    message = {"ask": rng.choice(_ASKS), "id": rng.choice((1, "x", None, _json(rng, 1)))}
    message |= {name: _json(rng, 2) for name in ("number", "thread", "index") if rng.random() < 0.9}
    if rng.random() < 0.2:
        message["op"] = rng.choice(("settle", "hello", "news", _json(rng, 1)))
    return message


def _json(rng: random.Random, depth: int) -> Any:
    match rng.randrange(9):
        case 0 | 1 | 2:
            return rng.choice((0, 1, 2, 3, -1))
        case 3:
            return rng.choice((2**31, 2**63, 2**64, -(2**70), 10**400, True, 0.5, float("nan"), 1e308))
        case 4:
            return rng.choice(("", "x", "<b>", "\ud800", "0", "é" * 300, None))
        case 5 if depth:
            return {rng.choice(("ask", "number", "id", "")): _json(rng, depth - 1) for _ in range(2)}
        case _ if depth:
            return [_json(rng, depth - 1) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        case _:
            return rng.choice((0, 1, 2))
