"""Launching: how arguments are checked, converted and packed, on which grids, what is said of wrong ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelError, KernelIndexError, LaunchError
from kernelab.runtime.launch.footprint import MAX_THREADS, grid_of

TEXT = """
def scale(x: array[float], factor: float, y: array[float]):
    i = tid()
    y[i] = factor * x[i]

def count(n: int, k: int64, b: int8, yes: bool, out: array[float64]):
    out[0] = float64(n)
    out[1] = float64(k)
    out[2] = float64(b)
    out[3] = where(yes, float64(1.0), float64(0.0))

def shift(v: vec3, m: mat22, out: array[vec3]):
    out[tid()] = v * m[0, 1]

def linear(out: array[int]):
    i = tid()
    out[i] = i

def coordinates(out: array2d(dtype=int)):
    i, j = tid()
    out[i, j] = 10 * i + j

def volume(out: array4d(dtype=int)):
    i, j, k, l = tid()
    out[i, j, k, l] = 1000 * i + 100 * j + 10 * k + l

def smooth(x: array[float], y: array[float], z: array[float]):
    i = tid()
    y[i] = x[i] + z[i]
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(TEXT)


@pytest.fixture(scope="module")
def scale(kernels: dict[str, Any]) -> kl.Kernel:
    return kernels["scale"]


def test_inputs_and_outputs_are_the_parameters_in_order(scale: kl.Kernel) -> None:
    x, y = kl.array([1.0, 2.0]), kl.zeros(2)
    kl.launch(scale, dim=2, inputs=[x, 3.0], outputs=[y])
    assert y.list() == [3, 6]


def test_indexing_a_kernel_with_a_grid_launches_it(scale: kl.Kernel) -> None:
    x, y = kl.array([1.0, 2.0]), kl.zeros(2)
    scale[2](x, 2, y)
    assert y.list() == [2, 4]


def test_numpy_arrays_are_written_in_place(scale: kl.Kernel) -> None:
    x, y = np.ones(3, np.float32), np.zeros((3, 2), np.float32)
    scale[3](x, 2.0, y[:, 1])
    assert y.tolist() == [[0, 2]] * 3


def test_strided_and_reversed_views_are_launched_as_they_are(scale: kl.Kernel) -> None:
    x, y = kl.array(np.arange(6.0), dtype=float), kl.zeros(6)
    scale[3](x[::-2], 1.0, y[::2])
    assert y.list() == [5, 0, 3, 0, 1, 0]


def test_numbers_take_the_type_of_the_parameter(kernels: dict[str, Any]) -> None:
    out = kl.zeros(4, dtype=kl.float64)
    kernels["count"][1](np.int64(-3), 2**40, np.int8(-128), np.True_, out)
    assert out.list() == [-3, 2**40, -128, 1]


def test_numpy_arrays_without_axes_are_numbers(kernels: dict[str, Any], scale: kl.Kernel) -> None:
    out, x, factor = kl.zeros(4, dtype=kl.float64), kl.array([1.0, 2.0]), np.array(2.0)
    kernels["count"][1](np.array(-3), np.array(2**40), np.array(7, np.uint8), np.array(True), out)
    assert out.list() == [-3, 2**40, 7, 1]
    with kl.Tape() as tape:
        y = kl.zeros(2, requires_grad=True)
        x.requires_grad = True
        scale[2](x, factor, y)
    factor[()] = 5.0
    tape.backward(grads={y: kl.array([1.0, 1.0])})
    assert (y.list(), x.grad.list()) == ([2, 4], [2, 2])


def test_tuples_lists_and_numpy_values_are_vectors_and_matrices(kernels: dict[str, Any]) -> None:
    out = kl.zeros(1, dtype=kl.vec3)
    for vector, matrix in [((1, 2, 3), [[0, 2], [0, 0]]), (kl.vec3(1, 2, 3), (0, 2, 0, 0))]:
        kernels["shift"][1](vector, matrix, out.zero_())
        assert out.numpy().tolist() == [[2, 4, 6]]


def test_one_thread_index_counts_through_a_grid_of_any_rank_with_a_warning(kernels: dict[str, Any]) -> None:
    out = kl.zeros(6, dtype=int)
    with pytest.warns(kl.KernelWarning, match="this grid has 2 dimensions: it counts all its threads"):
        kl.launch(kernels["linear"], dim=(2, 3), inputs=[out])
    assert out.list() == [0, 1, 2, 3, 4, 5]


