"""Harmless programs about rows and parts of arrays: trajectories, slices, colours, fields."""

from typing import Any

import kernelab as kl
from tests.contract.harmless import N, harmless, kernels, loss_of, result, run, trajectory

# ------------------------------------------------------------------------- trajectories


@harmless
def a_trajectory(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("next_row", N, traj, t)
        return loss_of(traj[5])


@harmless
def a_trajectory_of_neighbours(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("next_row_of_neighbours", N, traj, t)
        return loss_of(traj[5])


@harmless
def a_trajectory_of_two_steps_back(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("verlet", N, traj, t)
        return loss_of(traj[5])


@harmless
def a_trajectory_in_one_launch(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        run("all_rows", N, traj, 5)
        return loss_of(traj[5])


@harmless
def a_trajectory_towards_the_start(x: Any, tape: kl.Tape) -> Any:
    traj = result((6, N))
    with tape:
        kl.copy(traj[5], x)
        run("all_rows_backwards", N, traj, 5)
        return loss_of(traj[0])


@harmless
def a_flat_trajectory(x: Any, tape: kl.Tape) -> Any:
    traj = result(6 * N)
    with tape:
        kl.copy(traj, x, count=N)
        for t in range(5):
            run("next_flat", N, traj, t, N)
        return loss_of(traj[5 * N :])


@harmless
def a_trajectory_by_slices(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for t in range(5):
            run("square", N, traj[t], traj[t + 1])
        return loss_of(traj[5])


@harmless
def a_trajectory_of_columns(x: Any, tape: kl.Tape) -> Any:
    traj = result((N, 6))
    with tape:
        kl.copy(traj.transpose()[0], x)
        for t in range(5):
            run("next_row", N, traj.transpose(), t)
        return loss_of(traj.transpose()[5])


@harmless
def rows_named_by_the_launch(x: Any, tape: kl.Tape) -> Any:
    with tape:
        traj = trajectory(x, 6)
        for source, target in ((0, 3), (3, 1), (1, 5)):
            run("from_to", N, traj, source, target)
        return loss_of(traj[5])


@harmless
def losses_along_a_trajectory(x: Any, tape: kl.Tape) -> Any:
    loss = result(1)
    with tape:
        traj = trajectory(x, 4)
        for t in range(3):
            run("next_row", N, traj, t)
            run("total_of_row", N, traj, t + 1, loss)
    return loss


# ------------------------------------------------------------------------- parts of arrays


@harmless
def disjoint_slices(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        run("square", N, x, y[:N])
        run("square", N, y[:N], y[N:])
        return loss_of(y[N:])


@harmless
def interleaved_slices(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        run("square", N, x, y[::2])
        run("square", N, y[::2], y[1::2])
        return loss_of(y[1::2])


@harmless
def disjoint_columns_of_a_transpose(x: Any, tape: kl.Tape) -> Any:
    with tape:
        table = result((N, 3))
        columns = table.transpose()
        run("square", N, x, columns[0])
        run("square", N, columns[0], columns[1])
        run("square", N, columns[1], columns[2])
        return loss_of(columns[2])


@harmless
def odd_elements_that_make_even_ones(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        kl.copy(y[1::2], x)
        run("even_from_odd", N, y)
        return loss_of(y[::2])


@harmless
def one_sweep_of_each_colour(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = kl.clone(x)
        run("relax", N // 2, y, 0)
        return loss_of(y)


@harmless
def an_upper_half_from_the_lower(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = result(2 * N)
        kl.copy(y, x, count=N)
        run("upper_from_lower", N, y, N)
        return loss_of(y[N:])


@harmless
def rows_below_the_first(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y = trajectory(x, 3)
        run("below_the_first", (3, N), y)
        return loss_of(y.flatten())


@harmless
def other_fields_of_structs(x: Any, tape: kl.Tape) -> Any:
    bodies = kl.zeros(N, dtype=kernels["Body"], requires_grad=True)
    y = result()
    with tape:
        kl.copy(bodies["position"], x)
        run("drift", N, bodies, y)
        run("kick", N, bodies, 3.0)
        bodies["speed"].fill_(2.0)
        return loss_of(y)


@harmless
def elements_outside_of_what_was_read(x: Any, tape: kl.Tape) -> Any:
    with tape:
        y, z = result(2 * N), result()
        kl.copy(y, x, count=N)
        run("square", N, y, z)
        y[N:].fill_(4.0)
        y[N] = 5.0
        return loss_of(z)


@harmless
def counts_without_gradients_beside_sums(x: Any, tape: kl.Tape) -> Any:
    with tape:
        sums, counts, means = result(), kl.zeros(N, dtype=kl.float64), result()
        run("sums_and_counts", N, x, sums, counts)
        run("means", N, sums, counts, means)
        return loss_of(means)
