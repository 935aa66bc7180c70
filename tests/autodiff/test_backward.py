"""What `backward` computes: gradients of chains of launches, and of what the host does between them."""

import gc
from textwrap import indent
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from benchmarks.walk import TEXT, recorded, walked
from kernelab.autodiff.records.adjoint_buffers import Adjoints, Level
from kernelab.autodiff.records.records import LaunchRecord
from kernelab.backend.common.tiered import AHEAD
from tests.support.chains import kernels, scale, square, step, total, twice
from tests.support.leaves import gradient, leaf, result

# ------------------------------------------------------------------------------------------ what is computed


def test_a_chain_of_launches_is_differentiated() -> None:
    x, y, loss = leaf(1, 2, 3), result(3), result()
    with kl.Tape() as tape:
        square[3](x, y)
        total[3](y, loss)
    tape.backward(loss)
    assert loss.item() == 14
    assert gradient(x) == [2, 4, 6]


def test_leaves_intermediates_and_the_loss_all_show_their_gradient() -> None:
    x, y, loss = leaf(1, 2), result(2), result()
    with kl.Tape() as tape:
        square[2](x, y)
        total[2](y, loss)
    tape.backward(loss)
    assert (gradient(x), gradient(y), gradient(loss)) == ([2, 4], [1, 1], [1])


def test_a_second_backward_adds_to_leaves_and_replaces_the_rest() -> None:
    x, y, loss = leaf(1, 2), result(2), result()
    with kl.Tape() as tape:
        square[2](x, y)
        total[2](y, loss)
    tape.backward(loss)
    tape.backward(loss)
    assert (gradient(x), gradient(y), gradient(loss)) == ([4, 8], [1, 1], [1])


def test_backward_changes_no_primal_data() -> None:
    x, loss = leaf(1, 2), result()
    with kl.Tape() as tape:
        kernels["squared_in_place"][2](x)
        total[2](x, loss)
    before = (x.list(), loss.list(), x.allocation.version)
    tape.backward(loss)
    assert (x.list(), loss.list(), x.allocation.version) == before


def test_grads_gives_cotangents() -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
    tape.backward(grads={y: kl.array([1.0, 10.0])})
    assert (gradient(x), gradient(y)) == ([2, 40], [1, 10])


def test_cotangents_may_be_host_data() -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
    tape.backward(grads={y: np.array([0.0, 1.0])})
    assert gradient(x) == [0, 4]


def test_an_array_named_in_grads_needs_no_requires_grad() -> None:
    x, y = leaf(1, 2), kl.zeros(2)
    with kl.Tape() as tape:
        square[2](x, y)
    tape.backward(grads={y: [1, 1]})
    assert gradient(x) == [2, 4]
    assert y.grad is None


@pytest.mark.parametrize("dtype", [kl.float16, kl.bfloat16, kl.float64])
def test_so_are_cotangents_of_any_type(dtype: Any) -> None:
    x, y = kl.ones(2, dtype=dtype, requires_grad=True), kl.zeros(2, dtype=dtype)
    kernel = kl.compile(
        f"def f(x: array[{dtype}], y: array[{dtype}]):\n    i = tid()\n    y[i] = x[i] * x[i]"
    )
    with kl.Tape() as tape:
        kernel["f"][2](x, y)
    tape.backward(grads={y: kl.ones(2, dtype=dtype)})
    assert gradient(x) == [2, 2]