def test_several_thread_indices_are_coordinates(kernels: dict[str, Any]) -> None:
    plane, volume = kl.zeros((2, 3), dtype=int), kl.zeros((1, 2, 1, 2), dtype=int)
    kl.launch(kernels["coordinates"], dim=(2, 3), inputs=[plane])
    kernels["volume"][1, 2, 1, 2](volume)
    assert plane.numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
    assert volume.numpy().tolist() == [[[[0, 1]], [[100, 101]]]]


def test_a_grid_without_threads_runs_nothing(scale: kl.Kernel) -> None:
    y = kl.zeros(0)
    version = y.allocation.version
    scale[0](y, 1.0, y)
    kl.launch(scale, dim=(3, 0), inputs=[y, 1.0, y])
    assert y.allocation.version == version


@pytest.mark.parametrize("dim", [-1, (2, -2), (), (1, 2, 3, 4, 5), (MAX_THREADS, 2), 2.5, "3"], ids=str)
def test_an_impossible_grid_is_refused(scale: kl.Kernel, dim: Any) -> None:
    x = kl.zeros(2)
    with pytest.raises(LaunchError, match="grid cannot have the dimensions"):
        kl.launch(scale, dim=dim, inputs=[x, 1.0, x])


def test_a_grid_may_be_given_in_numpy_integers() -> None:
    assert grid_of((np.int32(2), 3)).extents == (2, 3)


