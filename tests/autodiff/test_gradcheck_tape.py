"""The gradient check of a tape, and what a failed check says of the fault."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError, KernelTypeError

CELL = """
def right(x: array[float], y: array[float]):
    i = tid()
    y[i] = sin(x[i]) * x[i]

def stepped(x: array[float], y: array[float]):
    i = tid()
    y[i] = wrong_cube(x[i])

def add(x: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, x[i])

def bent(x: array[float], y: array[float]):
    i = tid()
    y[i] = abs(x[i])

def doubled(x: array[float]):
    i = tid()
    x[i] = 2.0 * x[i]

def wrong_cube(x: float):
    return x * x * x

@func_grad(wrong_cube, check=False)
def adj_wrong_cube(x: float, adj_ret: float):
    adjoint[x] += 3.03 * x * x * adj_ret
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(CELL)


def reals(n: int) -> Any:
    return kl.array(np.random.default_rng(1).uniform(0.5, 1.5, n), dtype=float, requires_grad=True)


def chain(kernels: dict[str, Any], second: str = "right") -> tuple[Any, list[Any]]:
    x, y, z = reals(4), kl.zeros(4, requires_grad=True), kl.zeros(4, requires_grad=True)
    total = kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][4](x, y)
        kernels[second][4](y, z)
        kernels["add"][4](z, total)
    return tape, [x, y, z, total]


def test_launches_that_are_right_pass_and_nothing_changes(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    tape, arrays = chain(kernels)
    before = [a.numpy().copy() for a in arrays]
    report = kl.autograd.gradcheck_tape(tape)
    assert report
    assert [(c.kernel, c.report.pairs[0].entries) for c in report.launches if c.report] == [
        ("right", 16),
        ("right", 16),
        ("add", 4),
    ]
    assert "PASS  gradcheck of 3 launches on a tape" in capsys.readouterr().out
    for a, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a.numpy(), old)


def test_the_first_bad_launch_is_named(kernels: dict[str, Any]) -> None:
    tape, _ = chain(kernels, "stepped")
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    bad = report.first_bad()
    assert bad is not None
    assert (bad.index, bad.kernel) == (1, "stepped")
    assert bad.report is not None
    assert bad.report.worst().verdict == "both"
    with pytest.raises(GradientError, match=r"(?s)launch 1, of `stepped`.*a custom derivative is wrong"):
        kl.autograd.gradcheck_tape(tape, show_summary=False)


def test_launches_are_chosen_by_the_names_of_kernels(kernels: dict[str, Any]) -> None:
    tape, _ = chain(kernels, "stepped")

    def checked(**options: Any) -> list[int]:
        found = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False, **options)
        return [launch.index for launch in found.launches]

    assert checked(blacklist_kernels=["stepped"]) == [0, 2]
    assert checked(whitelist_kernels=["add", "stepped"]) == [1, 2]
    assert checked(skip_to_launch_index=2) == [2]
    assert checked(skip_to_launch_index=2, reverse_launches=True) == [0]
    assert checked(input_output_masks={"right": [("x", "y")]}) == [0, 1, 2]
    with pytest.raises(GradientError, match="blacklist_kernels names 'other'"):
        checked(blacklist_kernels=["other"])


def test_what_was_overwritten_is_not_checkable_and_what_was_saved_is(kernels: dict[str, Any]) -> None:
    tape, (x, y, *_) = chain(kernels)
    x.fill_(9.0)  # saved by the tape, since the adjoint needs it
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.launches[0].report is not None
    with kl.Tape() as other:
        kernels["doubled"][4](y)
    with pytest.raises(GradientError, match=r"0 pairs checked.*read from `x` has been overwritten"):
        kl.autograd.gradcheck_tape(other, show_summary=False)


def test_only_tapes_are_checked() -> None:
    with pytest.raises(KernelTypeError, match="takes a Tape, not a list"):
        kl.autograd.gradcheck_tape([])


# ------------------------------------------------------------------------------------------ verdicts


def test_a_kink_is_told_from_a_wrong_adjoint(kernels: dict[str, Any]) -> None:
    x = kl.array([1e-12, 1.0], dtype=float, requires_grad=True)
    report = kl.autograd.gradcheck(
        kernels["bent"], 2, [x], [kl.zeros(2)], raise_exception=False, show_summary=False
    )
    assert not report
    assert report.worst().verdict == "both"


def test_the_errors_are_matrices_to_plot(kernels: dict[str, Any]) -> None:
    x = reals(3)
    report = kl.autograd.gradcheck(
        kernels["stepped"], 3, [x], [kl.zeros(3)], raise_exception=False, show_summary=False
    )
    np.testing.assert_allclose(np.diag(report.relative[0, 0].numpy()), 0.01, rtol=1e-3)
    np.testing.assert_allclose(np.diag(report.absolute[0, 0].numpy()), 0.03 * x.numpy() ** 2, rtol=1e-3)


def test_a_function_is_checked_as_a_kernel_is(kernels: dict[str, Any]) -> None:
    def f(x: Any) -> Any:
        y, total = kl.zeros_like(x), kl.zeros(1)
        kernels["right"][3](x, y)
        kernels["add"][3](y, total)
        return y, total

    report = kl.autograd.gradcheck(f, inputs=[reals(3)], show_summary=False)
    assert [(pair.output, pair.entries) for pair in report.pairs] == [("output 0", 9), ("output 1", 3)]