def test_without_arguments_the_gradients_of_the_final_arrays_are_the_cotangents() -> None:
    x, y, z = leaf(1, 2), result(2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
        square[2](y, z)
    assert z.grad is not None
    z.grad.fill_(1)
    tape.backward()
    assert gradient(x) == [4, 32]
    tape.backward()
    assert gradient(x) == [8, 64]


def test_without_arguments_what_was_put_into_gradients_on_the_way_adds_to_what_arrives_there() -> None:
    x, y, z = leaf(1, 2), result(2), result(2)
    with kl.Tape() as tape:
        scale[2](x, 2.0, y)
        square[2](y, z)
    assert y.grad is not None and z.grad is not None
    kl.copy(y.grad, kl.array([10.0, 20.0], dtype=y.dtype))
    z.grad.fill_(1)
    tape.backward()
    assert (gradient(x), gradient(y), gradient(z)) == ([28, 56], [14, 28], [1, 1])
    tape.backward()  # what the sweep has left there is no cotangent
    assert (gradient(x), gradient(y)) == ([28 + 8, 56 + 16], [4, 8])


def test_what_was_put_into_gradients_of_overlapping_slices_is_taken_once() -> None:
    x, y, z = leaf(1, 2, 3), result(3), result(3)
    with kl.Tape() as tape:
        scale[2](x[0:2], 2.0, y[0:2])
        scale[2](x[1:3], 2.0, y[1:3])
        square[3](y, z)
    assert y.grad is not None
    y.grad.fill_(1)
    tape.backward()
    assert gradient(x) == [2, 2, 2]


def test_the_cotangents_of_final_slices_are_taken_once() -> None:
    x, y = leaf(1, 2), result(4)
    with kl.Tape() as tape:
        square[2](x, y[:2])
        square[2](x, y[2:])
    assert y.grad is not None
    y.grad.assign([1, 10, 100, 1000])
    tape.backward()
    assert gradient(x) == [202, 4040]
    assert gradient(y) == [1, 10, 100, 1000]


def test_two_losses_add_up() -> None:
    x, y, z = leaf(3), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)
        scale[1](x, 10.0, z)
    tape.backward(y, grads={z: [2.0]})
    assert gradient(x) == [26]


def test_an_array_read_twice_gets_both_gradients() -> None:
    x, y, loss = leaf(3), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)
        total[1](x, loss)
        total[1](y, loss)
    tape.backward(loss)
    assert gradient(x) == [7]


def test_an_in_place_kernel_shows_the_gradient_of_the_value_before_it() -> None:
    x, loss = leaf(3), result()
    with kl.Tape() as tape:
        kernels["squared_in_place"][1](x)
        kernels["squared_in_place"][1](x)
        total[1](x, loss)
    tape.backward(loss)
    assert x.item() == 81
    assert gradient(x) == [4 * 3**3]


def test_an_intermediate_shows_the_gradient_of_the_value_first_read() -> None:
    x, y, loss = leaf(3), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)  # 9
        twice[1](y)  # 18
        total[1](y, loss)
    tape.backward(loss)
    assert (gradient(y), gradient(x)) == ([2], [12])


def test_a_buffer_used_again_and_again_in_a_long_chain() -> None:
    x, ping, pong = leaf(0.5), result(), result()
    with kl.Tape() as tape:
        step[1](x, ping)
        for _ in range(5):
            step[1](ping, pong)
            step[1](pong, ping)
    tape.backward(grads={ping: [1.0]})
    value, slope = 0.5, 1.0
    for _ in range(11):
        value, slope = np.sin(value), slope * np.cos(value)
    np.testing.assert_allclose(gradient(x), [slope], rtol=1e-5)


def test_a_trajectory_of_slices_shows_the_gradient_of_every_step() -> None:
    path = result(4)
    path[0:1].assign([0.5])
    with kl.Tape() as tape:
        for t in range(3):
            step[1](path[t : t + 1], path[t + 1 : t + 2])
    tape.backward(grads={path[3:4]: [1.0]})
    values, slopes = path.numpy(), [1.0]
    for t in (2, 1, 0):
        slopes.insert(0, slopes[0] * float(np.cos(values[t])))
    np.testing.assert_allclose(gradient(path), slopes, rtol=1e-5)
    assert tape.saved_bytes == 0


def test_a_trajectory_that_a_loss_reads_whole_keeps_the_gradient_of_every_step() -> None:
    path, loss = result(3), result()
    path[0:1].assign([0.5])
    with kl.Tape() as tape:
        for t in range(2):
            step[1](path[t : t + 1], path[t + 1 : t + 2])
        total[3](path, loss)
    tape.backward(loss)
    values = path.numpy()
    last = 1.0
    middle = 1.0 + last * np.cos(values[1])
    first = 1.0 + middle * np.cos(values[0])
    np.testing.assert_allclose(gradient(path), [first, middle, last], rtol=1e-5)
    tape.backward(loss)
    np.testing.assert_allclose(gradient(path)[0], 2 * first, rtol=1e-5)
    np.testing.assert_allclose(gradient(path)[1:], [middle, last], rtol=1e-5)


