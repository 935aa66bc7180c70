"""Jacobians of kernels and functions: right by every way of computing them, and as documented."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.jacobians.jacobian import Jacobian, Selection, jacobians
from kernelab.autodiff.jacobians.subject import of_function, of_kernel
from kernelab.errors import GradientError, KernelError, KernelTypeError, KernelValueError
from tests.support.columns import columns

CELL = """
class Spring:
    stiffness: float
    rest: array[float]

class Ball:
    mass: float
    speed: float

def energy(balls: array[Ball], y: array[float]):
    i = tid()
    y[i] = 0.5 * balls[i].mass * balls[i].speed * balls[i].speed

def documented(a: array[float], b: array[vec3], out1: array[vec2], out2: array[quat]):
    tid_ = tid()
    ai, bi = a[tid_], b[tid_]
    r = sqrt(ai * ai + 4.0)
    out1[tid_] = vec2(r * bi[0], sin(ai) * bi[2])
    out2[tid_] = quat(bi[0] * ai, bi[1], bi[2] * bi[2], 1.0)

def band(x: array[float], y: array[float]):
    i = tid()
    s = 2.0 * sin(x[i])
    if i > 0:
        s = s + x[i - 1] * x[i]
    y[i] = s

def dense(x: array[float], gain: float, y: array[float]):
    i = tid()
    s = 0.0
    for k in range(x.shape[0]):
        s = s + sin(x[k] * float(i + 1)) * gain
    y[i] = s

