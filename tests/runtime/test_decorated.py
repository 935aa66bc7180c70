"""Kernels and functions of plain Python files: decorators, their options, and kernels made by hand."""

import functools
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelSyntaxError, KernelTypeError, KernelValueError, KernelWarning


@kl.struct
class Nothing:
    pass


@kl.func(inline=False, module="unique")
def double(x: float):
    return 2.0 * x


def doubled(x: kl.array[float], nothing: Nothing):
    i = kl.tid()
    x[i] = double(x[i])


def test_a_kernel_is_made_of_a_function_under_another_name() -> None:
    kernel = kl.Kernel(func=doubled, key="doubled_again", module=None)
    x = kl.array([1.0, 2.0])
    kl.launch(kernel, 2, [x, Nothing()])
    assert kernel.key == "doubled_again"
    np.testing.assert_array_equal(x.numpy(), [2.0, 4.0])


@kl.func
def applied(given: kl.Function, x: float):
    return given(x)


@kl.func
def doubled_by(x: float):
    return applied(double, x)


def test_a_function_may_hand_another_one_to_the_function_that_was_handed_it() -> None:
    @kl.kernel
    def kernel(x: kl.array[float]):
        x[0] = applied(doubled_by, x[0])

    x = kl.array([3.0])
    kl.launch(kernel, 1, [x])
    assert x.list() == [6.0]


@kl.func
def size(x: float):
    return x


@kl.func
def size(v: kl.vec2):  # noqa: F811
    return kl.length(v)


@kl.func
def size(x: float):  # noqa: F811
    return -x


@kl.kernel
def sizes(x: kl.array[float]):
    x[0] = size(kl.vec2(3.0, 4.0)) + size(x[1])


def test_functions_of_one_name_are_overloads_and_a_second_definition_replaces_the_first() -> None:
    x = kl.array([0.0, 2.0], dtype=float)
    kl.launch(sizes, 1, [x])
    assert x.numpy()[0] == 3.0


def test_annotations_mean_what_python_made_of_them() -> None:
    def made(dtype):
        @kl.kernel
        def set_one(x: kl.array(dtype=dtype)):
            x[0] = kl.tid() + 1

        return set_one

    for dtype in (kl.int32, kl.int32):
        x = kl.zeros(1, dtype=dtype)
        kl.launch(made(dtype), 1, [x])
        assert x.numpy()[0] == 1


def test_an_array_holds_no_structs_without_fields() -> None:
    with pytest.raises(KernelTypeError, match="an array cannot hold Nothing: Nothing has no fields"):
        kl.zeros(2, dtype=Nothing)


def test_a_name_can_be_given_and_unknown_options_are_refused() -> None:
    def plain(x: kl.array[float]):
        x[0] = 1.0

    assert kl.kernel(plain, name="other").key == "other"
    with pytest.raises(KernelValueError, match="kernel has no option modul"):
        kl.kernel(plain, modul="unique")


@kl.struct
class Complex:
    re: float
    im: float


@kl.func
def add(a: Complex, b: Complex):
    return Complex(a.re + b.re, a.im + b.im)


@kl.func
def neg(a: Complex):
    return Complex(-a.re, -a.im)


@kl.kernel
def combine(out: kl.array[float]):
    a = Complex(1.0, 2.0)
    b = a + Complex(3.0, 4.0)
    c = -b
    out[0] = c.re
    out[1] = c.im


def test_operators_of_structs_are_the_functions_of_the_file_which_may_use_operators() -> None:
    out = kl.zeros(2)
    kl.launch(combine, 1, [out])
    assert out.list() == [-4.0, -6.0]


@kl.kernel
def renames(x: kl.array[float], y: kl.array[float]):
    y = x  # noqa: F841


def test_a_line_of_a_file_or_a_text_that_is_hardly_meant_is_warned_of() -> None:
    x = kl.zeros(2)
    with pytest.warns(KernelWarning, match="the array y stays as it is") as told:
        kl.launch(renames, 2, [x, x])
    assert (told[0].filename, told[0].lineno) == ("test_decorated.py", renames.span.line + 1)
    kl.launch(renames, 2, [x, x])
    with pytest.warns(KernelWarning, match="this expression has no effect"):
        kl.compile("def f(y: array[float]):\n    i = tid()\n    y[i] == 2.0")