def test_a_view_passed_to_a_kernel_gets_its_part_of_the_gradient() -> None:
    x, y = leaf(1, 2, 3, 4), result(2)
    with kl.Tape() as tape:
        square[2](x[::2], y)
    tape.backward(grads={y: [1, 1]})
    assert gradient(x) == [2, 0, 6, 0]


def test_a_reversed_view_gets_its_gradient_in_its_order() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        square[3](x[::-1], y)
    tape.backward(grads={y: [100, 10, 1]})
    assert gradient(x) == [2, 40, 600]


def test_overlapping_views_of_one_array_are_differentiated_as_one() -> None:
    x, loss = leaf(1, 2, 3), result()
    with kl.Tape() as tape:
        square[1](x[0:1], x[1:2])
        square[1](x[1:2], x[2:3])
        total[1](x[2:3], loss)
    tape.backward(loss)
    assert x.list() == [1, 1, 1]
    assert gradient(x)[0] == 4


def test_one_array_passed_twice_is_one_variable() -> None:
    x, loss = leaf(2, 3), result()
    with kl.Tape() as tape:
        square[2](x, x)
        total[2](x, loss)
    tape.backward(loss)
    assert x.list() == [4, 9]
    assert gradient(x) == [4, 6]


def test_an_array_of_one_element_passed_for_a_float_has_a_gradient() -> None:
    a, x, y = leaf(3), leaf(1, 2), result(2)
    with kl.Tape() as tape:
        scale[2](x, a, y)
        a.fill_(100)
    tape.backward(grads={y: [1, 10]})
    assert (gradient(a), gradient(x)) == ([21], [3, 30])


def test_vectors_have_gradients() -> None:
    v, loss = kl.array([[3, 4, 0], [0, 0, 2]], dtype=kl.vec3, requires_grad=True), result()
    with kl.Tape() as tape:
        kernels["lengths"][2](v, loss)
    tape.backward(loss)
    assert v.grad is not None
    np.testing.assert_allclose(v.grad.numpy(), [[0.6, 0.8, 0], [0, 0, 1]], rtol=1e-6)


def test_an_overwritten_result_passes_nothing_on() -> None:
    x, y, loss = leaf(3), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)
        y.fill_(5)
        total[1](y, loss)
        square[1](x, y)
    tape.backward(loss)
    assert gradient(x) == [0]


def test_numpy_arguments_are_constants() -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        kernels["gather"][2](x, np.array([1, 1], np.int32), y)
    tape.backward(grads={y: [1, 1]})
    assert gradient(x) == [0, 2]


def test_a_launch_with_record_tape_off_is_not_recorded() -> None:
    x, y = leaf(1), result()
    with kl.Tape() as tape:
        kl.launch(square, dim=1, inputs=[x, y], record_tape=False)
    assert len(tape) == 0


# ------------------------------------------------------------------------------------------ host operations


@pytest.mark.parametrize("how", ["copy", "clone", "assign"])
def test_copies_pass_gradients_on(how: str) -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
        z = result(2)
        if how == "copy":
            kl.copy(z, y)
        elif how == "clone":
            z = kl.clone(y)
        else:
            z.assign(y)
    tape.backward(grads={z: [1, 10]})
    assert (gradient(x), gradient(y)) == ([2, 40], [1, 10])


def test_a_copy_replaces_what_its_target_held() -> None:
    x, y = leaf(1), leaf(5)
    with kl.Tape() as tape:
        z = kl.clone(x)
        kl.copy(z, y)
    tape.backward(grads={z: [1]})
    assert (gradient(x), gradient(y)) == ([0], [1])


def test_a_partial_copy_passes_gradients_of_that_part() -> None:
    x, y = leaf(1, 2, 3), leaf(0, 0, 0)
    with kl.Tape() as tape:
        z = kl.clone(y)
        kl.copy(z, x, dest_offset=1, src_offset=0, count=2)
    tape.backward(grads={z: [1, 10, 100]})
    assert (gradient(x), gradient(y)) == ([10, 100, 0], [1, 0, 0])


def test_cloning_without_requires_grad_detaches_in_silence() -> None:
    x, y, loss = leaf(3), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)
        total[1](y, loss)
        total[1](kl.clone(y, requires_grad=False), loss)
    tape.backward(loss)
    assert gradient(x) == [6]


