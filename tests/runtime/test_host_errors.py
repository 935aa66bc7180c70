"""What the host library is given and cannot take: what is wrong, what was found, what to do instead."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from inspect import signature
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab import (
    KernelIndexError,
    KernelMemoryError,
    KernelTypeError,
    KernelValueError,
    LaunchError,
    TapeError,
)

TEXT = """
def g(x: float):
    return 2.0 * x

def moved(x: array[float], by: vec3):
    x[tid()] += by[0]

def k(x: array[float], s: float, n: int):
    x[tid()] = g(s) * float(n)

class Ball:
    mass: float

class Cloud:
    weights: array[float]
"""


class Host:
    """What the cases below speak of."""

    def __init__(self) -> None:
        made: dict[str, Any] = kl.compile(TEXT)
        self.k, self.g, self.Ball, self.Cloud = (made[name] for name in ("k", "g", "Ball", "Cloud"))
        self.moved = made["moved"]
        self.x = kl.zeros(3, requires_grad=True)
        self.ints = kl.zeros(3, dtype=int)


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


class Point:
    """No struct."""


CASES: list[tuple[Callable[[Host], Any], type[Exception], str]] = [
    (lambda h: kl.clone(3), KernelTypeError, r"clone takes an array of kernelab, not the int 3"),
    (lambda h: kl.ones_like(3), KernelTypeError, r"ones_like takes an array .*\n.*kl.array"),
    (lambda h: kl.zeros_like([1]), KernelTypeError, r"zeros_like takes an array of kernelab, not a list"),
    (lambda h: kl.full_like(None, 2), KernelTypeError, r"full_like takes an array .*, not None"),
    (lambda h: kl.zeros_like(h.x, dtype=int), KernelTypeError, r"of its array\n.*kl\.zeros\(shape="),
    (lambda h: kl.full_like(h.x, 2, dtype=int), KernelTypeError, r"of its array\n.*kl\.full\(shape="),
    (lambda h: kl.copy(h.x, 3), KernelTypeError, r"source of a copy is an array .*\n.*assign"),
    (lambda h: kl.copy(3, h.x), KernelTypeError, r"destination of a copy is an array"),
    (lambda h: kl.copy(kl.ones(4), h.x), KernelValueError, r"data have shape \(3,\)\n.*count=src.size"),
    (lambda h: kl.copy(kl.ones(2), h.x), KernelValueError, r"data have shape \(3,\)\n.*count=dest.size"),
    (lambda h: kl.copy(kl.ones((3, 1)), h.x), KernelValueError, r"shape \(3,\)\n.*src.reshape\(\(3, 1\)\)"),
    (lambda h: kl.copy(h.x, h.x, count=-1), KernelValueError, r"`count` is .*, not the int -1"),
    (
        lambda h: kl.copy(kl.zeros((3, 3)), kl.ones((3, 4))[:, :3], count=2),
        KernelValueError,
        r"elements without gaps, and `src` is a view with gaps[\s\S]*copy slices",
    ),
    (lambda h: kl.copy(h.x, h.x, src_offset="a"), KernelValueError, r"`src_offset` is .* not the text 'a'"),
    (lambda h: setattr(h.x, "grad", 3), KernelTypeError, r"a gradient is an array .*, not the int 3"),
    (lambda h: setattr(h.x, "grad", np.zeros(3)), KernelTypeError, r"not a NumPy array of float64\n.*array"),
    (lambda h: kl.compile(3), KernelTypeError, r"compile takes the text of kernels, not the int 3"),
    (lambda h: kl.kernel(3), KernelTypeError, r"kernel decorates a def, not the int 3"),
    (lambda h: kl.func("f"), KernelTypeError, r"func decorates a def, not the text 'f'"),
    (lambda h: kl.func(lambda v: v * 2.0), KernelTypeError, r"func decorates a def, not a lambda"),
    (lambda h: kl.struct(3), KernelTypeError, r"struct decorates a class, not the int 3"),
    # shapes
    (lambda h: kl.zeros("a"), KernelTypeError, r"extent of an array is a whole number, not the text 'a'"),
    (lambda h: kl.zeros(2.7), KernelTypeError, r"not the float 2.7\n.*write int"),
    (lambda h: kl.zeros(2, 3), KernelTypeError, r"3 is not a type .*\n.*zeros\(\(2, 3\)\)"),
    (lambda h: kl.zeros((2, None)), KernelTypeError, r"a whole number, not None"),
    (lambda h: kl.zeros((2, -3)), KernelValueError, r"cannot have the shape \(2, -3\)"),
    (lambda h: kl.zeros((1,) * 5), KernelTypeError, r"1 to 4 dimensions, not 5"),
    (lambda h: kl.zeros((10**9, 10**6)), KernelMemoryError, r"no memory for an array of 4,000,000.0 GB"),
    (lambda h: kl.zeros((10**9,) * 4), KernelMemoryError, r"no memory for an array"),
    (lambda h: h.x.reshape("a"), KernelTypeError, r"a whole number, not the text 'a'"),
    (lambda h: h.x.transpose(1), KernelTypeError, r"axes in their new order, not the int 1"),
    # values
    (lambda h: h.x.fill_("a"), KernelTypeError, r"cannot set elements to the text 'a'"),
    (lambda h: h.x.fill_(None), KernelTypeError, r"cannot set elements to None"),
    (lambda h: h.x.fill_([1, 2]), KernelValueError, r"element of float32 .* a list of shape \(2,\)"),
    (lambda h: h.ints.fill_(10**12), KernelValueError, r"1000000000000 does not fit int32\n.*2147483647"),
    (lambda h: h.x.fill_(10**400), KernelValueError, r"an int of so many digits fits no type"),
    (lambda h: kl.full(3, None), KernelTypeError, r"cannot make an array from None"),
    (lambda h: kl.array([300], dtype=kl.uint8), KernelValueError, r"300 does not fit uint8\n.*0 to 255"),
    (lambda h: kl.array(np.array([-1]), dtype=kl.uint32), KernelValueError, r"-1 does not fit uint32"),
    (lambda h: kl.array([np.nan], dtype=int), KernelValueError, r"nan does not fit int32"),
    (lambda h: kl.array([1e300]), KernelValueError, r"1e\+300 does not fit float32\n.*3.4e\+38"),
    (lambda h: kl.array([1.0, "a"]), KernelTypeError, r"from a list that holds the text 'a'"),
    (lambda h: kl.array([[1.0], [None]]), KernelTypeError, r"from a list that holds None"),
    (lambda h: kl.array([Point()]), KernelTypeError, r"from a list that holds a Point"),
    (lambda h: kl.array({1, 2}), KernelTypeError, r"from a set\n.*sorted"),
    (lambda h: kl.array(i for i in range(3)), KernelTypeError, r"from a generator\n.*write list"),
    (lambda h: kl.array([1j]), KernelTypeError, r"complex numbers have no type here\n.*x.real"),
    (lambda h: kl.array([[1, 2], [3]]), KernelTypeError, r"rows have different lengths"),
    (lambda h: h.x.__setitem__(99, 1.0), KernelIndexError, r"index 99 is out of bounds for axis 0"),
    (lambda h: h.x.__setitem__(0, [1, 2]), KernelValueError, r"shape \(1,\), the data have shape \(2,\)"),
    (lambda h: kl.vec3("a"), KernelTypeError, r"'a' cannot be the components of a vec3"),
    (lambda h: kl.vec3(1, 2), KernelTypeError, r"vec3 takes 0, 1 or 3 components, not 2"),
    (lambda h: kl.float32(None), KernelTypeError, r"None cannot become float32"),
    (lambda h: kl.uint8(300), KernelValueError, r"300 does not fit uint8"),
    (lambda h: kl.uint8(np.int64(300)), KernelValueError, r"300 does not fit uint8"),
    (lambda h: kl.uint32(np.int8(-5)), KernelValueError, r"-5 does not fit uint32"),
    (lambda h: kl.int32(np.float64(3e10)), KernelValueError, r"30000000000.0 does not fit int32"),
    (lambda h: kl.int64(np.float64(2.0**63)), KernelValueError, r"does not fit int64"),
    (lambda h: kl.uint8(kl.array([300.0])), KernelValueError, r"300.\] does not fit uint8"),
    (lambda h: kl.uint8(np.array([1, 256])), KernelValueError, r"256\] does not fit uint8"),
    (lambda h: kl.exp(h.x, h.x), KernelTypeError, r"exp goes .*: exp takes \(x: float\), not \(float32, "),
    (lambda h: kl.length(h.x), KernelTypeError, r"element: length takes \(a: vector\)(.|\n)*sqrt"),
    # launches
    (lambda h: kl.launch(h.g, 3, inputs=[h.x]), LaunchError, r"`g` is a function for kernels"),
    (lambda h: kl.launch(h.k, 3, inputs=h.x), LaunchError, r"`inputs` is a list of arguments, not an array"),
    (lambda h: kl.launch(h.k, 3, [h.x], 1.0), LaunchError, r"`outputs` is a list of arguments"),
    (lambda h: kl.launch(h.k, 3, [h.x, 10**400, 1]), LaunchError, r"`s` .* not an int of so many digits"),
    (lambda h: kl.launch(h.k, 3, [h.x, 1.0, 10**400]), LaunchError, r"`n` .* not an int of so many digits"),
    (lambda h: kl.launch(h.moved, 3, [h.x, (1, "a", 2)]), LaunchError, r"`by` .* a vec3, not the text 'a'"),
    (lambda h: kl.launch(h.k, h.x, [h.x, 1.0, 1]), LaunchError, r"pass len\(x\), x.size or x.shape"),
    (lambda h: kl.launch(h.k, True, [h.x, 1.0, 1]), LaunchError, r"cannot have the dimensions True"),
    (lambda h: kl.launch(h.k, (1,) * 5, [h.x, 1.0, 1]), LaunchError, r"1 to 4 ints"),
    # structs
    (lambda h: kl.array([h.Cloud()]), KernelTypeError, r"cannot hold Cloud: its field weights is an array"),
    (lambda h: kl.zeros(2, dtype=h.Ball) + 1.0, KernelTypeError, r"arithmetic of arrays of Ball\n.*mass"),
    (lambda h: kl.map(abs, kl.zeros(2, dtype=h.Ball)), KernelTypeError, r"no arithmetic of arrays of Ball"),
    (lambda h: kl.utils.array_sum(kl.zeros(2, dtype=h.Ball)), KernelTypeError, r"of Ball have no sum"),
    # what arrays do not do
    (lambda h: h.x.backward(), AttributeError, r"an array has no backward\n  hint: .*tape.backward\(loss\)"),
    (lambda h: kl.zeros(2, dtype=bool).sum(), KernelTypeError, "truth values have no sum"),
    (lambda h: h.x.sum(axis=1), KernelValueError, "there is no axis 1 of an array of shape"),
    (lambda h: h.x[0, None], KernelTypeError, r"an array is indexed .*not None\n  hint: None makes an axis"),
    (lambda h: h.x[None, None, None, None], KernelTypeError, r"an array has 1 to 4 dimensions, not 5\n"),
    (lambda h: f"{h.x:.3f}", KernelValueError, r"item\(\) takes the one element"),
    (lambda h: h.x.argmax(), AttributeError, r"has no argmax\n  hint: write np.argmax\(x.numpy\(\)\)"),
    (lambda h: kl.inverse(h.x), KernelTypeError, r"hint: write np.linalg.inv\(a.numpy\(\)\), in kl"),
    (lambda h: kl.max(h.x, np.zeros(len(h.x))), KernelTypeError, r"float64: write kl.array\(..., dtype"),
    (lambda h: kl.where(h.x > 0.0, h.x, np.zeros(len(h.x))), KernelTypeError, "array is one of float64"),
    (lambda h: kl.outer(h.x, h.x), KernelTypeError, r"hint: write x\[:, None\] \* y\[None, :\]"),
    (lambda h: kl.where(h.x > 0.0), KernelTypeError, r"hint: write x\[mask\] for elements"),
    (lambda h: kl.cholesky, AttributeError, r"write np.linalg.cholesky\(x.numpy\(\), ...\) .*custom_vjp"),
    (lambda h: h.x * (h.x > 0.0), KernelTypeError, r"hint: convert the bool: mask.astype\(kl.float32\)"),
    (lambda h: h.x * np.ones(len(h.x)), KernelTypeError, r"the NumPy array: kl.array\(..., dtype=kl.float32"),
    (lambda h: np.ones(len(h.x)) @ h.x, KernelTypeError, r"the NumPy array: kl.array\(..., dtype=kl.float32"),
    (lambda h: h.x[kl.array(np.array([0]))], KernelTypeError, r"convert them: indices.astype\(int\)"),
    (lambda h: math.sin(h.x), KernelValueError, r"one element .*\n  hint: .*kl.sin\(x\) for math.sin\(x\)"),
    (lambda h: h.k.adjoint, AttributeError, r"a kernel has no adjoint\n  hint: show it as the value"),
    (lambda h: h.k.launch, AttributeError, r"a kernel has no launch\n  hint: write kl.launch\(kernel, dim=n"),
    (lambda h: h.k.spam, AttributeError, r"a kernel has no spam\n  hint: did you mean span\?"),
    (lambda h: h.x.gard, AttributeError, r"an array has no gard\n  hint: did you mean grad\?"),
    (lambda h: h.x.item(), KernelValueError, r"item\(\) takes the one element .* this one has 3"),
    (lambda h: h.x @ 2.0, KernelTypeError, r"@ multiplies arrays, not the float 2.0(.|\n)*write \*"),
    (lambda h: h.x @ h.x[:2], KernelValueError, r"go together with shapes \(3,\) and \(2,\)"),
    (lambda h: h.x @ kl.zeros(3, dtype=kl.vec3), KernelTypeError, "numbers of one type, not float32 by vec3"),
    (lambda h: kl.zeros((2, 3, 3)) @ kl.zeros((4, 3, 3)), KernelValueError, "axes before these are as long"),
    (lambda h: bool(h.x), KernelValueError, r"elements is neither true nor false\n.*x.numpy\(\).all\(\)"),
    # the rest of the library
    # calls that do not fit
    (lambda h: kl.launch(h.k, dim=2, output=[h.g]), KernelTypeError, r"no argument output\n.*outputs=\?"),
    (lambda h: kl.launch(dim=3), TypeError, r"launch\(\) needs a kernel\n.*kl.launch\(kernel, dim=n"),
    (lambda h: kl.show(), KernelTypeError, r"show\(\) needs shown\n.*kl.show\(x\) of a kernel"),
    (lambda h: kl.show(1, 2), KernelTypeError, r"show\(\) takes 1 argument by position, not 2"),
    (lambda h: kl.show(1, shown=2), KernelTypeError, r"show\(\) gets shown twice"),
    (lambda h: ExitStack().enter_context(kl.Tape), KernelTypeError, r"kl.Tape\(\) as tape"),
    (lambda h: kl.Tape(check_finite=True), KernelTypeError, r"Tape\(\) has no .*\n.*backward\(loss, check"),
    (lambda h: kl.Tape().backward(los=h.x), KernelTypeError, r"backward\(\) has no .* los\n.*loss=\?"),
    (lambda h: kl.autograd.gradcheck(), KernelTypeError, r"gradcheck\(\) needs function\n.*\(function, dim"),
    (lambda h: kl.autograd.jacobian_plot(h.k, dim=3), TypeError, r"no argument dim\n.*jacobian gives"),
    (lambda h: kl.utils.array_sum(3), KernelTypeError, r"a reduction takes an array"),
    (lambda h: kl.utils.array_inner(h.x, 3), KernelTypeError, r"the second argument is an array"),
    (lambda h: kl.optim.SGD(h.x), KernelTypeError, r"parameters are a list of arrays, not an array of shape"),
    (lambda h: kl.optim.SGD([h.x]).step(3), KernelTypeError, r"gradients are a list of arrays"),
    (lambda h: kl.array(None), KernelTypeError, r"make an array from None\n.*kl.zeros\(10\)"),
    (lambda h: kl.array([1], dtype="flot32"), KernelTypeError, r"not a type of array elements\n.*mean float"),
    (lambda h: kl.zeros((1, 2, 3, 4, 5)), KernelTypeError, r"(?s)1 to 4 dimensions, not 5\n.*one axis of"),
    (lambda h: h.x.assign(5), KernelValueError, r"the data have shape \(\)\n.*fill_"),
    (lambda h: h.x.assign(np.ones((3, 1))), KernelValueError, r"shape \(3, 1\)\n.*data.reshape\(\(3,\)\)"),
    (lambda h: h.x.assign(np.ones(5)), KernelValueError, r"shape \(5,\)\n.*give 3 elements, or make another"),
    (lambda h: h.x.assign(h.ints), KernelTypeError, r"cannot copy int32 .*\n.*array_cast"),
    (lambda h: h.x[1.5], KernelTypeError, r"arrays of integers, not the float 1.5\n.*int\("),
    (lambda h: h.x["a"], KernelTypeError, r"not the text 'a'\n.*only arrays of structs have fields"),
    (lambda h: h.x[np.ones((3, 1), bool)], KernelTypeError, r"NumPy array of bool\n.*mask.flatten"),
    (lambda h: h.x[[True, False]], KernelIndexError, r"2 truth values for axis 0 with size 3"),
    (lambda h: h.x[0, 0], KernelIndexError, r"2 indices for an array of shape \(3,\)"),
    (lambda h: h.x.reshape(2, 2), KernelValueError, r"cannot be reshaped to \(2, 2\)\n.*it has 3 elements"),
    (lambda h: h.x.transpose(0, 1), KernelTypeError, r"as one tuple, not \(0, 1\)\n.*\(\(1, 0\)\)"),
    (lambda h: kl.map(h.x, h.g), KernelTypeError, r"takes the function first.*\n.*kl.map\(func, x"),
    (lambda h: kl.map(h.k, h.x), KernelTypeError, r"not `k`\n.*kl.launch\(k, dim"),
    (lambda h: kl.map(np.mean, h.x), KernelTypeError, r"a function of numbers first, not `mean`"),
    (lambda h: kl.utils.array_sum(h.x, axis="a"), KernelValueError, r"no axis 'a' of an array of shape"),
    (lambda h: kl.utils.array_sum(h.x, out=kl.ones(3)), KernelTypeError, r"\(3,\)\n.*kl.zeros\(\(1,\)"),
    (lambda h: kl.utils.array_sum(kl.zeros(2, bool)), KernelTypeError, r"no sum\n.*x.astype\(int\)"),
    (lambda h: kl.optim.Adam(h.x), KernelTypeError, r"a list of arrays, not an array .*\n.*Adam\(\[x\]\)"),
    (lambda h: kl.optim.Adam([np.ones(3)]), KernelTypeError, r"parameter 0 is a NumPy array of float64"),
    (lambda h: kl.optim.Adam([h.x], lr="a"), KernelValueError, r"lr is a number of 0 or more, not the text"),
    (lambda h: kl.optim.SGD([h.x], lr=-1.0), KernelValueError, r"lr is .*, not the float -1.0"),
    (lambda h: kl.optim.Adam([h.x], betas=0.9), KernelTypeError, r"betas are two numbers, not the float 0.9"),
    (lambda h: kl.optim.Adam([h.x], betas=(0.9, 1.0)), KernelValueError, r"beta2 is .* not including, 1"),
    (lambda h: h.Ball(1.0, 2.0), KernelTypeError, r"Ball has 1 field, not 2\n.*mass: float32"),
    (lambda h: kl.launch(h.k, 3, [h.x[0], 1.0, 2]), LaunchError, r"expects an array .*, not the float32 0.0"),
    (lambda h: kl.dot(h.x, h.x), KernelTypeError, r"dot goes through an array element by element.*\n.*x @ y"),
    (lambda h: setattr(h.x, "require_grad", True), AttributeError, r"no require_grad .*\n.*requires_grad"),
    (lambda h: setattr(h.x, "grad", kl.zeros(4)), KernelTypeError, r"cannot be float32 \(4,\)\n.*zeros_like"),
    (lambda h: kl.ScopedTimer("a", sync=True), KernelTypeError, r"no argument sync\n.*, synchronize,"),
    (lambda h: kl.Tape().record_func(3, [h.x]), kl.TapeError, r"not the int 3\n(.*\n)*.*lambda"),
    # what stands in the wrong place
    (lambda h: kl.zeros(float("nan")), KernelTypeError, r"a whole number, not the float nan"),
    (lambda h: kl.zeros(np.ones((2, 2), complex)), KernelTypeError, r"not a NumPy array of complex128"),
    (lambda h: kl.zeros(()), KernelTypeError, r"(?s)1 to 4 dimensions, not 0\n.*one element: shape 1"),
    (lambda h: kl.zeros(3, h.x), KernelTypeError, r"an array is not a type .*\n.*write dtype=x.dtype"),
    (lambda h: kl.zeros(3, float, True), LaunchError, r"no device 'True'\n.*write requires_grad=True"),
    (lambda h: kl.array([1], float, "cpu"), KernelTypeError, r"not the text 'cpu'\n.*write device=.cpu"),
    (lambda h: kl.array([1], dtyp=float), KernelTypeError, r"array\(\) has no .* dtyp\n.*dtype=\?"),
    (lambda h: kl.optim.Adam([h.x], learning_rate=1), KernelTypeError, r"learning_rate\n.*write lr=0.01"),
    (lambda h: kl.dtype_from_numpy(None), KernelTypeError, r"None is not a type of array elements"),
    (lambda h: kl.dtype_from_numpy("flot"), KernelTypeError, r"'flot' is not a type of array elements"),
    (lambda h: kl.dtype_from_torch(3.5), KernelTypeError, r"numbers for the float 3.5\n.*torch.float32"),
    (lambda h: kl.to_dlpack(None), KernelTypeError, r"takes an array .*, not None\n.*kl.array\(...\)"),
    (lambda h: kl.checkpoint(h.x), KernelTypeError, r"a function and its .*, not an array\n.*\(steps, x, v"),
    (lambda h: kl.Tape(np.ones(2)), KernelValueError, r"is not a policy of a tape\n.*save.*backward\(loss\)"),
    (lambda h: kl.Tape(loss=h.x), KernelTypeError, r"no argument loss\n.*write tape.backward\(loss\)"),
    (lambda h: kl.record_event(3), LaunchError, r"an event is needed here, not an int\n.*kl.Event\(\)"),
    (lambda h: kl.synchronize_event(None), LaunchError, r"an event is needed here, not None"),
    (lambda h: kl.trace(None), KernelTypeError, r"trace takes a kernel and .*\n.*kl.trace\(kernel, 0, dim=n"),
    (lambda h: kl.trace(len, 0), KernelTypeError, "trace takes a kernel and a thread, or a function of a k"),
    (lambda h: kl.trace("k", 1, 3), KernelTypeError, r"not the text 'k'\n.*without quotation marks"),
    (lambda h: kl.trace(kl.mat22(), 1, 3), KernelTypeError, r"matrix alone, not a matrix and more"),
    (lambda h: kl.trace(h.k, "a", 3, [h.x, 1.0, 2]), LaunchError, r"a thread is an int, .* the text 'a'"),
    (lambda h: kl.find_races(h.k), KernelTypeError, r"find_races\(\) needs dim\n.*\(kernel, dim, inputs"),
    (lambda h: kl.trace(h.k, 0, 1, [h.x, 1.0, 2], adjoints=[1]), LaunchError, "maps outputs .* it is a list"),
    (lambda h: kl.trace(h.k, 0, 1, [h.x, 1.0, 2], adjoints={"x": h.x[:2]}), LaunchError, r"has shape \(2,\)"),
    (lambda h: kl.contributions(h.g, 1.0, argnums=(0, 1)), kl.TapeError, r"argnums=\(0, 1\) is no argument"),
    (lambda h: kl.contributions(len, h.x, argnums=0.0), kl.TapeError, r"argnums=0.0 is no argument"),
    (lambda h: kl.Tape().record_func(len, h.x), kl.TapeError, r"a list of arrays, and not an array"),
    (lambda h: kl.Tape().record_func(len, [h.x, 3]), kl.TapeError, r"a list of arrays, and not the int 3"),
    (lambda h: kl.contributions(h.x, 0), KernelTypeError, r"needs index\n.*\(tape, x, index, loss\)"),
    (lambda h: kl.contributions(h.x, h.x, 0), kl.TapeError, r"takes the tape first, not an array"),
    (lambda h: kl.autograd.gradcheck_tape(h.k), KernelTypeError, r"not a Kernel\n.*the tape that recorded"),
    (lambda h: kl.autograd.plot_sparsity(None), KernelTypeError, r"not None\n(.*\n)*.*kl.autograd.jacobian"),
    (lambda h: h.x.transpose((5,)), KernelValueError, r"not an order of the 1 axes\n.*x.transpose\(\(0,\)\)"),
    (lambda h: setattr(kl.config, "loop_memory", "a"), KernelValueError, r"a number of bytes.*\n.*2\*\*20"),
]  # fmt: skip


@pytest.mark.parametrize(("do", "kind", "message"), CASES, ids=[message[:40] for _, _, message in CASES])
def test_it_is_said_what_is_wrong(host: Host, do: Callable[[Host], Any], kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        do(host)


FIVE = kl.func.vmap(lambda x: kl.ones((1, 1, 1, 2)) * x.sum())(kl.ones(3))
"""A result of a transform may have more dimensions than other arrays."""

ON_FIVE: dict[str, Callable[[], Any]] = {
    "an operator": lambda: FIVE * 2.0,
    "a comparison": lambda: FIVE > 0.0,
    "a map": lambda: kl.map(kl.sin, FIVE),
    "in place": lambda: FIVE.__iadd__(1.0),
    "of one that stretches": lambda: kl.ones(2) - FIVE,
    "in lanes": lambda: kl.func.vmap(lambda x: kl.zeros_like(x)[None] + 1.0)(FIVE),
    "an array like it": lambda: kl.zeros_like(FIVE),
    "a copy": lambda: kl.array(FIVE),
    "of NumPy": lambda: kl.from_numpy(FIVE.numpy()),
}


@pytest.mark.parametrize("do", ON_FIVE.values(), ids=ON_FIVE)
def test_what_takes_no_five_dimensions_says_so_at_the_line(do: Callable[[], Any]) -> None:
    with pytest.raises(kl.KernelError, match=r"(?s)1 to 4 dimensions, not 5.*test_host_errors\.py, line \d+"):
        do()


def test_a_type_that_is_not_given_is_float32() -> None:
    assert kl.zeros(2, dtype=None).dtype == kl.empty(2, None).dtype == kl.float32


def test_help_shows_the_arguments_by_name() -> None:
    assert {"device", "requires_grad", "copy"} <= {*signature(kl.array).parameters}
    assert [*signature(kl.zeros).parameters][:4] == ["shape", "dtype", "device", "requires_grad"]
    for made in (kl.zeros, kl.clone, kl.launch):
        assert {"options", "unknown"}.isdisjoint(signature(made).parameters)


def test_numbers_that_fit_are_converted() -> None:
    assert kl.array([True, False], dtype=float).list() == [1, 0]
    assert kl.array([2.7, -2.7], dtype=int).list() == [2, -2]
    assert kl.array([255.0], dtype=kl.uint8).list() == [255]
    assert kl.array([np.inf]).list() == [np.inf]
    assert kl.array(np.array([1, 2.5], dtype=object)).list() == [1, 2.5]


def test_a_value_for_all_elements_may_be_a_vector() -> None:
    assert kl.full(2, [1, 2, 3]).dtype == kl.vec3i
    assert kl.full(2, kl.mat22(1, 2, 3, 4)).dtype == kl.mat22
    assert kl.zeros(2, dtype=kl.mat22).fill_([1, 2, 3, 4]).list()[1].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dim", [3, np.int32(3), np.array([3]), [3], (3,), (3, 1)])
def test_a_grid_takes_ints_of_every_kind(host: Host, dim: Any) -> None:
    x = kl.zeros(3)
    kl.launch(host.k, dim, inputs=[x, 1.0, 1])
    assert x.list() == [2, 2, 2]


def test_a_grid_without_threads_runs_nothing(host: Host) -> None:
    x = kl.zeros(0)
    kl.launch(host.k, (0,), inputs=[x, 1.0, 1])
    assert x.list() == []


def test_carets_stand_below_the_code_of_a_line_and_not_below_its_comment(host: Host) -> None:
    tape = kl.Tape()
    with pytest.raises(TapeError) as raised:
        tape.backward(grads={"#": host.x})  # a "comment"
    text, carets = str(raised.value).splitlines()[2:4]
    assert text.endswith('# a "comment"')
    assert text[carets.index("^") : carets.rindex("^") + 1] == 'tape.backward(grads={"#": host.x})'
