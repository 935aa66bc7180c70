"""The emitter: what its text looks like, and what it leaves out."""

from collections.abc import Callable

import pytest

import kernelab as kl
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.codegen.cpp.entry import Unit
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.cpp.writer import ordered
from kernelab.lang.ir import Function
from kernelab.lang.types import Array, Scalar, float32, int32
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels
from tests.codegen.writer import LINE, Case, Writer


def unit(*functions: Function) -> Unit:
    return emit([scalarise(function) for function in functions], Cpu())


def body(function: Function) -> list[str]:
    emitted = unit(function)
    return [emitted.lines[k].text.strip() for k in emitted.entries[0].lines]


@pytest.mark.parametrize(
    "case", [kernels.search, kernels.vectors, kernels.transpose, kernels.saving, kernels.three_exits]
)
def test_the_text_of_a_kernel_is_as_it_was(
    case: Callable[[], Case], golden: Callable[[str, str], None]
) -> None:
    function = case().function
    golden(f"cpp_{function.name}", unit(function).text)


def test_the_text_for_a_device_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    functions = [scalarise(case().function) for case in (kernels.search, kernels.counters)]
    golden("cpp_cuda", emit([*functions, kernels.appending()], Cuda()).text)


def test_the_same_function_always_gives_the_same_text() -> None:
    assert unit(kernels.vectors().function).text == unit(kernels.vectors().function).text


def test_every_statement_of_a_line_is_linked_to_it() -> None:
    emitted = unit(kernels.saxpy().function)
    (entry,) = emitted.entries
    linked = [emitted.lines[k].text.strip() for k in entry.lines if emitted.lines[k].span == LINE]
    assert linked[0].startswith("i64 x_i0 = i;")
    assert linked[-1] == "*(float*)y_at = s;"


def test_every_check_has_a_site_with_its_span() -> None:
    (entry,) = unit(kernels.search().function).entries
    assert [site.array for site in entry.sites] == ["x", "x", "y"]
    assert {site.span for site in entry.sites} == {LINE}


def test_an_element_that_is_touched_twice_is_checked_once() -> None:
    text = body(kernels.saxpy().function)
    assert sum("(u64)y_i0 >= y_n0" in line for line in text) == 1


def test_an_index_is_checked_once_for_all_elements_of_its_row() -> None:
    w = Writer("rows", x=Array(float32, 2))
    i, j = w.tid("i", "j")
    w.store(w["x"], [i, j], w.load(w["x"], [i, w.apply("add", j, i)]))
    assert sum("x_n0)" in line and "if (" in line for line in body(w.function())) == 1


def test_a_check_in_a_branch_does_not_count_outside_of_it() -> None:
    w = Writer("branch", x=Array(float32, 1), n=int32)
    (i,) = w.tid("i")

    def store() -> tuple[()]:
        w.store(w["x"], [i], w.load(w["x"], [w["n"]]))
        return ()

    w.select(w.apply("gt", w["n"], i), store, lambda: ())
    w.store(w["x"], [w["n"]], w.load(w["x"], [i]))
    assert sum("fail_index(" in line for line in body(w.function())) == 4


def test_a_stop_that_a_choice_decides_is_a_native_break() -> None:
    text = body(kernels.search().function)
    assert "break;" in text
    assert not any("stop" in line for line in text)


def test_a_stop_that_is_used_after_the_loop_is_kept() -> None:
    text = body(kernels.stop_in_the_middle().function)
    assert any(line.startswith("bool c") for line in text)
    assert any(line.startswith("if (c") and line.endswith("break;") for line in text)


def test_a_short_loop_is_not_polled_and_an_unknown_one_is() -> None:
    text = body(kernels.swapping().function)
    inner = text.index("for (int k_1 = 0; k_1 < 3; ++k_1) {")
    outer = next(n for n, line in enumerate(text) if line.startswith("for (int k = n"))
    assert "poll(status)" in text[outer + 1]
    assert "poll(status)" not in text[inner + 1]


def test_only_the_helpers_that_are_used_are_printed() -> None:
    saxpy, saving = unit(kernels.saxpy().function).text, unit(kernels.saving().function).text
    assert "realloc" not in saxpy
    assert "round16" not in saxpy
    assert "realloc" in saving
    assert "#include" not in saving


def test_numbers_of_16_bits_bring_only_the_conversions_that_are_called() -> None:
    (kernel,) = kl.compile(
        "def copied(x: array[float16], y: array[float]):\n    y[tid()] = float(x[tid()])\n"
    ).values()
    text = unit(kernel.primal).text
    assert "from16(" in text and "to16(" not in text and "round16(" not in text


def test_no_two_entries_share_a_symbol() -> None:
    w = Writer("saxpy_entry", x=Array(float32, 1))
    w.tid("i")
    entries = unit(kernels.saxpy().function, w.function()).entries
    assert len({entry.symbol for entry in entries}) == 2


def test_assignments_at_once_need_a_temporary_only_in_a_cycle() -> None:
    f = float32
    assert moved(("a", "b", f), ("b", "c", f)) == ["a = b", "b = c"]
    assert moved(("b", "a", f), ("c", "b", f)) == ["c = b", "b = a"]
    assert moved(("a", "b", f), ("b", "a", f)) == ["float32 a_old = a", "a = b", "b = a_old"]
    assert moved(("a", "a", f)) == []


def moved(*moves: tuple[str, str, Scalar]) -> list[str]:
    steps = ordered(moves, lambda hint: hint)
    return [f"{type or ''} {target} = {value}".strip() for target, value, type in steps]