def test_a_recorded_function_sees_and_sets_gradients() -> None:
    x, y, z = leaf(2, 3), result(2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
        z.assign(y.numpy() ** 3)

        def backward() -> None:
            assert y.grad is not None
            assert z.grad is not None
            y.grad.numpy()[:] += 3 * y.numpy() ** 2 * z.grad.numpy()

        tape.record_func(backward, arrays=[y, z])
    tape.backward(grads={z: [1, 1]})
    np.testing.assert_allclose(gradient(x), 6 * np.array([2.0, 3.0]) ** 5)


@pytest.mark.parametrize("first", [True, False])
def test_a_recorded_function_adds_gradients_that_come_from_no_seed(first: bool) -> None:
    x, y = leaf(2, 3), result(2)
    with kl.Tape() as tape:

        def decay() -> None:
            assert x.grad is not None
            x.grad.assign(x.grad.numpy() + 0.5 * x.numpy())

        if first:
            tape.record_func(decay, [x])
        square[2](x, y)
        if not first:
            tape.record_func(decay, [x])
    for times in (1, 2):
        tape.backward(grads={y: [1, 1]})
        assert gradient(x) == [times * 5, times * 7.5]


def cubed(x: kl.array, y: kl.array, tape: kl.Tape) -> None:
    """A cube computed by NumPy, with its derivative."""
    y.assign(x.numpy() ** 3)
    x.mark_read()

    def backward() -> None:
        assert x.grad is not None and y.grad is not None
        x.grad.numpy()[:] += 3 * x.numpy() ** 2 * y.grad.numpy()

    tape.record_func(backward, [x, y])


def test_a_recorded_function_finds_the_values_of_its_time() -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        cubed(x, y, tape)
    x.fill_(9.0)
    for times in (1, 2):
        tape.backward(grads={y: [1, 1]})
        assert gradient(x) == [times * 3, times * 12] and x.list() == [9, 9]


@pytest.mark.parametrize("overwrite", ["save", "warn", "error"])
def test_a_change_that_a_recorded_function_cannot_undo_is_an_error(overwrite: Any) -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape(overwrite=overwrite) as tape:
        cubed(x, y, tape)
    x.numpy()[:] = 9.0
    told = r"`x` was changed through a view .*, but the function backward may need[\s\S]*tape\.record_func"
    with pytest.raises(kl.TapeError, match=told):
        tape.backward(grads={y: [1, 1]})


def test_where_nothing_is_saved_a_write_to_what_was_marked_as_read_is_reported() -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape(overwrite="warn") as tape:
        cubed(x, y, tape)
    with pytest.warns(kl.KernelWarning, match="`x` is overwritten here, but a function recorded") as caught:
        x.fill_(9.0)
    assert "x.mark_read()" in str(caught[0].message)
    with kl.Tape(overwrite="error") as tape:
        cubed(x, y, tape)
    with pytest.raises(kl.TapeError, match="`x` is overwritten here, but a function recorded"):
        square[2](y, x)
    y.fill_(1.0)


def test_a_recorded_function_may_replace_a_gradient() -> None:
    x, y, z = leaf(2), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)
        z.assign(5 * y.numpy())

        def backward() -> None:
            assert z.grad is not None
            y.grad = kl.array(5 * z.grad.numpy())

        tape.record_func(backward, arrays=[y, z])
    tape.backward(grads={z: [1]})
    assert gradient(x) == [20]


def test_the_buffers_of_a_backward_pass_are_freed_when_it_ends() -> None:
    x, y = kl.ones(4, requires_grad=True), kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        kl.copy(y, x)

    def alive() -> set[int]:
        return {id(found) for found in gc.get_objects() if isinstance(found, Adjoints)}

    gc.collect()
    gc.disable()
    try:
        before = alive()  # what the error of another test has kept, for instance
        tape.backward(grads={y: kl.ones(4)})
        assert alive() <= before
    finally:
        gc.enable()


def test_a_cotangent_of_an_input_adds_to_what_comes_from_the_others() -> None:
    x, y = leaf(1, 2, 3), result(2)
    with kl.Tape() as tape:
        square[2](x[:2], y)
    for times in (1, 2):
        tape.backward(grads={x: [10, 20, 30], y: [1, 1]})
        assert gradient(x) == [12 * times, 24 * times, 30 * times]
        assert gradient(y) == [1, 1]


