"""For every kernel that compiles, both modes are right through all control flow."""

import pytest

from tests.contract.agree import gradients_are_right

X = [0.7, -0.4, 1.3, 0.2, -0.9]


def test_an_if_without_else_keeps_the_value_from_before() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i] * x[i]
    if x[i] > 0.0:
        v = sin(v) * x[i]
    y[i] = v * v
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_both_branches_of_an_if_may_assign_what_is_first_used_after_it() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    if x[i] > 0.5:
        v = x[i] * x[i]
    elif x[i] > 0.0:
        v = cos(x[i])
    else:
        v = x[i] * 3.0
        v = v * v
    y[i] = v * x[0]
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_a_ternary_takes_the_derivative_of_the_side_that_it_took() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i] if x[i] > 0.0 else sin(x[i]) if x[i] > -0.5 else x[i] * x[0]
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_the_right_side_of_and_is_not_evaluated_where_the_left_one_is_false() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i]
    if i > 0 and x[i - 1] > 0.0 or x[i] > 1.0:
        v = v * x[i - 1]
    y[i] = v * v
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_a_loop_with_constant_bounds_carries_a_value() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i]
    for j in range(3):
        v = sin(v) * x[j]
    y[i] = v
"""
    gradients_are_right(text, 2, x=X, y=[0.0] * 2)


def test_a_loop_whose_bound_is_read_from_an_array_runs_any_number_of_times_and_none() -> None:
    text = """
def k(x: array[float64], n: array[int], y: array[float64]):
    i = tid()
    v = x[i]
    for j in range(n[i]):
        v = v * x[j] + 0.5
    y[i] = v * v
"""
    found = gradients_are_right(text, 3, x=X, n=[0, 4, -2], y=[0.0] * 3)
    assert found["x"].any()


def test_a_loop_may_step_by_anything_upwards_and_downwards() -> None:
    text = """
def k(x: array[float64], n: array[int], y: array[float64]):
    i = tid()
    v = x[0]
    for j in range(4, -1, -2):
        v = v * x[j] + 0.3
    for j in range(n[i], 5, 1 + n[i]):
        v = sin(v) * x[j]
    for j in range(n[i], -1, -1):
        v = v * v + x[j]
    y[i] = v
"""
    gradients_are_right(text, 3, x=X, n=[0, 1, 2], y=[0.0] * 3)


def test_the_bounds_of_a_loop_are_taken_once_even_if_what_they_are_made_of_changes() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    n = 2
    v = x[0]
    for j in range(n):
        n = n + 1
        v = v * x[n]
    y[0] = v
"""
    gradients_are_right(text, 1, x=X, y=[0.0])


def test_a_while_loop_runs_as_long_as_its_floats_say() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i] * x[i] + 0.5
    steps = 0
    while v < 9.0 and steps < 20:
        v = v * 1.5 + x[i]
        steps += 1
    y[i] = v * float64(steps)
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_a_break_ends_the_loop_after_what_came_before_it() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i]
    for j in range(5):
        v = v * 1.7
        if abs(v) > 1.5:
            break
        v = v + x[j] * x[j]
    y[i] = v * v
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_a_continue_skips_the_rest_of_an_iteration() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i]
    for j in range(5):
        if x[j] < 0.0:
            continue
        v = v * x[j] + sin(v)
    j = 0
    while j < 4:
        j += 1
        if j % 2 == 0:
            continue
        v = v * x[j]
    y[i] = v
"""
    gradients_are_right(text, 2, x=X, y=[0.0] * 2)


def test_the_else_of_a_loop_runs_where_no_break_left_the_loop() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    s = x[i]
    for a in range(4):
        n = 0
        while n < 3:
            n += 1
            s = s * 0.8 + x[n]
            if s > 0.9:
                found = s * x[n]
                break
        else:
            found = s * s
            if a == i:
                break
            s += 0.3
            continue
        s = s * x[a] + found
    else:
        s = s * 2.0
    y[i] = s * found
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_a_kernel_may_return_from_inside_two_loops() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i]
    for a in range(3):
        for b in range(3):
            v = v * 1.2 + x[b]
            if v > 2.0:
                y[i] = v * v
                return
        v = sin(v)
    y[i] = v
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_a_function_may_return_early_and_from_inside_a_loop() -> None:
    text = """
@func
def first_above(x: array[float64], limit: float64):
    if limit < 0.0:
        return limit * limit
    for j in range(len(x)):
        if x[j] > limit:
            return x[j] * limit
    return sin(limit)

