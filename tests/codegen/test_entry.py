"""The launch ABI: where arguments stand, and where threads are."""

from kernelab.codegen.cpp.entry import Param, layout_of, slots_of, thread_position
from kernelab.lang.types import Array, Mat, Vec, float32, float64, int32
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels


def test_the_grid_comes_first_then_the_parameters_in_order() -> None:
    layout = layout_of(kernels.search().function)
    assert layout.params == (
        Param("x", Array(float32, 2), 4, 5),
        Param("y", Array(int32, 1), 9, 3),
        Param("t", float32, 12, 1),
    )
    assert layout.slots == 13


def test_a_value_takes_a_slot_for_each_component() -> None:
    assert [slots_of(type) for type in (float64, Vec(float32, 3), Mat(float32, 2, 3))] == [1, 3, 6]


def test_what_a_function_appends_to_takes_three_slots() -> None:
    layout = layout_of(kernels.appending())
    assert [(p.name, p.residual, p.slots) for p in layout.params] == [
        ("x", False, 3),
        ("kept", True, 3),
        ("flags", True, 3),
    ]


def test_a_device_finds_its_arena_after_the_parameters() -> None:
    layout = layout_of(kernels.saving().function)
    assert (layout.arena, layout.slots) == (11, 13)


def test_scalarising_changes_no_slot() -> None:
    function = kernels.vectors().function
    assert layout_of(scalarise(function)).slots == layout_of(function).slots


def test_one_thread_index_is_the_position_in_the_launch() -> None:
    assert thread_position(17, (3, 4, 2, 1), 1) == (17,)


def test_several_thread_indices_are_the_first_coordinates_of_the_grid() -> None:
    assert thread_position(17, (3, 4, 2, 1), 2) == (2, 0)
    assert thread_position(23, (3, 4, 2, 1), 3) == (2, 3, 1)