def test_cotangents_of_overlapping_parts_of_an_input_add_up() -> None:
    x, y = leaf(1, 2, 3), result(3)
    with kl.Tape() as tape:
        square[3](x, y)
    tape.backward(grads={x[1:]: [10, 20], y: [1, 1, 1], x[:2]: [100, 200]})
    assert gradient(x) == [102, 214, 26]


def test_a_cotangent_of_what_the_tape_has_not_read_is_refused_beside_others_too() -> None:
    x, y, other = leaf(1, 2), result(2), leaf(1, 2)
    with kl.Tape() as tape:
        square[2](x, y)
    with pytest.raises(kl.TapeError, match="did not see how"):
        tape.backward(grads={other: [1, 1], y: [1, 1]})
    with pytest.raises(kl.TapeError, match="`x` is only read on this tape, and not computed"):
        tape.backward(grads={x: [1, 1]})


def test_a_recorded_launch_leaves_few_objects_for_the_collector_to_visit() -> None:
    def run(count: int) -> None:
        x = leaf(1, 2, 3)
        for _ in range(count):
            y = result(3)
            square[3](x, y)
            x = y

    with kl.Tape():
        run(100)
        gc.collect()
        before = len(gc.get_objects())
        run(1000)
        gc.collect()
        assert len(gc.get_objects()) - before <= 5 * 1000 + 200


def test_a_warm_backward_of_one_record_passes_few_modules_and_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kl.config, "kept_memory", 1 << 30)  # else a launch asks, now and then, what is free
    tape, y = recorded(kl.compile(TEXT)["eighth"])
    ones = {y: kl.ones_like(y)}
    tape.backward(grads=ones)
    tape.zero()
    modules, functions = walked(lambda: tape.backward(grads=ones))
    assert modules <= 12 and functions <= 60


