"""`gradcheck_tape` starts extrema away from ties, tells nothing of its own passes, sees wrong products."""

from typing import Any

import pytest

import kernelab as kl
from kernelab.autodiff.checks.endtoend import Pulled
from kernelab.autodiff.records.adjoint_buffers import Adjoints

kernels: dict[str, Any] = kl.compile("""
def largest(x: array[float], y: array[float]):
    i = tid()
    atomic_max(y, 0, x[i])

def smallest(x: array[float], y: array[float]):
    i = tid()
    atomic_min(y, 0, x[i])

def grow(x: array[float], y: array[float]):
    i = tid()
    y[i] = y[i] * y[i] + x[i]
""")
VIEWS = {"apart": (slice(0, 1), slice(1, 2)), "overlapping": (slice(0, 2), slice(1, 3))}


def leaf(*values: float) -> kl.array:
    return kl.array(values, dtype=float, requires_grad=True)


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize(("name", "start"), [("largest", -1e3), ("smallest", 1e3)])
def test_extrema_in_two_views_of_one_array_are_checked_away_from_ties(
    name: str, start: float, views: str
) -> None:
    x, z, y = leaf(1.0, 3.0, 2.0), leaf(2.5, 5.0, 0.5), leaf(start, start, start)
    first, second = VIEWS[views]
    with kl.Tape() as tape:
        kernels[name][3](x, y[first])
        kernels[name][3](z, y[second])
    assert kl.autograd.gradcheck_tape(tape, raise_exception=False)


def test_a_true_tie_of_two_launches_is_still_found() -> None:
    x, z, y = leaf(1.0, 3.0), leaf(3.0, 2.0), leaf(-1e3, -1e3)
    with kl.Tape() as tape:
        kernels["largest"][2](x, y[0:1])
        kernels["largest"][2](z, y[0:2])
    assert not kl.autograd.gradcheck_tape(tape, raise_exception=False)


def test_a_check_tells_nothing_of_its_own_passes(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = leaf(1.0, 3.0, 2.0), kl.array([1.0, 2.0, 3.0], dtype=float)
    with kl.Tape(overwrite="save") as tape:
        kernels["grow"][3](x, y)
        kernels["grow"][3](x, y)
    for _ in range(2):
        kl.autograd.gradcheck_tape(tape, raise_exception=False)
    assert "earlier pass" not in capsys.readouterr().err


def test_a_wrong_product_of_right_launches_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adjoints of reversed views in the wrong order, alike in both engines: no launch alone shows it."""
    of = Adjoints.of

    def in_storage_order(self: Adjoints, primal: kl.array) -> kl.array:
        reversed_view = primal.ndim == 1 and primal.strides[0] < 0
        return of(self, primal[::-1] if reversed_view else primal)

    x, y, z = leaf(1.0, 3.0, 2.0), leaf(0.0, 0.0, 0.0), leaf(0.0, 0.0, 0.0)
    with kl.Tape() as tape:
        kernels["grow"][3](x, y)
        kernels["grow"][3](y[::-1], z)
    assert kl.autograd.gradcheck_tape(tape, raise_exception=False)
    monkeypatch.setattr(Adjoints, "of", in_storage_order)
    monkeypatch.setattr(Pulled, "agrees_with", lambda self, swept: True)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None and "their product is not the derivative" in bad.reason