def k(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = first_above(x, x[i] * x[i]) + first_above(x, x[i])
"""
    gradients_are_right(text.replace("@func\n", ""), 5, x=X, y=[0.0] * 5)


def test_an_exit_leaves_its_own_loop_only() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i]
    for a in range(4):
        for b in range(4):
            if b > a:
                break
            if x[b] < 0.0:
                continue
            v = v * x[b] + 0.25
        if v > 1.2:
            continue
        v = v * v
    y[i] = v
"""
    gradients_are_right(text, 3, x=X, y=[0.0] * 3)


def test_loops_nest_four_deep() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    v = x[0]
    for a in range(2):
        v = v + x[a] * x[a]
        for b in range(a + 1):
            v = sin(v)
            for c in range(b, 3):
                v = v * x[c] + 0.5
                for d in range(2):
                    v = v * cos(x[d])
    y[0] = v
"""
    gradients_are_right(text, 1, x=X, y=[0.0])


def test_values_swap_from_iteration_to_iteration() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    a = x[0]
    b = x[1]
    for j in range(6):
        a, b = b, a * x[j % 5] + b
    y[0] = a * b
"""
    gradients_are_right(text, 1, x=X, y=[0.0])


def test_a_value_that_is_first_assigned_inside_a_loop_may_be_used_after_it() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    for j in range(3):
        last = x[j] * x[j]
        if j == 2:
            last = last * x[3]
    y[0] = last * last
"""
    gradients_are_right(text, 1, x=X, y=[0.0])


def test_the_index_of_a_loop_may_be_used_after_it_also_where_it_left_early() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    s = x[i]
    for j in range(5):
        s = s * s + 0.5
        if s > 1.0:
            break
    y[i] = s * x[j] * float64(j)
"""
    gradients_are_right(text, 5, x=X, y=[0.0] * 5)


def test_a_running_maximum_passes_its_gradient_to_the_element_that_it_is() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    best = x[0]
    for j in range(1, 5):
        if x[j] > best:
            best = x[j]
    y[0] = best * best
"""
    found = gradients_are_right(text, 1, x=X, y=[0.0])
    assert [bool(g) for g in found["x"]] == [False, False, True, False, False]


def test_an_index_that_a_loop_found_is_an_integer_carried_to_where_it_is_used() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    where_best = -1
    best = float64(-9.0)
    for j in range(5):
        v = sin(x[j]) + 0.1 * float64(j)
        if v > best:
            best = v
            where_best = j
    y[0] = best * x[where_best] * x[(where_best + 1) % 5]
"""
    gradients_are_right(text, 1, x=X, y=[0.0])


def test_a_bool_that_a_loop_carries_decides_what_happens_later() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    seen = False
    v = x[i]
    for j in range(5):
        if seen:
            v = v * x[j]
        else:
            v = v + x[j] * x[j]
        seen = seen or x[j] < 0.0
    y[i] = v if not seen else v * v
"""
    gradients_are_right(text, 2, x=X, y=[0.0] * 2)


def test_a_recurrence_and_a_product_over_the_elements() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    p = float64(1.0)
    r = float64(0.1)
    for j in range(5):
        p *= x[j]
        r = 1.0 / (1.0 + r * x[j])
    y[0] = p * r
"""
    gradients_are_right(text, 1, x=X, y=[0.0])


def test_newtons_iteration_has_the_derivative_of_the_root() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    r = x[i]
    while abs(r * r - x[i]) > 1e-14 * x[i]:
        r = 0.5 * (r + x[i] / r)
    y[i] = r
"""
    found = gradients_are_right(text, 1, x=[2.0], y=[0.0])
    assert found["x"].any()


def test_a_loop_that_only_counts_leaves_the_gradient_of_what_it_does_not_touch() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    v = x[i] * x[i]
    n = 0
    while n < 7:
        n += 2
    y[i] = v * float64(n)
"""
    found = gradients_are_right(text, 2, x=X, y=[0.0] * 2)
    assert found["x"].any()


@pytest.mark.parametrize("storage", ["save", "recompute", "checkpoint"])
def test_whatever_a_loop_keeps_its_index_and_its_counters_are_those_of_the_iteration(storage: str) -> None:
    text = """
def k(x: array[float64], n: array[int], y: array[float64]):
    i = tid()
    v = x[i]
    t = 9
    for j in range(1, n[i], adjoint="STORAGE"):
        v = v * x[j % 5] + sin(v) * x[t % 5]
        t -= 2
        for l in range(j, adjoint="STORAGE"):
            v = v * cos(x[(l + t) % 5])
    y[i] = v * x[t % 5]
"""
    gradients_are_right(text.replace("STORAGE", storage), 3, x=X, n=[1, 5, 8], y=[0.0] * 3)


def test_grids_of_two_dimensions_and_threads_beyond_the_work_that_return_at_once() -> None:
    text = """
def k(x: array[float64], y: array2d[float64]):
    i, j = tid()
    if i >= 2 or j >= 3:
        return
    y[i, j] = x[i] * x[j] * x[i + j]
"""
    gradients_are_right(text, (3, 4), x=X, y=[[0.0] * 3] * 2)