def test_buffers_that_serve_again_start_from_zero() -> None:
    x, y, z = leaf(1, 2), result(2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
        square[2](y, z)
    for times in range(1, 5):
        tape.backward(grads={z: [1, 1]})
        assert gradient(x) == [times * 4, times * 32] and gradient(y) == [2, 8]


def test_a_gradient_is_no_buffer_of_a_later_backward_pass() -> None:
    x, y = leaf(1, 2), result(2)
    with kl.Tape() as tape:
        square[2](x, y)
    tape.backward(grads={y: [1, 1]})
    first = x.grad
    for _ in range(3):
        x.grad = None
        tape.backward(grads={y: [10, 10]})
    assert first is not None and first.list() == [2, 4] and gradient(x) == [20, 40]


def test_a_gradient_that_a_function_keeps_is_not_used_again() -> None:
    x, y, z, kept = leaf(1, 2), result(2), result(2), []
    with kl.Tape() as tape:
        square[2](x, y)
        tape.record_func(lambda: kept.append(y.grad), [y])
        square[2](y, z)
    for _ in range(4):
        tape.backward(grads={z: [1, 1]})
    assert len({one.ptr for one in kept}) == len(kept)


PRODUCT = """
def product(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * w[i]
"""


@pytest.mark.parametrize("change", ["nothing", "read twice", "overwritten", "shared", "a seed"])
def test_a_gradient_that_is_there_is_added_to_whatever_else_happens_to_its_array(change: str) -> None:
    product = kl.compile(PRODUCT)["product"]
    x, w, y, z = leaf(1, 2), leaf(3, 4), result(2), result(2)
    if change == "shared":
        x.grad = w.grad = kl.zeros(2)
    with kl.Tape() as tape:
        product[2](x, w, y)
        product[2](y, x if change == "read twice" else y, z)
        if change == "overwritten":
            x.fill_(7.0)
    grads = {z: [1, 1], x: [10, 10]} if change == "a seed" else {z: [1, 1]}
    for times in (1, 2, 3):
        tape.backward(grads=grads)
        of_x, of_w = (2 * 3 * 3, 2 * 2 * 4 * 4), (2 * 3 * 1, 2 * 4 * 2 * 2)
        if change == "read twice":
            of_x, of_w = (2 * 3, 2 * 2 * 4), (1, 4)
        if change == "a seed":
            of_x = (of_x[0] + 10, of_x[1] + 10)
        if change == "shared":
            of_x = of_w = (of_x[0] + of_w[0], of_x[1] + of_w[1])
        assert gradient(x) == [times * one for one in of_x]
        assert gradient(w) == [times * one for one in of_w]


ADDED_ONCE = {
    "z[i] = 2.0 * x[i]": True,
    "z[i] = dot(v[i], v[i])": True,
    "for k in range(3):\n    z[i] += a[i, k]": True,
    "for k in range(3):\n    for j in range(n):\n        z[i] += c[i, k, j]": True,
    "z[i] = v[i].x * v[i].y": True,
    "for k in range(3):\n    z[i] += x[i]": False,
    "for k in range(3):\n    z[i] += a[i, k] * a[i, 1]": False,
    "for k in range(3):\n    z[i] += a[i, k // 2]": False,
    "for k in range(3):\n    for j in range(n):\n        z[i] += a[i, j]": False,
    "z[i] = x[i] * x[i - 1]": False,
    "z[i] = x[n]": False,
    "for k in range(3):\n    z[i] += a[k, 1]": False,
    "k = n\nwhile k > 0:\n    k -= 1\n    z[i] += a[i, k]": False,
}
"""Bodies of kernels, and whether the adjoint adds at most once to each element of what they read."""


@pytest.mark.parametrize("body", ADDED_ONCE)
def test_adjoints_that_add_once_to_each_element_are_known(body: str) -> None:
    params = "x: array[float], v: array[vec3], a: array2d[float], c: array3d[float], n: int, z: array[float]"
    kernel, threads = kl.compile(f"def f({params}):\n    i = tid()\n" + indent(body, "    "))["f"], 4096
    rng = np.random.default_rng(1)
    given = [
        kl.array(rng.random((threads, *shape)), dtype=dtype, requires_grad=True)
        for shape, dtype in (((), float), ((3,), kl.vec3), ((3,), float), ((3, 2), float))
    ]
    z = kl.zeros(threads, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, threads, [*given, 2], [z])
    assert bool(tape.launches[0].added_once) == ADDED_ONCE[body]
    found = []
    for _ in range(2):
        tape.backward(grads={z: kl.ones(threads)})
        found.append([one.grad.numpy().copy() for one in given if one.grad is not None])
    assert any(each.any() for each in found[0])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(2 * one, two)


def test_a_gradient_of_which_a_part_was_added_when_a_launch_failed_is_nan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, seed = leaf(*range(5000)), result(5000), np.ones(5000)
    with kl.Tape() as tape:
        square[5000](x, y)
    tape.backward(grads={y: seed})
    pull = LaunchRecord.pull

    def interrupted(record: LaunchRecord, adjoints: Adjoints, level: Level) -> None:
        pull(record, adjoints, level)
        raise KeyboardInterrupt

    monkeypatch.setattr(LaunchRecord, "pull", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tape.backward(grads={y: seed})
    assert np.isnan(gradient(x)).all()


def test_python_looks_for_garbage_in_functions_of_the_user_and_not_in_a_sweep() -> None:
    x, y, seen = leaf(1, 2, 3), result(3), []

    def look() -> None:
        seen.append(gc.isenabled())

    def work(x: kl.array) -> kl.array:
        look()
        return kl.clone(x)

    with kl.Tape() as tape:
        square[3](x, y)
        tape.record_func(look, [y])
        z = kl.checkpoint(work, y)
    tape.backward(grads={z: kl.ones(3)})
    AHEAD.wait(60)  # builds put the search off, too
    for wanted in (True, False):
        (gc.enable if wanted else gc.disable)()
        try:
            tape.backward(grads={z: kl.ones(3)})
            assert seen[-2:] == [wanted, wanted]
            assert gc.isenabled() == wanted
        finally:
            gc.enable()


def test_a_copy_of_what_has_no_gradients_ends_those_of_what_it_overwrites() -> None:
    kernels = kl.compile(
        "def squared(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * x[i]\n"
        "def added(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = y[i] + x[i]\n"
    )
    x, constant = kl.array([1.0, 2.0], requires_grad=True), kl.array([5.0, 6.0])
    y = kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels["squared"], 2, [x, y])
        kl.copy(y, constant)
        kl.launch(kernels["added"], 2, [x, y])
    tape.backward(grads={y: kl.ones(2)})
    assert x.grad.list() == [1.0, 1.0]


# ------------------------------------------------------------------------------------------ inputs in parts

PARTS = """
@struct
class Body:
    x: vec3
    flag: int
    m: float

@struct
class Floats:
    x: vec3
    m: float

def energy(bodies: array[Body], e: array[float]):
    i = tid()
    e[i] = bodies[i].m * dot(bodies[i].x, bodies[i].x)

def energy_of_floats(bodies: array[Floats], e: array[float]):
    i = tid()
    e[i] = bodies[i].m * dot(bodies[i].x, bodies[i].x)

@struct
class Charged:
    x: vec3
    m: float
    charge: float

def weight(bodies: array[Charged], e: array[float]):
    i = tid()
    e[i] = 3.0 * bodies[i].m * bodies[i].x[1]

def twice(bodies: array[Floats], e: array[float]):
    i = tid()
    e[i] = 0.5 * bodies[i].m * dot(bodies[i].x, vec3(bodies[0].m)) + 9.0 * bodies[i].m

def product(a: array[float], b: array[float], e: array[float]):
    i = tid()
    e[i] = a[i] * b[i]
"""


@pytest.mark.parametrize(("name", "struct"), [("energy", "Body"), ("energy_of_floats", "Floats")])
@pytest.mark.parametrize("n", [5, 6000, 70_000])
@pytest.mark.parametrize("passes", [1, 3])
def test_gradients_of_the_fields_of_structs_add_up(name: str, struct: str, n: int, passes: int) -> None:
    kernels = kl.compile(PARTS)
    bodies = kl.zeros(n, kernels[struct], requires_grad=True)
    x, m = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3) % 8, np.arange(n, dtype=np.float32) % 8
    bodies["x"].assign(x)
    bodies["m"].assign(m)
    e = kl.zeros(n, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernels[name], n, [bodies, e])
    for _ in range(passes):
        tape.backward(grads={e: kl.ones(n)})
    np.testing.assert_array_equal(bodies["x"].grad.numpy(), passes * 2 * m[:, None] * x)
    np.testing.assert_array_equal(bodies["m"].grad.numpy(), passes * (x * x).sum(1))