@kl.func
def twice(x):
    x == 2.0  # noqa: B015
    return x + x


@kl.func
def thrice(x: float):
    x == 3.0  # noqa: B015
    return x + x + x


@kl.kernel
def sixfold(x: kl.array[float], n: kl.array[int]):
    x[0] = twice(thrice(x[0]))
    n[0] = twice(n[0])


@kl.kernel
def doubles(x: kl.array[float]):
    x[0] = twice(x[0])


def test_a_line_of_a_function_that_is_hardly_meant_is_warned_of_once_stated_types_or_not() -> None:
    x, n = kl.array([1.0], dtype=float), kl.array([1], dtype=int)
    with pytest.warns(KernelWarning, match="this expression has no effect") as told:
        kl.launch(sixfold, 1, [x, n])
    kl.launch(doubles, 1, [x])
    assert (x.list(), n.list()) == ([12.0], [2])
    lines = [f.__kernelab_function__.span.line + 1 for f in (twice, thrice)]
    assert sorted((one.filename, one.lineno) for one in told) == [("test_decorated.py", k) for k in lines]


def test_overloads_call_each_other_also_those_defined_later() -> None:
    def made(value: float) -> Any:
        @kl.func
        def f(x: Any):  # type: ignore[no-untyped-def]
            return f(x, 1) * x.dtype(value)

        @kl.func
        def f(x: Any, y: Any):  # type: ignore[no-untyped-def]  # noqa: F811
            return x * x + x.dtype(y) * f()

        @kl.func
        def f():  # type: ignore[no-untyped-def]  # noqa: F811
            return 10.0

        return f

    two, three = made(2.0), made(3.0)

    @kl.kernel
    def both(x: kl.array[float], y: kl.array[float]):  # type: ignore[no-untyped-def]
        i = kl.tid()
        y[i] = two(x[i]) + three(x[i], 2) + three()

    x, y = kl.array([1.0, 3.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
    assert kl.autograd.gradcheck(both, 2, inputs=[x], outputs=[y])
    kl.launch(both, 2, [x, y])
    assert y.list() == [22.0 + 21.0 + 10.0, 38.0 + 29.0 + 10.0]


OF_A_FILE = """
import kernelab as kl

@kl.func
def scaled(x: float):
    return 2.0 * x

@kl.func_grad(scaled)
def adj_scaled(x: float, adj_ret: float):
    kl.adjoint[x] += 2.0 * adj_ret

@kl.func_native("return x + 1.0f;", "adj_x += adj_ret;")
def next(x: float) -> float: ...

@kl.kernel
def both(x: kl.array[float], y: kl.array[float]):
    y[kl.tid()] = scaled(x[kl.tid()]) + next(x[kl.tid()])
"""


@pytest.mark.parametrize("later", ["", OF_A_FILE.replace("2.0", "7.0").replace("import", "\n\nimport")])
def test_what_a_file_defined_is_what_runs_though_the_file_is_changed_or_gone(
    tmp_path: Path, later: str
) -> None:
    file = tmp_path / "of_a_file.py"
    file.write_text(OF_A_FILE)
    spec = spec_from_file_location("of_a_file", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if later:
        file.write_text(later)
    else:
        file.unlink()
    x, y = kl.array([1.0, 3.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(module.both, 2, [x, y])
    tape.backward(grads={y: kl.ones(2)})
    assert (y.list(), x.grad.list()) == ([4.0, 10.0], [3.0, 3.0])


@pytest.mark.parametrize("later", ["def twice(v):\n    return v * 3.0\n", "# moved\n{}", "def twice(v"])
def test_a_plain_function_of_a_file_that_was_written_anew_is_refused(later: str, tmp_path: Path) -> None:
    file, text = tmp_path / "of_a_file.py", "def twice(v):\n    return v * 2.0\n\nhalf = lambda v: v * 0.5\n"
    file.write_text(text)
    spec = spec_from_file_location("of_a_file", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    x = kl.array([1.0, 2.0])
    assert kl.map(module.half, x).list() == [0.5, 1.0]
    file.write_text(later.format(text))
    with pytest.raises(KernelSyntaxError, match=r"of_a_file.py has changed since twice was imported"):
        kl.map(module.twice, x)
    assert kl.map(module.half, x).list() == [0.5, 1.0]  # it is known by now


FACTORY = """
import kernelab as kl

def twice(v):
    return v * 2.0

def made():
    @kl.kernel
    def scale(x: kl.array[float]):
        x[kl.tid()] = x[kl.tid()] * 2.0

    return scale
"""


@pytest.mark.parametrize(
    "late",
    [
        lambda module: kl.launch(module.made(), 1, [kl.ones(1)]),
        lambda module: kl.map(kl.func(module.twice), kl.ones(1)),
    ],
)
def test_what_is_decorated_after_its_file_was_written_anew_is_refused(late: Any, tmp_path: Path) -> None:
    file = tmp_path / "of_a_factory.py"
    file.write_text(FACTORY)
    spec = spec_from_file_location("of_a_factory", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    before = module.made()
    file.write_text(FACTORY.replace("2.0", "999.0"))
    with pytest.raises(KernelSyntaxError, match=r"of_a_factory.py has changed since \w+ was imported"):
        late(module)
    x = kl.ones(1)
    kl.launch(before, 1, [x])
    assert x.list() == [2.0]


LATER = 1.0


@kl.func
def scaled_by_default(x: float, a: float = LATER, *, b: float = 2.0 * LATER):
    return x * a * b


@kl.kernel
def kernel_with_default(x: kl.array(dtype=float), a: float = LATER):
    x[0] = scaled_by_default(x[0]) + 100.0 * a


LATER = 5.0


def test_a_default_is_what_it_was_at_the_def() -> None:
    x = kl.ones(1)
    kl.launch(kernel_with_default, 1, [x])
    assert x.list() == [102.0]
    assert scaled_by_default(1.0) == 2.0
    assert kl.map(scaled_by_default, kl.ones(1)).list() == [2.0]


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, kl.float32])
def test_so_is_one_that_is_a_number_of_numpy(kind: Callable[[float], Any]) -> None:
    gain = kind(2.0)

    @kl.func
    def scaled(v: float, by: float = gain) -> float:
        return v * by

    @kl.kernel
    def scale(x: kl.array[float], by: float = gain):
        x[kl.tid()] *= by * scaled(1.0)

    def plain(v, by=gain):  # type: ignore[no-untyped-def]
        return v * by

    gain = kind(5.0)
    x = kl.ones(1)
    kl.launch(scale, 1, [x])
    assert x.list() == [4.0]
    assert kl.map(scaled, kl.ones(1)).list() == [2.0]
    assert kl.map(plain, kl.ones(1)).list() == [2.0]


def test_a_default_that_the_host_took_is_the_end_of_a_chain() -> None:
    x = kl.array([2.0, 3.0], requires_grad=True)
    with kl.Tape() as tape:
        y = x * x

        @kl.func
        def scaled(v: float, by: float = y[0]) -> float:
            return v * by

        loss = kl.map(scaled, x).sum()
    with pytest.warns(KernelWarning, match="the host took a number there"):
        tape.backward(loss)


def test_a_function_that_another_decorator_wraps_is_refused() -> None:
    def doubling(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*given: Any, **named: Any) -> Any:
            return 2.0 * function(*given, **named)

        return wrapper

    @kl.func
    @doubling
    def gain(v: float, by: float = 3.0) -> float:
        return by * v

    @doubling
    def plain(v, by=3.0):  # type: ignore[no-untyped-def]
        return by * v

    assert gain(1.0) == 6.0
    with pytest.raises(KernelSyntaxError, match=r"another decorator wraps `gain`.*\n(.*\n)*.*@kl.func alone"):
        kl.map(gain, kl.ones(1))
    with pytest.raises(kl.KernelError, match="the decorator @doubling is not known"):
        kl.map(plain, kl.ones(1))


def test_a_rule_may_be_attached_under_another_name_and_by_a_call() -> None:
    tripled, attached = kl.func_grad, kl.func_jvp

    @kl.func
    def f(t: float) -> float:
        return t * t

    @tripled(f, check=False)
    def adj_f(t: float, a: float) -> None:
        kl.adjoint[t] += 3.0 * t * a

    def f_dot(t: float, t_dot: float) -> float:
        return 5.0 * t * t_dot

    attached(f, check=False)(f_dot)
    assert float(kl.func.grad(f)(2.0)) == 6.0
    assert float(kl.func.jvp(f, (2.0,), (1.0,))[1]) == 10.0
