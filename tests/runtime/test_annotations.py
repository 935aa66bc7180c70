"""Annotations that Python evaluates: array types of every rank, and what stands for any type."""

from typing import Any, Literal

import pytest

import kernelab as kl
from kernelab.lang.types import Array, Mat, Vec, float32, float64


def test_every_rank_can_be_annotated_in_brackets_and_by_a_call() -> None:
    ranked = (kl.array1d, kl.array2d, kl.array3d, kl.array4d)
    assert [rank[float] for rank in ranked] == [Array(float32, n) for n in (1, 2, 3, 4)]
    assert [rank(dtype=kl.vec3) for rank in ranked] == [Array(Vec(float32, 3), n) for n in (1, 2, 3, 4)]
    assert kl.array[float, 3] == kl.array[float, Literal[3]] == Array(float32, 3)


def test_an_annotation_tells_the_type_and_the_rank_of_its_arrays() -> None:
    @kl.struct
    class Node:
        mass: float

    annotations = (
        kl.array2d[kl.vec3],
        kl.array(dtype=int),
        kl.array[Node],
        kl.array3d[Any],
        kl.array(dtype=Any),
    )
    dtypes = (kl.vec3, kl.int32, kl.array[Node].elem, Any, Any)
    assert tuple(one.dtype for one in annotations) == dtypes
    assert [one.ndim for one in annotations] == [2, 1, 1, 3, 1]


def test_an_annotation_in_brackets_makes_a_kernel() -> None:
    @kl.kernel
    def double(a: kl.array2d[float]) -> None:  # type: ignore[valid-type]
        i, j = kl.tid()
        a[i, j] = 2.0 * a[i, j]

    a = kl.ones((2, 2))
    kl.launch(double, dim=(2, 2), inputs=[a])
    assert a.numpy().tolist() == [[2, 2], [2, 2]]
    assert double.key == "double"


@pytest.mark.parametrize(
    "annotation",
    [kl.array(dtype=Any), kl.array[Any], kl.array2d[Any], kl.types.vector(Any, float)],
    ids=str,
)
def test_any_stands_for_several_types(annotation: Any) -> None:
    assert "Any" in str(annotation)


def test_types_say_their_names() -> None:
    assert [type.__name__ for type in (kl.float32, kl.vec3, kl.mat22d)] == ["float32", "vec3", "mat22d"]


def test_questions_about_types() -> None:
    types = kl.types
    assert types.type_size(kl.mat33) == 9 and types.type_size_in_bytes(kl.vec3d) == 24
    assert types.types_equal(float, kl.float32) and not types.types_equal(float, float64)
    assert types.types_equal(kl.array2d[float], kl.array(dtype=float, ndim=2))
    assert types.quaternion(kl.float64) == kl.quatd and types.transformation(float) == kl.transform
    asked = [
        types.type_is_int, types.type_is_float, types.type_is_vector, types.type_is_matrix,
        types.type_is_quaternion, types.type_is_transformation, types.type_is_array,
    ]  # fmt: skip
    given = [kl.int8, float, kl.vec3, Mat(float32, 2, 3), kl.quat, kl.transform, kl.array2d[float]]
    assert [[question(type) for type in given] for question in asked] == [
        [question is other for other in asked] for question in asked
    ]


@kl.struct
class Ball:
    mass: float


class vec5(kl.types.vector(5, float)):  # type: ignore[misc]  # noqa: N801
    """As programs for Warp name a type."""


def test_a_class_that_inherits_from_a_type_is_another_name_of_it() -> None:
    class mat23(kl.types.matrix((2, 3), kl.float64)):  # type: ignore[misc]  # noqa: N801
        pass

    assert vec5 == kl.types.vector(5, float) and mat23 == Mat(float64, 2, 3)

    @kl.kernel
    def fill(x: kl.array[vec5]):  # type: ignore[no-untyped-def]
        v = vec5(2.0)
        v[4] = 3.0
        x[0] = v

    x = kl.zeros(1, dtype=vec5)
    kl.launch(fill, 1, inputs=[x])
    assert x.numpy().tolist() == [[2, 2, 2, 2, 3]] and vec5(1.0)[4] == 1.0


def test_a_class_that_adds_to_a_type_is_refused() -> None:
    with pytest.raises(kl.KernelTypeError, match="Point is another name of vec3, and cannot add size"):

        class Point(kl.vec3):  # type: ignore[misc]
            size = 3

    with pytest.raises(kl.KernelTypeError, match="cannot inherit from several types"):

        class Both(kl.vec3, kl.mat22):  # type: ignore[misc]
            pass


def test_questions_about_values() -> None:
    types = kl.types
    asked = [
        types.is_int, types.is_float, types.is_vector, types.is_matrix, types.is_quaternion,
        types.is_transformation, types.is_array, types.is_struct,
    ]  # fmt: skip
    given = [
        3, 0.5, kl.vec3(), kl.mat22(), kl.quat(), kl.transform(), kl.zeros(2), Ball(),
    ]  # fmt: skip
    assert [[question(value) for value in given] for question in asked] == [
        [question is other for other in asked] for question in asked
    ]
    assert types.is_array(kl.array2d[float]) and not types.is_array(3)
    assert [types.is_scalar(value) for value in given] == [True, True] + 6 * [False]
    assert [types.is_composite(value) for value in given] == 2 * [False] + 4 * [True] + 2 * [False]
    assert [types.is_value(value) for value in given] == 6 * [True] + 2 * [False]
    assert not types.is_int(int) and not types.is_vector(kl.vec3) and types.is_int(kl.int8(1))


def test_vectors_of_unsigned_ints_have_the_name_that_warp_gives_them() -> None:
    assert kl.vec3ui == kl.vec3u and kl.types.type_repr(kl.vec3u) == "vec3ui"
    assert kl.zeros(2, dtype=kl.vec3ui).numpy().dtype == "uint32"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kl.types.vector(3, Ball), "components of a vector or matrix are numbers, not Ball"),
        (lambda: kl.types.vector(3, kl.vec3), "components of a vector or matrix are numbers, not vec3"),
        (lambda: kl.types.vector(2.5, float), "a whole number of components, not 2.5"),
        (lambda: kl.types.matrix(3, float), "two numbers, rows and columns, not 3"),
        (lambda: kl.types.quaternion(int), "made of floats, not of int32"),
    ],
)
def test_types_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(kl.KernelTypeError, match=message):
        make()


@kl.struct
class Cloud:
    weights: kl.array[float]


def test_an_annotation_that_no_kernel_takes_is_refused_by_the_kernel_alone() -> None:
    @kl.kernel
    def weigh(clouds: kl.array[Cloud]) -> None:  # type: ignore[valid-type]
        clouds[0] = Cloud()

    with pytest.raises(kl.KernelTypeError, match="an array cannot hold Cloud: its field weights is an array"):
        kl.launch(weigh, 1, inputs=[None])