@pytest.mark.parametrize("n", [5, 70_000])
def test_a_gradient_of_a_field_that_is_not_read_stays_as_it_is(n: int) -> None:
    kernels = kl.compile(PARTS)
    bodies, e = kl.zeros(n, kernels["Charged"], requires_grad=True), kl.zeros(n, requires_grad=True)
    bodies["x"].fill_(1.0)
    bodies["m"].grad.fill_(1.0)
    bodies["charge"].grad.fill_(-0.0)
    with kl.Tape() as tape:
        kl.launch(kernels["weight"], n, [bodies, e])
    tape.backward(grads={e: kl.ones(n)})
    assert bodies["m"].grad.list() == [4.0] * n
    assert np.signbit(bodies["charge"].grad.numpy()).all()


def added_in_place(tape: kl.Tape) -> int:
    """The arrays of the only launch of a tape to whose gradients its adjoint may add."""
    return len(tape.launches[0].added_once)


@pytest.mark.parametrize(
    ("name", "struct", "count"),
    [("energy_of_floats", "Floats", 2), ("weight", "Charged", 2), ("twice", "Floats", 0)],
)
def test_large_launches_add_to_the_fields_of_structs_in_place(name: str, struct: str, count: int) -> None:
    """All of what they add to, or nothing: an element that is added to twice is rounded in another order."""
    kernels, n = kl.compile(PARTS), 1 << 16
    bodies, e = kl.zeros(n, kernels[struct], requires_grad=True), kl.zeros(n, requires_grad=True)
    bodies["x"].fill_(3.0)
    with kl.Tape() as tape:
        kl.launch(kernels[name], n, [bodies, e])
    assert added_in_place(tape) == count
    for passes in (1, 2, 3):
        tape.backward(grads={e: kl.ones(n)})
        assert set(bodies["m"].grad.list()) == {passes * {"energy_of_floats": 27.0}.get(name, 9.0)}