X, Y = kl.zeros(2), kl.zeros(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([X, 1.0], "kernel `scale` takes 3 arguments, not 2; `y` is missing"),
        ([X, 1.0, Y, Y], "kernel `scale` takes 3 arguments, not 4"),
        ([1.0, 1.0, Y], "argument `x` of kernel `scale` expects an array of float32 with 1 dimension"),
        ([[1.0, 2.0], 1.0, Y], "not a list"),
        ([kl.zeros(2, dtype=kl.float64), 1.0, Y], "not an array of float64"),
        ([kl.zeros((2, 2)), 1.0, Y], "not an array of 2 dimensions"),
        ([np.zeros(2), 1.0, Y], "not a NumPy array of dtype float64"),
        ([np.zeros((2, 2), np.float32), 1.0, Y], r"not a NumPy array of shape \(2, 2\)"),
        ([X, "1", Y], "argument `factor` of kernel `scale` expects a float32, not the text '1'"),
        ([X, 1j, Y], "not a complex"),
        ([X, kl.zeros(2), Y], "not an array of 2 float32"),
        ([X, kl.zeros(1, dtype=int), Y], "not an array of 1 int32"),
        ([X, np.zeros(1), Y], r"not a NumPy array of shape \(1,\)"),
    ],
)
def test_a_wrong_argument_is_named(scale: kl.Kernel, arguments: list[Any], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        kl.launch(scale, dim=2, inputs=arguments)


def test_none_stands_for_an_array_without_elements_which_cannot_be_read(scale: kl.Kernel) -> None:
    with pytest.raises(KernelIndexError, match=r"array `x` with size 0(.*\n)*.*where None is passed"):
        kl.launch(scale, dim=2, inputs=[None, 1.0, Y])


def test_the_message_shows_the_parameter_in_the_text_of_the_kernel(scale: kl.Kernel) -> None:
    with pytest.raises(LaunchError) as caught:
        scale[2](np.zeros(2), 1.0, Y)
    text = str(caught.value)
    assert "def scale(x: array[float], factor: float, y: array[float]):" in text
    assert "hint: convert it: x = x.astype(np.float32)" in text
    assert "line 2" in text


TURNED = """
def turn(x: array[vec2], m: array[mat22]):
    i = tid()
    x[i] = m[i] @ x[i]
"""


@pytest.mark.parametrize(
    ("made", "way"),
    [
        (("float32", (3, 2)), "given.view(kl.vec2)"),
        (("float64", (3, 2)), "given.astype(kl.float32).view(kl.vec2)"),
        (("vec2d", (3,)), "given.astype(kl.vec2)"),
        (("float32", (6,)), "kl.array(given, dtype=kl.vec2)"),
    ],
)
def test_the_conversion_that_a_hint_writes_is_one_that_works(made: Any, way: str) -> None:
    turn = kl.compile(TURNED)["turn"]
    dtype, shape = made
    given = kl.ones(shape, dtype=getattr(kl, dtype), requires_grad=True)
    rotations = kl.zeros(3, dtype=kl.mat22)
    with pytest.raises(LaunchError) as caught:
        turn[3](given, rotations)
    assert f"hint: convert it: given = {way}, or annotate" in str(caught.value)
    x = kl.zeros(3, dtype=kl.vec2, requires_grad=True)
    with kl.Tape() as tape:
        converted = eval(way, {"kl": kl, "given": given})
        turn[3](converted, rotations)
        x.assign(converted)
    if "array(" not in way:
        tape.backward(grads={x: kl.ones_like(x)})
        assert given.grad is not None


@pytest.mark.parametrize("made", [("float32", (7,)), ("float64", (3, 3)), ("vec3", (3,))])
def test_no_conversion_is_offered_where_none_works(made: Any) -> None:
    dtype, shape = made
    given = kl.zeros(shape, dtype=getattr(kl, dtype))
    with pytest.raises(kl.KernelError):
        kl.array(given, dtype=kl.vec2)
    with pytest.raises(LaunchError) as caught:
        kl.compile(TURNED)["turn"][3](given, kl.zeros(3, dtype=kl.mat22))
    assert "convert it" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([2**31, 0, 0, True], "`n` of kernel `count` expects an int32, not 2147483648"),
        ([0, 2**63, 0, True], "`k`"),
        ([0, 0, 128, True], r"int8 holds -128 to 127"),
        ([0.5, 0, 0, True], "not the float 0.5"),
        ([np.array(0.5), 0, 0, True], "not the float64 0.5"),
        ([0, 0, 0, 1.0], "`yes`"),
        ([kl.zeros(1, dtype=int), 0, 0, True], r"or take n: array\[int32\], and read n\[0\]"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(
    kernels: dict[str, Any], arguments: list[Any], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        kernels["count"][1](*arguments, kl.zeros(4, dtype=kl.float64))


@pytest.mark.parametrize("value", [(1, 2), 1.0, ("a", "b", "c"), None, [[1, 2], [3]]], ids=str)
def test_a_vector_takes_as_many_numbers_as_it_has(kernels: dict[str, Any], value: Any) -> None:
    with pytest.raises(LaunchError, match="argument `v` of kernel `shift`"):
        kernels["shift"][1](value, (0, 1, 0, 0), kl.zeros(1, dtype=kl.vec3))


@pytest.mark.parametrize(("type", "value"), [("float", 1e300), ("float16", 1e6), ("vec3", (0, 1e39, 0))])
def test_a_float_too_large_for_its_parameter_is_refused(type: str, value: Any) -> None:
    kernel = kl.compile(f"def f(a: {type}, y: array[{type}]):\n    y[tid()] = a")["f"]
    y = kl.zeros(1, dtype=getattr(kl, "float32" if type == "float" else type))
    with pytest.raises(LaunchError, match="holds numbers up to"):
        kernel[1](value, y)
    kernel[1](np.full(np.shape(value), np.inf)[()], y)
    assert np.isinf(y.numpy().astype(float)).all()


def test_a_read_only_array_may_be_read_but_not_written(scale: kl.Kernel) -> None:
    data = np.ones(2, np.float32)
    data.flags.writeable = False
    y = kl.zeros(2)
    scale[2](data, 2.0, y)
    assert y.list() == [2, 2]
    with pytest.raises(LaunchError, match=r"argument `y` .* read-only"):
        scale[2](y, 2.0, data)


def test_an_array_of_one_element_may_stand_for_a_float(scale: kl.Kernel) -> None:
    y = kl.zeros(2)
    scale[2](kl.ones(2), kl.full(1, 3.0), y)
    assert y.list() == [3, 3]


def test_what_is_no_kernel_cannot_be_launched() -> None:
    with pytest.raises(LaunchError, match="takes a kernel first"):
        kl.launch(print, dim=1)  # type: ignore[arg-type]


def test_a_launch_without_a_grid_is_told_how_to_write_one(scale: kl.Kernel) -> None:
    with pytest.raises(LaunchError, match=r"dim is missing\n  hint: write dim=x.shape"):
        kl.launch(scale, inputs=[kl.ones(2), 2.0, kl.ones(2)])
    with pytest.raises(LaunchError, match="hint: write dim=n"):
        kl.launch(scale)


def test_a_kernel_cannot_be_called_like_a_function(scale: kl.Kernel) -> None:
    with pytest.raises(LaunchError, match=r"write kl.launch\(scale"):
        scale(1)


def test_another_device_is_refused_by_name(scale: kl.Kernel) -> None:
    with pytest.raises(LaunchError, match="no device 'cuda:99'"):
        kl.launch(scale, dim=2, inputs=[X, 1.0, Y], device="cuda:99")


def test_a_launch_counts_a_version_of_what_it_writes(scale: kl.Kernel) -> None:
    x, y = kl.zeros(2), kl.zeros(2)
    scale[2](x, 1.0, y)
    assert (x.allocation.version, y.allocation.version) == (0, 1)


def test_an_index_outside_an_array_ends_the_launch(scale: kl.Kernel) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        scale[3](X, 1.0, Y)


Pick = Callable[[kl.array], tuple[kl.array, kl.array, kl.array]]


@pytest.mark.parametrize(
    ("pick", "groups"),
    [
        (lambda a: (a[0:2], a[2:4], a[4:6]), ()),
        (lambda a: (a[0:2], a[0:2], a[4:6]), ((0, 1),)),
        (lambda a: (a[0:2], a[4:6], a[0:2]), ()),
        (lambda a: (a[0:2], a[1:3], a[2:4]), ((0, 1, 2),)),
        (lambda a: (a[0:4:2], a[1:4:2], a[4:6]), ()),
    ],
)
def test_arguments_share_where_bytes_that_are_written_coincide(
    kernels: dict[str, Any], pick: Pick, groups: tuple[tuple[int, ...], ...]
) -> None:
    assert kernels["smooth"].program.sharing(pick(kl.zeros(6))) == groups


def test_the_adjoint_alone_adds_to_the_gradients(scale: kl.Kernel) -> None:
    x, y = kl.ones(2, requires_grad=True), kl.zeros(2, requires_grad=True)
    assert y.grad is not None
    y.grad.fill_(1)
    kl.launch(scale, dim=2, inputs=[x, 3.0], outputs=[y], adjoint=True)
    assert x.grad is not None
    assert x.grad.list() == [3, 3]


def test_the_adjoint_alone_takes_adjoints_as_arguments(scale: kl.Kernel) -> None:
    x_bar, y_bar = kl.zeros(2), kl.ones(2)
    kl.launch(
        scale,
        dim=2,
        inputs=[X, 3.0],
        outputs=[Y],
        adj_inputs=[x_bar, None],
        adj_outputs=[y_bar],
        adjoint=True,
    )
    assert x_bar.list() == [3, 3]
    with pytest.raises(LaunchError, match="argument `x_bar`"):
        kl.launch(scale, dim=2, inputs=[X, 3.0, Y], adj_inputs=[kl.zeros((2, 2))], adjoint=True)


def adjoint_of_scale(scale: kl.Kernel, x_bar: Any, y_bar: Any) -> None:
    kl.launch(scale, 2, [X, 3.0], [Y], adj_inputs=[x_bar, None], adj_outputs=[y_bar], adjoint=True)


def test_adjoints_of_outputs_stay_as_they_are_and_own_gradients_are_cleared(scale: kl.Kernel) -> None:
    shared, x_bar, z_bar = kl.ones(2), kl.zeros(2), kl.zeros(2)
    with kl.Tape() as tape:  # one tensor may be the gradient of both addends of a sum
        adjoint_of_scale(scale, x_bar, shared)
        adjoint_of_scale(scale, z_bar, shared)
    assert (x_bar.list(), z_bar.list(), shared.list()) == ([3, 3], [3, 3], [1, 1])
    assert not tape.launches
    y = kl.zeros(2, requires_grad=True)
    assert y.grad is not None
    y.grad.fill_(1)
    kl.launch(scale, 2, [X, 3.0], [y], adj_inputs=[x_bar, None], adjoint=True)
    assert (x_bar.list(), y.grad.list()) == ([6, 6], [0, 0])


def test_the_adjoint_of_an_array_that_is_changed_in_place_is_changed_in_place() -> None:
    double = kl.compile("def double(y: array[float]):\n    y[tid()] = 2.0 * y[tid()]\n")["double"]
    y_bar = kl.ones(2)
    kl.launch(double, 2, [kl.ones(2)], adj_inputs=[y_bar], adjoint=True)
    assert y_bar.list() == [2, 2]


def test_an_adjoint_whose_elements_share_bytes_is_read_and_cannot_be_added_to(scale: kl.Kernel) -> None:
    one = np.ones(1, np.float32)
    spread = np.lib.stride_tricks.as_strided(one, (2,), (0,))
    x_bar = kl.zeros(2)
    adjoint_of_scale(scale, x_bar, spread)
    adjoint_of_scale(scale, x_bar, np.broadcast_to(one, 2))  # which is read-only, too
    assert (x_bar.list(), one.tolist()) == ([6, 6], [1])
    with pytest.raises(LaunchError, match=r"argument `x_bar`(?s:.*)elements share bytes"):
        adjoint_of_scale(scale, spread, kl.ones(2))
    with pytest.raises(LaunchError, match=r"argument `x_bar`(?s:.*)read-only"):
        adjoint_of_scale(scale, np.broadcast_to(one, 2), kl.ones(2))


def test_kernels_compare_by_identity_and_know_their_text(kernels: dict[str, Any], scale: kl.Kernel) -> None:
    assert scale == kernels["scale"]
    assert scale != kernels["linear"]
    assert repr(scale) == "<kernel scale>"
    assert "def scale" in scale.source.text


def test_a_widened_kernel_computes_in_float64(scale: kl.Kernel) -> None:
    y = kl.zeros(1, dtype=kl.float64)
    scale.widened()[1](kl.full(1, 1 / 3, dtype=kl.float64), 1.0, y)
    assert y.list() == [1 / 3]
    assert scale.widened() is scale.widened()


@kl.func
def cube(x: float) -> float:
    return x * x * x


GAIN = 2.0


@kl.kernel
def cubes(x: kl.array(dtype=float), y: kl.array[float]):  # type: ignore[no-untyped-def,valid-type]
    i = kl.tid()
    y[i] = GAIN * cube(x[i])


def test_decorated_functions_of_a_plain_file_are_kernels() -> None:
    y = kl.zeros(2)
    cubes[2](kl.array([1.0, 2.0]), y)
    assert y.list() == [2, 16]


def test_a_decorated_function_is_called_on_the_host_too() -> None:
    assert cube(2.0) == 8


@kl.kernel
def broken(x: kl.array(dtype=float)):  # type: ignore[no-untyped-def,valid-type]
    x[kl.tid()] = nothing_known_here  # type: ignore[name-defined] # noqa: F821


def test_a_mistake_in_a_plain_file_is_shown_at_its_line_when_the_kernel_is_launched() -> None:
    with pytest.raises(KernelError) as caught:
        broken[1](kl.zeros(1))
    assert "nothing_known_here" in str(caught.value)
    assert "test_launch.py, line" in str(caught.value)


def test_a_grid_of_another_rank_than_the_kernel_unpacks_is_pointed_out() -> None:
    kernel = kl.compile("def k(a: array2d[float]):\n    i, j = tid()\n    a[i, j] = 1.0\n")["k"]
    with pytest.warns(kl.KernelWarning, match="`k` unpacks 2 thread indices, and this grid has 1 dimension"):
        kl.launch(kernel, dim=2, inputs=[kl.zeros((2, 3))])


def test_a_kernel_of_one_index_runs_over_a_grid_with_further_axes_of_one() -> None:
    kernel = kl.compile("def k(a: array[float]):\n    i = tid()\n    a[i] = 1.0\n")["k"]
    a = kl.zeros(6)
    kl.launch(kernel, dim=(6, 1), inputs=[a])
    assert a.list() == [1.0] * 6


def test_a_function_cannot_be_launched_and_the_message_says_what_can() -> None:
    square = kl.compile("def square(x: float):\n    return x * x\n")["square"]
    with pytest.raises(LaunchError, match="`square` is a function for kernels: it cannot be launched itself"):
        kl.launch(square, dim=1, inputs=[1.0])


def test_a_launch_can_be_prepared_and_run_later_with_other_arguments(scale: kl.Kernel) -> None:
    x, y = kl.array([1.0, 2.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    command = kl.launch(scale, dim=1, inputs=[x, 3.0], outputs=[y], record_cmd=True)
    assert y.list() == [0, 0]
    command.launch()
    assert y.list() == [3, 0]
    command.set_dim(2)
    command.set_param_by_name("factor", 4.0)
    with kl.Tape() as tape:
        command.launch()
    tape.backward(grads={y: kl.ones(2)})
    assert (y.list(), x.grad.list()) == ([4, 8], [4, 4])
    command.set_param_at_index(1, 5.0)
    command.launch()
    assert y.list() == [5, 10]
    command.set_params([x, 0.0, y])
    command.launch()
    assert y.list() == [0, 0]


def test_a_prepared_launch_refuses_what_the_kernel_does_not_have(scale: kl.Kernel) -> None:
    command = kl.launch(scale, 1, [kl.ones(1), 1.0, kl.ones(1)], record_cmd=True)
    with pytest.raises(LaunchError, match=r"no parameter `facter`(?s:.*)did you mean factor"):
        command.set_param_by_name("facter", 1.0)
    with pytest.raises(LaunchError, match="has 3 arguments, none at 3"):
        command.set_param_at_index(3, 1.0)
    with pytest.raises(LaunchError, match="cannot have the dimensions"):
        command.set_dim("many")


def test_an_adjoint_that_is_given_for_a_number_without_one_is_left_alone() -> None:
    kernel: Any = kl.compile("def pick(x: array[float], i: int, y: array[float]):\n    y[0] = 2.0 * x[i]")[
        "pick"
    ]
    x, y = kl.array([1.0, 2.0], requires_grad=True), kl.zeros(1, requires_grad=True)
    y.grad = kl.array([3.0])
    kl.launch(kernel, 1, inputs=[x, 1], outputs=[y], adj_inputs=[None, 1], adjoint=True)
    assert x.grad.list() == [0, 6]


def test_a_prepared_launch_may_run_the_adjoint(scale: kl.Kernel) -> None:
    x, y = kl.array([1.0, 2.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
    y.grad.fill_(1.0)
    command = kl.launch(scale, 2, [x, 3.0], [y], adj_inputs=[None, None], adjoint=True, record_cmd=True)
    assert x.grad.list() == [0.0, 0.0]
    command.launch()
    assert x.grad.list() == [3.0, 3.0] and y.list() == [0.0, 0.0]
    bar, seed = kl.zeros(2), kl.full(2, 2.0)
    command.set_param_by_name("x", bar, adjoint=True)
    command.set_param_by_name("y", seed, adjoint=True)
    command.launch()
    assert bar.list() == [6.0, 6.0] and x.grad.list() == [3.0, 3.0]


def test_a_launch_may_be_prepared_without_arguments(scale: kl.Kernel) -> None:
    x, y = kl.array([1.0, 2.0], dtype=float), kl.zeros(2)
    command = kl.Launch(scale, "cpu")
    for name, value in (("x", x), ("factor", 3.0), ("y", y)):
        command.set_param_by_name(name, value)
    command.launch()
    assert y.list() == [0.0, 0.0]
    command.set_dim(2)
    command.launch()
    assert y.list() == [3.0, 6.0]


def test_a_prepared_launch_can_keep_from_tapes(scale: kl.Kernel) -> None:
    x, y = kl.array([1.0], dtype=float, requires_grad=True), kl.zeros(1, requires_grad=True)
    command = kl.launch(scale, 1, [x, 3.0], [y], record_cmd=True, record_tape=False)
    with kl.Tape() as tape:
        command.launch()
    assert len(tape) == 0


@pytest.mark.parametrize("dim", [range(3), {3, 2}, {3: 2}])
def test_what_only_lists_numbers_is_no_grid(scale: kl.Kernel, dim: Any) -> None:
    with pytest.raises(LaunchError, match="a grid cannot have the dimensions"):
        kl.launch(scale, dim, [X, 3.0], [Y])
