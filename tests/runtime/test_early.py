"""`static(...)` in decorated functions: evaluated once, where the function is defined."""

from typing import Any

import pytest

import kernelab as kl

after = kl.static


def result(kernel: Any) -> float:
    y = kl.zeros(1)
    kl.launch(kernel, 1, [y])
    found: float = y.list()[0]
    return found


def test_kernels_that_a_loop_defines_have_each_the_value_of_their_iteration() -> None:
    kernels = []
    for number in range(3):

        @kl.kernel
        def store(y: kl.array[float]):  # type: ignore[no-untyped-def]
            y[0] = kl.static(10.0 * number)  # noqa: B023

        kernels.append(store)
    assert [result(kernel) for kernel in kernels] == [0.0, 10.0, 20.0]


def test_functions_that_a_loop_defines_do_so_too() -> None:
    functions = []
    for number in range(2):

        @kl.func
        def shifted(x: float):  # type: ignore[no-untyped-def]
            return x + kl.static(float(number))  # noqa: B023

        functions.append(shifted)
    first, second = functions

    @kl.kernel
    def both(y: kl.array[float]):  # type: ignore[no-untyped-def]
        y[0] = 10.0 * first(1.0) + second(1.0)

    assert result(both) == 12.0


def test_an_expression_is_evaluated_once() -> None:
    seen = []

    def counted() -> float:
        seen.append(1)
        return 2.0

    @kl.kernel
    def store(y: kl.array[float]):  # type: ignore[no-untyped-def]
        y[0] = kl.static(kl.static(counted()) + 1.0)

    assert seen == [1]
    assert result(store) == 3.0 and seen == [1]


def test_static_goes_by_any_name() -> None:
    global after

    @kl.kernel
    def store(y: kl.array[float]):  # type: ignore[no-untyped-def]
        y[0] = after(7.0)

    after = print
    try:
        assert result(store) == 7.0
    finally:
        after = kl.static


def test_what_is_not_there_yet_and_what_is_known_in_the_function_wait() -> None:
    @kl.kernel
    def store(y: kl.array[float]):  # type: ignore[no-untyped-def]
        for i in range(3):
            y[0] += kl.static(float(i) * later)

    later = 2.0
    assert result(store) == 6.0


def test_what_cannot_be_evaluated_is_told_when_the_kernel_is_needed() -> None:
    @kl.kernel
    def store(y: kl.array[float]):  # type: ignore[no-untyped-def]
        y[0] = kl.static(1 / 0)

    with pytest.raises(kl.KernelValueError, match=r"static\(...\) raised ZeroDivisionError"):
        result(store)