def squares(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def scattered(x: array[float], index: array[int], y: array[float]):
    i = tid()
    y[index[i]] = 3.0 * x[i]

def gathered(x: array[float], y: array[float]):
    i = tid()
    atomic_add(y, i % 2, x[i] * x[i])

def in_place(x: array[float]):
    i = tid()
    x[i] = x[i] * x[i] + x[i]

def plane(a: array2d[float], b: array2d[float]):
    i, j = tid()
    b[i, j] = a[i, j] * a[j, i]

def flipped(a: array2d[float], b: array2d[float]):
    i, j = tid()
    b[j, i] = a[i, j] * a[i, 0]

def springs(s: Spring, x: array[float], y: array[float]):
    i = tid()
    y[i] = s.stiffness * (x[i] - s.rest[i]) * s.rest[i]

def half(x: array[float16], y: array[float]):
    i = tid()
    y[i] = float(x[i]) * 3.0

def summed(x: array[float], s: array[float64]):
    i = tid()
    atomic_add(s, 0, float64(x[i]) * float64(x[i]))
"""

K = kl.compile(CELL)
RNG = np.random.default_rng(3)


def reals(*shape: int, dtype: Any = float) -> Any:
    return kl.array(RNG.uniform(0.4, 1.6, shape), dtype=dtype, requires_grad=True)


def documented() -> tuple[list[Any], list[Any]]:
    inputs = [reals(4), reals(4, 3, dtype=kl.vec3)]
    return inputs, [kl.zeros(4, dtype=kl.vec2), kl.zeros(4, dtype=kl.quat)]


def agree(kernel: Any, dim: Any, inputs: list[Any], outputs: list[Any]) -> Any:
    """The Jacobians, which adjoint, tangent and differences agree on."""
    found = kl.autograd.jacobian(kernel, dim, inputs, outputs)
    subject = of_kernel(kernel, dim, inputs, outputs, "jacobian")
    numeric, tangent = kl.autograd.jacobian_fd(kernel, dim, inputs, outputs), columns(subject)
    for key, value in found.items():
        np.testing.assert_allclose(value.numpy(), numeric[key].numpy(), rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(value.numpy(), tangent[key].numpy(), rtol=1e-5, atol=1e-6)
    return found


def test_the_documented_example() -> None:
    inputs, outputs = documented()
    found = agree(K["documented"], 4, inputs, outputs)
    assert {key: value.shape for key, value in found.items()} == {
        (0, 0): (8, 4),
        (0, 1): (16, 4),
        (1, 0): (8, 12),
        (1, 1): (16, 12),
    }
    a, b = (value.numpy() for value in inputs)
    assert found["a", "out1"][0, 0] == pytest.approx(a[0] / np.sqrt(a[0] ** 2 + 4) * b[0, 0])
    assert found["b", "out2"] is found[1, 1]


@pytest.mark.parametrize("name", ["band", "squares", "gathered"])
def test_kernels_of_one_input_and_output(name: str) -> None:
    agree(K[name], 6, [reals(6)], [kl.zeros(6)])


def test_other_shapes_of_kernels() -> None:
    index = kl.array([2, 0, 3, 1], dtype=int)
    agree(K["scattered"], 4, [reals(4), index], [kl.zeros(4)])
    agree(K["plane"], (3, 3), [reals(3, 3)], [kl.zeros((3, 3))])
    agree(K["flipped"], (2, 3), [reals(2, 3)], [kl.zeros((3, 2))])
    found = agree(K["dense"], 4, [reals(3), reals(1)], [kl.zeros(4)])
    assert found["gain", "y"].shape == (4, 1)


def test_an_output_that_is_also_an_input() -> None:
    x = reals(3)
    before = x.numpy().copy()
    found = agree(K["in_place"], 3, [x], [])
    np.testing.assert_allclose(found[0, 0].numpy(), np.diag(2 * before + 1), rtol=1e-6)
    np.testing.assert_array_equal(x.numpy(), before)
    both = kl.autograd.jacobian(K["band"], 3, [x, x], [])
    assert both[0, 0].shape == (3, 3)


def test_fields_of_structs_are_inputs_by_their_names() -> None:
    spring = K["Spring"]()
    spring.stiffness, spring.rest = 2.0, reals(3)
    x = reals(3)
    found = kl.autograd.jacobian(K["springs"], 3, [spring, x], [kl.zeros(3)])
    assert list(found) == [("s.rest", 0), (1, 0)]
    rest = spring.rest.numpy()
    np.testing.assert_allclose(found["s.rest", "y"].numpy(), np.diag(2 * x.numpy() - 4 * rest), rtol=1e-5)
    np.testing.assert_allclose(found[1, 0].numpy(), np.diag(2 * rest), rtol=1e-6)


def test_numbers_of_a_struct_are_inputs_once_it_requires_gradients() -> None:
    spring, x = K["Spring"](), kl.array([1.0, 2.0, 3.0])
    spring.stiffness, spring.rest = 2.0, kl.array([0.5, 1.0, 1.5])
    arguments: Any = (K["springs"], 3, [spring, x], [kl.zeros(3)])
    with pytest.raises(GradientError, match=r"for s\.stiffness, set requires_grad = True of the struct"):
        kl.autograd.jacobian(*arguments)
    spring.rest.requires_grad = True
    with pytest.raises(KernelValueError, match=r"(?s)are 's\.rest'; a number .* s\.requires_grad = True"):
        kl.autograd.jacobian(*arguments, input_output_mask=[("s.stiffness", "y")])

    spring.requires_grad = True
    for sparse in (False, True):
        found = kl.autograd.jacobian(*arguments, sparse=sparse)
        assert list(found) == [("s.stiffness", 0), ("s.rest", 0)]
        np.testing.assert_allclose(found["s.stiffness", "y"].numpy(), [[0.25], [1.0], [2.25]], rtol=1e-6)
    mask = [("s.stiffness", "y")]
    report = kl.autograd.gradcheck(*arguments, input_output_mask=mask, show_summary=False)
    assert [(pair.input, pair.entries, pair.passed) for pair in report.pairs] == [("s.stiffness", 3, True)]
    assert (spring.stiffness, spring.grad.stiffness) == (2.0, 0.0)


def test_functions_are_varied_by_the_fields_of_arrays_of_structs() -> None:
    balls = kl.zeros(3, dtype=K["Ball"], requires_grad=True)
    balls["mass"].assign([1.0, 2.0, 3.0])
    balls["speed"].assign([0.5, 1.5, 2.5])

    def energies(balls: Any) -> Any:
        y = kl.zeros(3)
        K["energy"][3](balls, y)
        return y

    found = kl.autograd.jacobian(energies, inputs=[balls])
    numeric = kl.autograd.jacobian_fd(energies, inputs=[balls])
    assert list(found) == [("balls.mass", 0), ("balls.speed", 0)]
    np.testing.assert_allclose(found["balls.speed", 0].numpy(), np.diag([0.5, 3.0, 7.5]), rtol=1e-6)
    for key, value in found.items():
        np.testing.assert_allclose(value.numpy(), numeric[key].numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(GradientError, match=r"no input of energies is an array with requires_grad"):
        kl.autograd.jacobian(energies, inputs=[K["Ball"]()])


def test_elements_picked_by_indices_are_left_alone() -> None:
    x, y = reals(2), kl.full(4, 7.0)
    picked = kl.indexedarray(y, [kl.array([2, 0], dtype=int)])
    with pytest.raises(GradientError, match="changes no element of an array of floats"):
        kl.autograd.jacobian(K["squares"], 2, [x], [picked])
    assert y.numpy().tolist() == [7.0] * 4


def test_precisions_may_differ() -> None:
    x = kl.array([0.5, 1.5], dtype=kl.float16, requires_grad=True)
    found = kl.autograd.jacobian(K["half"], 2, [x], [kl.zeros(2)])[0, 0]
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found.numpy(), 3 * np.eye(2))
    y = reals(3)
    wide = agree(K["summed"], 3, [y], [kl.zeros(1, dtype=kl.float64)])
    np.testing.assert_allclose(wide[0, 0].numpy(), 2 * y.numpy()[None], rtol=1e-6)


# ------------------------------------------------------------------------------------------ selection


def test_pairs_are_chosen_by_name_or_position() -> None:
    inputs, outputs = documented()
    whole = kl.autograd.jacobian(K["documented"], 4, inputs, outputs)
    for mask in ([("a", "out1"), ("b", "out2")], [(0, 0), (1, "out2")]):
        found = kl.autograd.jacobian(K["documented"], 4, inputs, outputs, input_output_mask=mask)
        assert list(found) == [(0, 0), (1, 1)]
        for key, value in found.items():
            np.testing.assert_array_equal(value.numpy(), whole[key].numpy())


@pytest.mark.parametrize("check", [kl.autograd.jacobian, kl.autograd.jacobian_fd, kl.autograd.gradcheck])
def test_a_pair_that_is_chosen_twice_is_one(check: Any) -> None:
    x, y = kl.array([1.0, 2.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    square = kl.compile("def k(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] * x[tid()]\n")["k"]
    found = check(square, 2, [x], [y], input_output_mask=[("x", 0), (0, "y")])
    assert len(found.pairs if hasattr(found, "pairs") else found) == 1


def test_rows_and_columns_that_are_left_out_are_nan() -> None:
    inputs, outputs = documented()
    whole = kl.autograd.jacobian(K["documented"], 4, inputs, outputs)
    few = kl.autograd.jacobian(K["documented"], 4, inputs, outputs, max_outputs_per_var=5)
    for key, value in few.items():
        np.testing.assert_allclose(value.numpy()[:5], whole[key].numpy()[:5], rtol=1e-6)
        assert np.isnan(value.numpy()[5:]).all()
        assert value.evaluated.sum() == 5 * value.shape[1]
    fd = kl.autograd.jacobian_fd(K["documented"], 4, inputs, outputs, max_inputs_per_var=2)
    for key, value in fd.items():
        np.testing.assert_allclose(value.numpy()[:, :2], whole[key].numpy()[:, :2], rtol=1e-4, atol=1e-5)
        assert np.isnan(value.numpy()[:, 2:]).all()


def test_a_wrong_mask_is_named() -> None:
    inputs, outputs = documented()
    with pytest.raises(KernelValueError, match=r"(?s)names the output 'out3'.*0 or 'out1', 1 or 'out2'"):
        kl.autograd.jacobian(K["documented"], 4, inputs, outputs, input_output_mask=[("a", "out3")])
    with pytest.raises(KernelValueError, match="names the input 7"):
        kl.autograd.jacobian(K["documented"], 4, inputs, outputs, input_output_mask=[(7, 0)])
    with pytest.raises(KernelValueError, match=r"every entry is a pair"):
        kl.autograd.jacobian(K["documented"], 4, inputs, outputs, input_output_mask=["a"])  # type: ignore[list-item]


# ------------------------------------------------------------------------------------------ functions


def test_a_function_that_returns_arrays() -> None:
    x = reals(4)

    def f(x: Any) -> Any:
        y, z = kl.zeros_like(x), kl.zeros(2)
        K["band"][4](x, y)
        K["gathered"][4](y, z)
        return y, z

    found = kl.autograd.jacobian(f, inputs=[x])
    numeric = kl.autograd.jacobian_fd(f, inputs=[x])
    assert list(found) == [(0, 0), (0, 1)]
    for key, value in found.items():
        np.testing.assert_allclose(value.numpy(), numeric[key].numpy(), rtol=1e-4, atol=1e-5)
    assert found["x", "output 1"].shape == (2, 4)
    tangent = columns(of_function(f, [x], [], "jacobian"))
    np.testing.assert_allclose(found[0, 1].numpy(), tangent[0, 1].numpy(), rtol=1e-5)


def test_a_function_that_fills_outputs() -> None:
    x, y = reals(3), kl.full(3, 7.0)
    J = 2 * np.diag(x.numpy())

    def given(x: Any, y: Any) -> None:
        K["squares"][3](x, y)

    np.testing.assert_allclose(kl.autograd.jacobian(given, inputs=[x], outputs=[y])[0, 0].numpy(), J)
    assert y.numpy().tolist() == [7.0] * 3
    assert kl.autograd.gradcheck(given, inputs=[x], outputs=[y], show_summary=False)


@pytest.mark.parametrize("asked", ["jacobian", "jacobian_fd", "gradcheck", "taylor_test"])
def test_a_kernel_that_changes_none_of_its_outputs_is_refused(asked: str) -> None:
    text = "def k(y: array[float], x: array[float], w: array[float]):\n    y[tid()] = x[tid()] * w[tid()]\n"
    kernel, y = kl.compile(text)["k"], kl.ones(3, requires_grad=True)
    with pytest.raises(
        GradientError, match=r"k changes no element of outputs=, w\n(.*\n)*.*what the kernel wr"
    ):
        getattr(kl.autograd, asked)(kernel, 3, [kl.zeros(3), reals(3)], [kl.ones(3)])
    assert getattr(kl.autograd, asked)(kernel, 3, [y, reals(3)], [y])  # the same array


OUTSIDE = kl.zeros(3)

FILLING_NONE: dict[str, Any] = {
    "returns": lambda x: x * x,
    "returns beside": lambda x, y: x * x,
    "from outside": lambda x: OUTSIDE.assign(x * x),
    "another one": lambda x, y=None: OUTSIDE.assign(x * x),
}


@pytest.mark.parametrize("asked", ["jacobian", "jacobian_fd", "gradcheck", "taylor_test"])
@pytest.mark.parametrize("way", FILLING_NONE)
def test_a_function_that_fills_none_of_its_outputs_is_refused(way: str, asked: str) -> None:
    with pytest.raises(KernelTypeError, match=r"none of the arrays in outputs=\n(.*\n)*.*def f\(x, y"):
        getattr(kl.autograd, asked)(FILLING_NONE[way], inputs=[reals(3)], outputs=[kl.zeros(3)])


@pytest.mark.parametrize("asked", ["gradcheck", "taylor_test"])
def test_a_function_that_computes_nothing_from_its_inputs_is_not_checked(asked: str) -> None:
    x = reals(3)
    for function in (lambda given: kl.ones(3), lambda given: x * x):
        with pytest.raises(kl.GradientError, match="0 pairs checked: <lambda> computes nothing from its inp"):
            getattr(kl.autograd, asked)(function, inputs=[x], show_summary=False)


@pytest.mark.parametrize("asked", ["gradcheck", "taylor_test"])
@pytest.mark.parametrize("has_gradients", [True, False])
def test_neither_is_one_that_fills_its_outputs_from_elsewhere(asked: str, has_gradients: bool) -> None:
    x, y = reals(3), kl.zeros(3, requires_grad=has_gradients)
    for source in (x, kl.ones(3)):
        with pytest.raises(kl.GradientError, match="0 pairs checked: <lambda> computes nothing from its inp"):
            getattr(kl.autograd, asked)(
                lambda given, out, source=source: out.assign(source * 2.0),
                inputs=[x],
                outputs=[y],
                show_summary=False,
            )
    check = getattr(kl.autograd, asked)
    assert check(lambda given, out: out.assign(given * x), inputs=[x], outputs=[y], show_summary=False)


def test_names_come_from_the_metadata_where_it_has_some() -> None:
    metadata = kl.autograd.FunctionMetadata(key="energy", input_labels=["position"], output_labels=["force"])
    x = reals(3)
    found = kl.autograd.jacobian(K["squares"], 3, [x], [kl.zeros(3)], metadata=metadata)
    assert found["position", "force"].shape == (3, 3)
    assert found.subject == "energy"


# ------------------------------------------------------------------------------------------ results


def test_a_jacobian_behaves_as_an_array_and_goes_to_scipy() -> None:
    x = reals(4)
    J = kl.autograd.jacobian(K["band"], 4, [x], [kl.zeros(4)])[0, 0]
    assert isinstance(J, Jacobian)
    assert (J.shape, J.ndim, len(J), J.dtype) == ((4, 4), 2, 4, np.float32)
    np.testing.assert_array_equal(np.asarray(J), J.numpy())
    np.testing.assert_array_equal(J @ np.ones(4), J.numpy() @ np.ones(4))
    np.testing.assert_array_equal(J.tocsr().toarray(), J.numpy())
    assert J.tocsr().nnz == np.count_nonzero(J.numpy())
    with pytest.raises(
        KeyError, match=r"there is no Jacobian \('x', 'z'\); there are \('x', 'y'\)\n  hint: write"
    ):
        kl.autograd.jacobian(K["band"], 4, [x], [kl.zeros(4)])["x", "z"]


@pytest.mark.parametrize("restore_inputs", [True, False])
def test_arguments_keep_values_gradients_and_versions_and_nothing_is_recorded(restore_inputs: bool) -> None:
    x, y = reals(3), kl.full(3, 5.0)
    x.grad = kl.full(3, 2.0)
    version = x.allocation.version
    with kl.Tape() as tape:
        kl.autograd.jacobian(K["squares"], 3, [x], [y], restore_inputs=restore_inputs)
        kl.autograd.jacobian_fd(K["squares"], 3, [x], [y], restore_inputs=restore_inputs)
        kl.autograd.gradcheck(K["squares"], 3, [x], [y], show_summary=False, restore_inputs=restore_inputs)
    assert len(tape) == 0
    assert (x.grad.numpy().tolist(), y.numpy().tolist()) == ([2.0] * 3, [5.0] * 3)
    assert x.allocation.version == version


def test_rows_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = reals(6)
    args = (K["gathered"], 6, [x], [kl.zeros(2)])
    whole = kl.autograd.jacobian(*args)[0, 0].numpy()
    numeric = kl.autograd.jacobian_fd(*args)[0, 0].numpy()
    monkeypatch.setattr("kernelab.autodiff.transforms.rows_and_columns.CHUNK_BYTES", 1)
    np.testing.assert_array_equal(kl.autograd.jacobian(*args)[0, 0].numpy(), whole)
    np.testing.assert_array_equal(kl.autograd.jacobian_fd(*args)[0, 0].numpy(), numeric)


# ------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("asked", ["jacobian", "jacobian_fd", "gradcheck", "taylor_test"])
def test_what_is_empty_is_named(asked: str) -> None:
    ask, empty = getattr(kl.autograd, asked), kl.zeros(0, requires_grad=True)
    with pytest.raises(GradientError, match=r"`x` has no elements, its shape is \(0,\)"):
        ask(lambda x: x * 2.0, inputs=[empty])
    with pytest.raises(GradientError, match=r"`x` has no elements, its shape is \(0,\)"):
        ask(K["squares"], 3, [empty], [reals(3)])
    with pytest.raises(GradientError, match=r"`y` has no elements, its shape is \(0,\)"):
        ask(K["squares"], 3, [reals(3)], [kl.zeros(0)])


def test_what_has_no_derivative_is_refused_by_name() -> None:
    x, y = kl.zeros(3), kl.zeros(3)
    with pytest.raises(GradientError, match="no argument of squares has requires_grad"):
        kl.autograd.jacobian(K["squares"], 3, [x], [y])
    with pytest.raises(GradientError, match="no input of f is an array with requires_grad"):
        kl.autograd.jacobian(_named(lambda x: x), inputs=[x])
    with pytest.raises(KernelTypeError, match="jacobian of squares needs dim="):
        kl.autograd.jacobian(K["squares"], inputs=[x])
    with pytest.raises(KernelTypeError, match="takes a kernel or a Python function, not a str"):
        kl.autograd.jacobian("squares", 3, [x])  # type: ignore[arg-type]
    with pytest.raises(KernelTypeError, match=r"f returned a numpy\.ndarray, which is data of the host"):
        kl.autograd.jacobian(_named(lambda x: x.numpy()), inputs=[reals(2)])
    with pytest.raises(KernelError, match="takes 2 arguments, not 1"):
        kl.autograd.jacobian(K["squares"], 3, [reals(3)])


def test_bad_input_is_refused_by_the_name_of_the_argument() -> None:
    x, y = reals(3), kl.zeros(3)
    squares = K["squares"]

    def changing(x: Any) -> Any:
        kl.launch(squares, 3, [x], [x])
        return x

    with pytest.raises(
        KernelTypeError, match="inputs= of jacobian is a list of the arguments of squares, not an int"
    ):
        kl.autograd.jacobian(squares, 3, 3)  # type: ignore[arg-type]
    with pytest.raises(
        KernelTypeError, match="outputs= of gradcheck is a list of the arguments of squares, not a"
    ):
        kl.autograd.gradcheck(squares, 3, [x], 2.0)  # type: ignore[arg-type]
    with pytest.raises(
        kl.LaunchError, match=r"argument `\w+` of kernel `squares` expects an array .* not the float"
    ):
        kl.autograd.jacobian(squares, 3, [x], [3.0])
    with pytest.raises(
        kl.LaunchError, match=r"argument `\w+` of kernel `squares` expects .* with 1 dimension"
    ):
        kl.autograd.gradcheck(squares, 3, [kl.zeros((3, 1), requires_grad=True)], [y])
    with pytest.raises(kl.KernelIndexError, match=r"for axis 0 of array .* with size 2"):
        kl.autograd.jacobian(squares, 3, [x], [kl.zeros(2)])
    with pytest.raises(
        kl.KernelIndexError, match=r"for axis 0 of array .* with size 2; in thread 2 of .* in lane 0"
    ):
        kl.autograd.jacobian_fd(squares, 3, [x], [kl.zeros(2)])
    with pytest.raises(KernelValueError, match="input_output_mask chooses no pair"):
        kl.autograd.jacobian(squares, 3, [x], [y], input_output_mask=[])
    for check in (kl.autograd.jacobian, kl.autograd.gradcheck, kl.autograd.taylor_test):
        with pytest.raises(GradientError, match="changing changes its argument `x`"):
            check(changing, inputs=[x])


def test_inside_a_transform_the_transforms_are_named() -> None:
    def f(x: Any) -> Any:
        kl.autograd.jacobian(K["squares"], 3, [reals(3)], [kl.zeros(3)])
        return x

    with pytest.raises(GradientError, match=r"jacobian cannot be called inside a transform"):
        kl.func.jacrev(f)(reals(3))


def _named(f: Any) -> Any:
    f.__name__ = "f"
    return f


def test_one_launch_gives_all_rows_where_threads_own_their_elements() -> None:
    subject = of_kernel(K["band"], 5, [reals(5)], [kl.zeros(5)], "jacobian")
    whole, few = jacobians(subject), jacobians(subject, Selection(None, 4))
    np.testing.assert_allclose(whole[0, 0].numpy()[:4], few[0, 0].numpy()[:4], rtol=1e-6)


def test_functions_that_return_no_array_of_floats_are_refused() -> None:
    x = reals(3)
    for function in (kl.autograd.jacobian, kl.autograd.jacobian_fd, kl.autograd.gradcheck):
        with pytest.raises(KernelTypeError, match="nothing returned no array"):
            function(_called("nothing", lambda x: []), inputs=[x])
        with pytest.raises(KernelTypeError, match="output 0 of counts is an array of int32"):
            function(_called("counts", lambda x: kl.zeros(3, dtype=int)), inputs=[x])


def test_differences_notice_a_function_that_changes_its_argument() -> None:
    def changing(x: Any) -> Any:
        K["in_place"][3](x)
        return x

    with pytest.raises(GradientError, match="changing changes its argument `x`"):
        kl.autograd.jacobian_fd(changing, inputs=[reals(3)])


def test_options_of_jacobians_that_mean_nothing_are_named() -> None:
    x, y = reals(3), kl.zeros(3)
    with pytest.raises(KernelValueError, match="sparse='yes' says nothing"):
        kl.autograd.jacobian(K["squares"], 3, [x], [y], sparse="yes")  # type: ignore[arg-type]
    with pytest.raises(KernelValueError, match="eps=0 is not a step"):
        kl.autograd.jacobian_fd(K["squares"], 3, [x], [y], eps=0)
    with pytest.raises(KernelTypeError, match="plot_kernel_jacobians draws what jacobian"):
        kl.autograd.plot_kernel_jacobians(3)  # type: ignore[arg-type]


def _called(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


def test_differences_at_large_inputs_keep_their_digits() -> None:
    cubed = kl.compile("def k(x: array[float64], y: array[float64]):\n    y[tid()] = x[tid()] ** 3.0")["k"]
    x = kl.array([2e12, -3e6, 0.5], dtype=kl.float64, requires_grad=True)
    found = kl.autograd.jacobian_fd(cubed, 3, [x], [kl.zeros(3, dtype=kl.float64)])[0, 0].numpy()
    np.testing.assert_allclose(found, np.diag(3.0 * x.numpy() ** 2), rtol=1e-8)
