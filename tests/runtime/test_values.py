"""Vectors, matrices, quaternions and transforms on the host: what kernels mean by them, and NumPy arrays."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import KernelError, KernelTypeError, KernelValueError

arrow = kl.vec3(1.0, 2.0, 3.0)
square = kl.mat22(1.0, 2.0, 3.0, 4.0)
TURN = kl.quat_from_axis_angle(kl.vec3(0.0, 0.0, 1.0), 0.5)
MOVE = kl.transform(kl.vec3(1.0, 2.0, 3.0), TURN)
INTS = kl.vec3i(4, 6, 8)

CALCULATIONS: list[tuple[str, Any]] = [
    ("arrow + arrow", kl.vec3(2.0, 4.0, 6.0)),
    ("arrow - kl.vec3(1.0)", kl.vec3(0.0, 1.0, 2.0)),
    ("-arrow", kl.vec3(-1.0, -2.0, -3.0)),
    ("+arrow", arrow),
    ("arrow * 2", kl.vec3(2.0, 4.0, 6.0)),
    ("0.5 * arrow", kl.vec3(0.5, 1.0, 1.5)),
    ("np.float64(0.5) * arrow", kl.vec3(0.5, 1.0, 1.5)),
    ("arrow * np.float32(0.5)", kl.vec3(0.5, 1.0, 1.5)),
    ("arrow / 2.0", kl.vec3(0.5, 1.0, 1.5)),
    ("INTS * 2", kl.vec3i(8, 12, 16)),
    ("INTS // 3", kl.vec3i(1, 2, 2)),
    ("-INTS // 3", kl.vec3i(-2, -2, -3)),
    ("INTS / 2", kl.vec3(2.0, 3.0, 4.0)),
    ("24 / INTS", kl.vec3(6.0, 4.0, 3.0)),
    ("INTS % 4", kl.vec3i(0, 2, 0)),
    ("INTS % kl.vec3i(3, 4, 5)", kl.vec3i(1, 2, 3)),
    ("kl.max(arrow, kl.vec3(3.0, 0.0, 0.0), kl.vec3(2.5))", kl.vec3(3.0, 2.5, 3.0)),
    ("INTS // kl.vec3i(4, 5, 6)", kl.vec3i(1, 1, 1)),
    ("kl.types.vector(2, kl.int64)(3, 4) / 2", kl.vec2d(1.5, 2.0)),
    ("kl.types.matrix((2, 2), int)(1, 2, 3, 4) // 2", kl.types.matrix((2, 2), int)(0, 1, 1, 2)),
    ("kl.vec3d(arrow) * 2.0", kl.vec3d(2.0, 4.0, 6.0)),
    ("square * square", kl.mat22(7.0, 10.0, 15.0, 22.0)),
    ("square @ square", kl.mat22(7.0, 10.0, 15.0, 22.0)),
    ("square * kl.vec2(1.0, 2.0)", kl.vec2(5.0, 11.0)),
    ("square @ kl.vec2(1.0, 2.0)", kl.vec2(5.0, 11.0)),
    ("kl.vec2(1.0, 2.0) * square", kl.vec2(7.0, 10.0)),
    ("2.0 * square - square", square),
    ("kl.quat(1.0, 0.0, 0.0, 0.0) * kl.quat(0.0, 1.0, 0.0, 0.0)", kl.quat(0.0, 0.0, 1.0, 0.0)),
    ("MOVE * kl.transform_identity()", MOVE),
    ("sum([arrow, arrow])", kl.vec3(2.0, 4.0, 6.0)),
    ("kl.cross(kl.vec3(1.0, 0.0, 0.0), kl.vec3(0.0, 1.0, 0.0))", kl.vec3(0.0, 0.0, 1.0)),
    ("kl.normalize(kl.quat(0.0, 0.0, 0.0, 2.0))", kl.quat_identity()),
    ("kl.types.vector(5, float)(1.0) + kl.types.vector(5, float)(1.0)", kl.vec5(2.0)),
]


@pytest.mark.parametrize(("text", "result"), CALCULATIONS, ids=[text for text, _ in CALCULATIONS])
def test_operators_are_those_of_the_language(text: str, result: Any) -> None:
    found = eval(text)
    assert found == result
    assert found.type == result.type


@kl.kernel
def compose(q: kl.quat, t: kl.transform, m: kl.mat22, v: kl.vec2, turned: kl.array[kl.quat],
            moved: kl.array[kl.transform], product: kl.array[kl.vec2]):  # fmt: skip
    turned[0] = q * q
    moved[0] = t * t
    product[0] = m * v


def test_a_kernel_and_the_host_agree_about_products() -> None:
    turned, moved = kl.zeros(1, dtype=kl.quat), kl.zeros(1, dtype=kl.transform)
    product = kl.zeros(1, dtype=kl.vec2)
    v = kl.vec2(5.0, 6.0)
    kl.launch(compose, 1, [TURN, MOVE, square, v], [turned, moved, product])
    np.testing.assert_allclose(turned[0], TURN * TURN, rtol=1e-6)
    np.testing.assert_allclose(moved[0], MOVE * MOVE, rtol=1e-6)
    assert product[0] == square * v


REFUSED: list[tuple[str, type[KernelError], str]] = [
    ("arrow * arrow", KernelTypeError, r"\* does not take vec3 and vec3(.|\n)*kl.dot"),
    ("arrow + 1.0", KernelTypeError, r"\+ does not take vec3 and 1.0(.|\n)*kl.vec3\(1.0\)"),
    ("1.0 - arrow", KernelTypeError, r"- does not take 1.0 and vec3"),
    ("arrow + kl.vec2(1.0, 2.0)", KernelTypeError, r"\+ does not take vec3 and vec2"),
    ("arrow * kl.vec3d(1.0)", KernelTypeError, r"\* does not take vec3 and vec3d"),
    ("arrow @ arrow", KernelTypeError, r"@ does not take vec3 and vec3(.|\n)*kl.dot"),
    ("TURN @ TURN", KernelTypeError, r"@ does not take quat and quat(.|\n)*write \*"),
    ("MOVE * arrow", KernelTypeError, r"transform_point"),
    ("arrow**2", KernelTypeError, r"\*\* does not take vec3 and 2"),
    ("INTS * 2.5", KernelTypeError, r"2.5 cannot stand for int32"),
    ("arrow * True", KernelTypeError, r"True cannot stand for float32"),
    ("kl.vec2(1.0).z", KernelError, r"vec2 has no z(.|\n)*it has x, y"),
    ("square.x", KernelError, r"mat22 has no x"),
    ("arrow + 'a'", KernelTypeError, r"\+ does not take vec3 and a str"),
    ("arrow - None", KernelTypeError, r"- does not take vec3 and None"),
    ("arrow + (1.0, 2.0, 3.0)", KernelTypeError, r"vec3 and a tuple(.|\n)*kl.vec3\(...\)"),
    ("square * np.ones(2)", KernelTypeError, r"\* of a mat22 and a NumPy array could mean two things"),
    ("np.ones(3) * arrow", KernelTypeError, r"np.asarray\(v\) for component by component"),
    ("INTS // 0", kl.KernelZeroDivisionError, "integer division by zero"),
    ("INTS % kl.vec3i(2, 0, 2)", kl.KernelZeroDivisionError, "integer division by zero"),
    ("kl.mod(INTS, kl.vec3i(2, 0, 2))", kl.KernelZeroDivisionError, "integer division by zero"),
    ("kl.mod(7, 0)", kl.KernelZeroDivisionError, "integer division by zero"),
    ("INTS // 2.0", KernelTypeError, r"// does not take vec3i and 2.0"),
    ("INTS % kl.vec2i(1, 2)", KernelTypeError, r"% does not take vec3i and vec2i"),
    ("kl.vec3ub(1) * 300", KernelValueError, r"300 does not fit uint8"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_what_the_language_has_not_is_refused(text: str, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        eval(text)


def test_components_are_read_by_letter_index_and_slice() -> None:
    assert (arrow.x, arrow.y, arrow.z, TURN.w) == (1.0, 2.0, 3.0, TURN[3])
    assert arrow.zx == kl.vec2(3.0, 1.0)
    assert (arrow[0], arrow[-1]) == (1.0, 3.0)
    assert arrow[1:] == kl.vec2(2.0, 3.0)
    assert (square[0], square[1, 0], square[:, 1]) == (kl.vec2(1.0, 2.0), 3.0, kl.vec2(2.0, 4.0))
    assert (MOVE.p, MOVE.q) == (arrow, TURN)
    assert (len(arrow), list(arrow), list(square)) == (3, [1.0, 2.0, 3.0], [square[0], square[1]])


def test_rows_and_columns_of_a_matrix_are_read_and_set_by_methods_too() -> None:
    m = kl.mat22(1.0, 2.0, 3.0, 4.0)
    m.set_row(0, kl.vec2(5.0, 6.0))
    m.set_col(1, (7.0, 8.0))
    assert m == kl.mat22(5.0, 7.0, 3.0, 8.0)
    assert m.get_row(1) == kl.vec2(3.0, 8.0) and m.get_col(0) == kl.vec2(5.0, 3.0)
    with pytest.raises(KernelValueError, match="cannot be set to numbers of shape"):
        m.set_row(0, (1.0, 2.0, 3.0))


def test_components_are_set_by_letter_index_and_slice() -> None:
    v, m, t = kl.vec3(), kl.mat22(), kl.transform()
    v.x, v[1] = 1.0, 2
    v.zy = v[:2]
    m[0, 1], m[1] = 5.0, kl.vec2(6.0, 7.0)
    m[0].x = 4.0
    t.p, t.q = arrow, TURN
    assert v == (1.0, 2.0, 1.0)
    assert m == [[4.0, 5.0], [6.0, 7.0]]
    assert t == MOVE


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda v: setattr(v, name, value)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (_set("x", "a"), KernelTypeError, "'a' cannot be a component of a vec3i"),
        (_set("x", 2.5), KernelTypeError, "2.5 cannot be a component of a vec3i"),
        (_set("foo", 1), KernelError, "vec3i has no foo"),
        (_set("xy", (1, 2, 3)), ValueError, "."),
        (lambda v: v.__setitem__(slice(0, 2), (1, 2, 3)), KernelValueError, "numbers of shape"),
    ],
)
def test_what_no_component_can_be_is_refused(change: Any, kind: Any, message: str) -> None:
    v = kl.vec3i(1, 2, 3)
    with pytest.raises(kind, match=message):
        change(v)
    assert v == (1, 2, 3)


def test_equality_is_one_bool() -> None:
    assert (arrow == kl.vec3(1.0, 2.0, 3.0)) is True
    assert (arrow != kl.vec3(1.0, 2.0, 3.0)) is False
    assert (arrow == kl.vec3(1.0, 2.0, 4.0)) is False
    assert arrow == (1.0, 2.0, 3.0)
    assert arrow == kl.vec3d(1.0, 2.0, 3.0)
    assert arrow != kl.vec2(1.0, 2.0)
    assert arrow != 1.0
    assert arrow != None  # noqa: E711
    assert kl.vec4(0.0, 0.0, 0.0, 1.0) != kl.quat_identity()
    assert arrow in [square, arrow]


def test_with_an_array_of_numpy_equality_is_element_by_element() -> None:
    assert (arrow == np.array([1.0, 0.0, 3.0])).tolist() == [True, False, True]
    assert (np.array([1.0, 0.0, 3.0]) != arrow).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (arrow, "vec3(1.0, 2.0, 3.0)"),
        (kl.vec2d(0.1, 0.2), "vec2d(0.1, 0.2)"),
        (kl.vec2(0.1, 0.2), "vec2(0.1, 0.2)"),
        (INTS, "vec3i(4, 6, 8)"),
        (square, "mat22([[1.0, 2.0], [3.0, 4.0]])"),
        (kl.quat_identity(), "quat(0.0, 0.0, 0.0, 1.0)"),
    ],
)
def test_a_value_is_shown_as_it_is_written(value: Any, text: str) -> None:
    assert repr(value) == text
    assert eval(f"kl.{text}") == value


def test_a_value_is_formatted_component_by_component() -> None:
    assert (f"{arrow}", f"{arrow:.2f}") == ("[1.0, 2.0, 3.0]", "[1.00, 2.00, 3.00]")


def test_values_are_instances_of_their_types() -> None:
    assert isinstance(arrow, kl.vec3)
    assert not isinstance(arrow, kl.vec3d)
    assert not isinstance(kl.vec4(), kl.quat)
    assert isinstance(TURN, kl.quat)
    assert isinstance(square, kl.mat22)
    assert not isinstance(np.ones(3, np.float32), kl.vec3)


@pytest.mark.parametrize("value", [arrow, square, TURN, MOVE, INTS], ids=str)
def test_copies_and_pickles_are_values(value: Any) -> None:
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value)), value.copy()):
        assert other.type == value.type
        assert other == value
        assert not np.shares_memory(other, value)


def test_an_operator_with_assignment_leaves_the_old_value_to_others() -> None:
    v = kl.vec3(1.0, 2.0, 3.0)
    w = v
    w += arrow
    w *= 2.0
    assert (v, w) == (arrow, kl.vec3(4.0, 8.0, 12.0))


def test_functions_of_numpy_see_and_give_arrays() -> None:
    for found in (
        np.sin(arrow),
        np.stack([arrow, arrow]),
        np.multiply(square, square),
        np.array(arrow),
        np.ones(3) + arrow,
        np.asarray(arrow),
    ):
        assert type(found) is np.ndarray
    assert np.allclose(square @ np.ones(2), [3, 7])
    assert np.linalg.norm(arrow) == pytest.approx(14**0.5)
    assert np.isclose(kl.vec2(np.inf, 1.0), kl.vec2(np.inf, 2.0)).tolist() == [True, False]
    np.testing.assert_array_equal(arrow, kl.vec3(1.0, 2.0, 3.0))


def test_what_numpy_reshapes_is_an_array_again() -> None:
    column = arrow.reshape(3, 1)
    assert repr(column).startswith("array(")
    assert (column * 2.0).tolist() == [[2.0], [4.0], [6.0]]
    assert np.transpose(square).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert square.T.type == kl.mat22


def test_elements_of_an_array_are_values_that_cannot_be_set() -> None:
    x = kl.array([[1, 2, 3]], dtype=kl.vec3)
    assert x[0] == arrow
    assert x.list() == [arrow]
    for change in (_set("x", 1.0), _set("xy", 1.0), lambda v: v.__setitem__(0, 1.0)):
        with pytest.raises(KernelTypeError, match="would not change the array"):
            change(x[0])
    v = x[0].copy()
    v.x = 5.0
    x[0] = v
    assert x[0] == kl.vec3(5.0, 2.0, 3.0)


@kl.struct
class Body:
    velocity: kl.vec3
    turn: kl.quat


def test_fields_of_structs_are_values() -> None:
    body = Body(velocity=arrow, turn=TURN)
    body.velocity.x = 5.0
    body.turn *= TURN
    assert body.velocity == kl.vec3(5.0, 2.0, 3.0)
    assert body.turn == TURN * TURN
    assert arrow.x == 1.0
    held = kl.array([body], dtype=Body)[0]
    assert held.velocity == body.velocity
    with pytest.raises(KernelTypeError, match="would not change the array"):
        held.velocity.x = 1.0
    body.requires_grad = True
    assert (body.velocity, body.grad.turn) == (kl.vec3(5.0, 2.0, 3.0), kl.quat())


def test_arrays_are_made_of_values() -> None:
    assert kl.array([arrow, arrow], dtype=kl.vec3).list() == [arrow, arrow]
    assert kl.full(2, TURN).dtype == kl.quat
    assert kl.full(2, arrow).dtype == kl.vec3
    assert kl.array(arrow, dtype=kl.vec3).shape == (1,)


def test_builtins_take_values_and_arrays_of_numpy() -> None:
    assert kl.dot(arrow, arrow) == 14.0
    assert kl.quat_rotate(np.array([0, 0, 0, 1], np.float32), arrow) == arrow
    with pytest.raises(KernelTypeError, match="takes no"):
        kl.quat_rotate(kl.vec4(0.0, 0.0, 0.0, 1.0), arrow)


def test_numbers_of_builtins_mix_on_the_host_as_in_a_kernel() -> None:
    found = [
        kl.min(1.0, 2),
        kl.max(1, 2.5),
        kl.clamp(3, 0.0, 2),
        kl.lerp(0, 1, 0.5),
        kl.sin(0),
        kl.max(np.int64(3), 2.5),
        kl.min(np.float64(0.5), 2),
        kl.max(np.uint8(1), 2),
        kl.exp(np.int64(0)),
    ]
    assert found == [1.0, 2.5, 2.0, 0.5, 0.0, 3.0, 0.5, 2, 1.0]
    assert [value.dtype.name for value in found] == ["float32"] * 6 + ["float64", "uint8", "float64"]
    assert kl.lerp(kl.vec3d(0.0), kl.vec3d(1.0), 0.5) == kl.vec3d(0.5)


@pytest.mark.parametrize("operands", [(np.float32(1.0), np.float64(2.0)), (True, 2), (1, arrow)])
def test_numbers_of_two_stated_widths_and_truth_values_do_not_mix(operands: tuple[Any, Any]) -> None:
    with pytest.raises(KernelTypeError, match="takes no"):
        kl.min(*operands)


def test_a_number_that_its_type_cannot_hold_is_named() -> None:
    with pytest.raises(KernelValueError, match="300 does not fit uint8"):
        kl.min(np.uint8(1), 300)


@kl.kernel
def turn_all(x: kl.array[kl.vec3]):
    x[0] = kl.quat_rotate(HALF, x[0])


HALF = kl.quat(0.0, 0.0, 1.0, 0.0)


def test_a_kernel_captures_a_value_with_its_type() -> None:
    x = kl.array([[1, 2, 3]], dtype=kl.vec3)
    kl.launch(turn_all, 1, [x])
    assert x[0] == kl.vec3(-1.0, -2.0, 3.0)


@kl.kernel
def count_only(v: kl.vec2h, out: kl.array[int]):
    out[0] = len(v)


def test_a_value_of_halves_is_passed_to_a_kernel_that_does_not_compute_with_it() -> None:
    out = kl.zeros(1, dtype=int)
    kl.launch(count_only, 1, [kl.vec2h(1.0, 2.0), out])
    assert out.list() == [2]


def test_there_is_one_object_for_each_scalar_type_also_of_copies_and_pickles() -> None:
    for scalar in (kl.float32, kl.bfloat16, kl.int8, kl.vec3.scalar):
        assert copy.deepcopy(scalar) is scalar
        assert pickle.loads(pickle.dumps(scalar)) is scalar
        assert type(scalar)(scalar.kind, scalar.bits, scalar.flavor) is scalar


def test_a_transform_moves_nothing_unless_it_is_told_to() -> None:
    assert kl.transform() == kl.transform_identity()
    shifted = kl.transform(kl.vec3(1.0, 2.0, 3.0), kl.quat_identity())
    assert kl.transform(kl.vec3(1.0, 2.0, 3.0)) == kl.transform((1.0, 2.0, 3.0)) == shifted
    assert kl.transform(p=(1.0, 2.0, 3.0)) == shifted
    turned = kl.transform(q=(0.0, 0.0, 1.0, 0.0))
    assert turned.p == kl.vec3() and turned.q == kl.quat(0.0, 0.0, 1.0, 0.0)
    assert kl.transformd(shifted).q == kl.quatd(0.0, 0.0, 0.0, 1.0)
    assert kl.transform(1.5) == kl.transform(*[1.5] * 7)


@pytest.mark.parametrize(
    ("parts", "named", "message"),
    [
        ((1.0, 2.0), {}, "p of a transform is 3 numbers, not 1.0"),
        (((1.0, 2.0, 3.0), 4.0), {}, "q of a transform is 4 numbers, not 4.0"),
        ((), {"p": (1.0, 2.0)}, "p of a transform is 3 numbers"),
        ((), {"pos": (1.0, 2.0, 3.0)}, "takes p and q, each once, not pos"),
        (((1.0, 2.0, 3.0),), {"p": (1.0, 2.0, 3.0)}, "takes p and q, each once, not p"),
        ((1.0,) * 7, {"q": (0.0, 0.0, 0.0, 1.0)}, "its numbers, or p and q, not both"),
        ((1.0, 2.0, 3.0), {}, "takes 0, 1 or 7 components, not 3"),
    ],
)
def test_wrong_parts_of_a_transform_are_refused(parts: Any, named: Any, message: str) -> None:
    with pytest.raises(kl.KernelTypeError, match=message):
        kl.transform(*parts, **named)


def test_operations_that_change_what_they_are_given_do_so_on_the_host() -> None:
    t = kl.transform()
    kl.transform_set_translation(t, kl.vec3(1.0, 2.0, 3.0))
    kl.transform_set_rotation(xform=t, q=kl.quat(0.0, 0.0, 1.0, 0.0))
    assert t == kl.transform(kl.vec3(1.0, 2.0, 3.0), kl.quat(0.0, 0.0, 1.0, 0.0))
    a = kl.mat33(2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 4.0)
    u, sigma, v = kl.mat33(), kl.vec3(), kl.mat33()
    kl.svd3(a, u, sigma, v)
    assert (u, sigma, v) == kl.svd3(a)


def test_what_an_operation_cannot_change_is_refused() -> None:
    with pytest.raises(kl.KernelTypeError, match="svd3 fills a vec3, not a Matrix"):
        kl.svd3(kl.mat33(1.0), kl.mat33(), kl.mat33(), kl.mat33())
    with pytest.raises(kl.KernelTypeError, match="which the host cannot, not a float"):
        kl.quat_to_axis_angle(kl.quat_identity(), kl.vec3(), 0.0)
    with pytest.raises(kl.KernelTypeError, match="a copy of an element"):
        kl.transform_set_translation(kl.zeros(1, dtype=kl.transform)[0], kl.vec3(1.0))


def test_a_number_is_an_instance_of_its_type() -> None:
    assert isinstance(kl.float32(1.0), kl.float32) and not isinstance(kl.float32(1.0), kl.float64)
    assert isinstance(arrow.x, kl.float32) and isinstance(INTS[0], kl.int32)
    assert isinstance(kl.bfloat16(1.0), kl.bfloat16) and not isinstance(kl.bfloat16(1.0), kl.float16)
    assert not isinstance(1.0, kl.float32)


def test_components_are_set_once_each() -> None:
    v = kl.vec3(1.0, 2.0, 3.0)
    v.zx = kl.vec2(5.0, 6.0)
    assert v == (6.0, 2.0, 5.0)
    with pytest.raises(kl.KernelTypeError, match="xx names a component of the vec3 twice"):
        v.xx = kl.vec2(5.0, 6.0)


def test_a_matrix_of_another_shape_and_none_are_refused() -> None:
    for matrix in (np.ones((3, 2)), kl.mat32(), kl.mat22()):
        with pytest.raises(kl.KernelTypeError, match="mat23 takes no matrix of"):
            kl.mat23(matrix)
    assert kl.mat23(np.arange(6)).shape == (2, 3)
    with pytest.raises(kl.KernelTypeError, match="cannot be the components of a vec3"):
        kl.vec3(None, 0.0, 0.0)


def test_the_least_integer_fits_whatever_it_comes_from() -> None:
    least = -(2**63)
    assert kl.array([float(least)], dtype=kl.int64).list() == [least]
    assert kl.int64(np.float64(least)) == kl.int64(np.int64(least)) == least