@pytest.mark.parametrize("part", [4, 70_000])
@pytest.mark.parametrize("begin", [0, 2, 4])
def test_gradients_of_slices_of_one_array_add_up(begin: int, part: int) -> None:
    """Slices that have elements in common count these twice; an array that is written later has its own."""
    n, begin = 2 * part, begin * part // 4
    kernels, values = kl.compile(PARTS), np.arange(1.0, n + 1.0, dtype=np.float32) % 8
    x, e = kl.array(values, requires_grad=True), kl.zeros(part, requires_grad=True)
    a, b = slice(0, part), slice(begin, begin + part)
    with kl.Tape() as tape:
        kl.launch(kernels["product"], part, [x[a], x[b], e])
    assert added_in_place(tape) == (2 if begin == part > 4 else 0)
    wanted = np.zeros(n, np.float32)
    wanted[a] += values[b]
    wanted[b] += values[a]
    for count in (1, 2):
        tape.backward(grads={e: kl.ones(part)})
        np.testing.assert_array_equal(x.grad.numpy(), count * wanted)


INSIDE = """
def line(x: array[float], y: array[float]):
    i = tid()
    if i > 1 and i < len(x) - 3:
        y[i] = x[i] * x[i - 1] + x[i + 1]

def sheet(x: array2d[float], y: array2d[float]):
    i, j = tid()
    if i > 0 and j > 2 and i < x.shape[0] - 1 and j < x.shape[1] - 1:
        y[i, j] = x[i - 1, j] * x[i, j + 1]

def block(x: array3d[float], y: array3d[float]):
    i, j, k = tid()
    if i > 0 and j > 0 and k > 0 and k < x.shape[2] - 1:
        y[i, j, k] = x[i - 1, j, k] * x[i, j, k + 1] + x[i, j - 1, k]

def row(x: array2d[float], y: array2d[float]):
    j = tid()
    y[3, j] = x[2, j] * x[3, j]
"""


def inside(name: str, x: Any, y: Any) -> Any:
    """What a kernel of INSIDE leaves in y."""
    y = y.copy()
    match name:
        case "line":
            y[2:-3] = x[2:-3] * x[1:-4] + x[3:-2]
        case "sheet":
            y[1:-1, 3:-1] = x[:-2, 3:-1] * x[1:-1, 4:]
        case "block":
            y[1:, 1:, 1:-1] = x[:-1, 1:, 1:-1] * x[1:, 1:, 2:] + x[1:, :-1, 1:-1]
        case _:
            y[3] = x[2] * x[3]
    return y


@pytest.mark.parametrize(
    ("name", "shape"),
    [("line", (9,)), ("sheet", (6, 8)), ("block", (4, 3, 5)), ("row", (6, 4)), ("row", (4, 5))],
)
@pytest.mark.parametrize("held", [0.0, 2.0])
def test_gradients_of_a_border_add_up_around_what_was_overwritten(
    name: str, shape: tuple[int, ...], held: float
) -> None:
    """The border of y is an input; the gradient of its inside is that of what the launch wrote."""
    kernel, rng = kl.compile(INSIDE)[name], np.random.default_rng(0)
    start, before, seed = (rng.integers(1, 4, shape).astype(np.float32) for _ in range(3))
    x, y, z = (kl.array(values, requires_grad=True) for values in (start, before, before))
    y.grad.fill_(held)
    dim = shape[1] if name == "row" else shape
    with kl.Tape() as tape:
        kl.launch(kernel, dim, [x, y])
        kl.launch(kernel, dim, [y, z])
    written = inside(name, start, np.full(shape, np.nan, np.float32))
    is_written = ~np.isnan(written)

    def loss(a: Any, b: Any) -> Any:
        return (seed * inside(name, inside(name, a, b), before)).astype(np.float64).sum()

    middle = inside(name, start, before)
    wanted_y, wanted_x = np.zeros(shape), np.zeros(shape)
    for index in np.ndindex(*shape):
        step = np.zeros(shape)
        step[index] = 0.5
        ends = [(seed * inside(name, middle + turn * step, before.astype(float))).sum() for turn in (1, -1)]
        wanted_y[index] = ends[0] - ends[1]
        ends = [loss(start + turn * step, before.astype(float)) for turn in (1, -1)]
        wanted_x[index] = ends[0] - ends[1]
    for count in (1, 2):
        tape.backward(grads={z: kl.array(seed)})
        np.testing.assert_array_equal(
            y.grad.numpy(), np.where(is_written, wanted_y, held + count * wanted_y), str(count)
        )
        if name != "sheet":
            np.testing.assert_allclose(x.grad.numpy(), count * wanted_x, 1e-5)
