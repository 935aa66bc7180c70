"""The gradient check of a tape, and what a failed check says of the fault."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError, KernelTypeError, KernelValueError

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

def stairs(x: array[float], y: array[float]):
    i = tid()
    y[i] = floor(x[i]) + 0.5 * x[i]

def raced(x: array[float], y: array[float]):
    i = tid()
    y[i % 2] = x[i] * x[i]

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
    assert report.whole is not None
    assert (report.whole.entries, report.is_exact) == (4 * (4 + 4 + 1), True)
    assert [(c.kernel, c.covered) for c in report.launches] == [
        ("right", True),
        ("right", True),
        ("add", True),
    ]
    assert "PASS  gradcheck of 3 launches on a tape: end to end" in capsys.readouterr().out
    for a, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a.numpy(), old)


def test_a_tape_that_passes_by_symmetry_alone_names_the_kink(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    x, y, z = kl.array([0.0, 1.0], requires_grad=True), *(kl.zeros(2, requires_grad=True) for _ in "yz")
    with kl.Tape() as tape:
        kernels["doubled"][2](x)
        kernels["bent"][2](x, y)
        kernels["right"][2](y, z)
    report = kl.autograd.gradcheck_tape(tape)
    (bent,) = (launch for launch in report.launches if launch.report is not None)
    assert (bent.record, bent.kernel, bent.passed) == (2, "bent", True)
    told = capsys.readouterr().out
    assert "~ PASS  gradcheck of 3 launches" in told and "but at a kink" in told
    assert "`abs` of 0, in thread 0, has a kink" in told
    x.assign([0.5, 1.0])
    assert kl.autograd.gradcheck_tape(tape, show_summary=False).launches[1].covered


@pytest.mark.parametrize("fast", ["auto", False])
def test_a_tape_that_passes_lists_the_lines_that_have_no_derivative(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str], fast: Any
) -> None:
    x, y = kl.array([0.3, 1.6], requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kernels["stairs"][2](x, y)
    kl.autograd.gradcheck_tape(tape, fast=fast)
    told = capsys.readouterr().out
    assert "PASS" in told
    assert told.count("zero by construction: `floor` has derivative 0") == 1


def test_every_entry_of_every_launch_is_checked_on_request(kernels: dict[str, Any]) -> None:
    tape, _ = chain(kernels)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, fast=False)
    found = [(c.kernel, c.report.pairs[0].entries) for c in report.launches if c.report]
    assert found == [("right", 16), ("right", 16), ("add", 4)]


def test_the_first_bad_launch_is_named(kernels: dict[str, Any]) -> None:
    tape, _ = chain(kernels, "stepped")
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    bad = report.first_bad()
    assert bad is not None
    assert (bad.record, bad.kernel) == (2, "stepped")
    assert bad.report is not None
    assert bad.report.worst().verdict == "custom"
    with pytest.raises(
        GradientError, match=r"(?s)launch 2, of `stepped`.*that a user wrote.*adj_wrong_cube gives"
    ):
        kl.autograd.gradcheck_tape(tape, show_summary=False)


@pytest.mark.parametrize("fast", ["auto", False])
@pytest.mark.parametrize("ends_traced", [True, False])
def test_a_chain_that_is_cut_fails_with_the_words_of_backward(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str], ends_traced: bool, fast: Any
) -> None:
    x, y, total = reals(4), kl.zeros(4), kl.zeros(1, requires_grad=ends_traced)
    with kl.Tape() as tape:
        kernels["right"][4](x, y)
        kernels["add"][4](y, total)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, fast=fast)
    assert [(c.record, c.passed, c.fault) for c in report.launches] == [(1, True, ""), (2, False, "cut")]
    told = "no gradient flows through `y`, read by the launch of `add`: it does not require gradients"
    assert f"launch 2, add: {told}" in capsys.readouterr().out
    with pytest.raises(GradientError, match=f"(?s){told}.*create it with requires_grad=True"):
        kl.autograd.gradcheck_tape(tape, show_summary=False, fast=fast)


@pytest.mark.parametrize("options", [{}, {"fast": False}], ids=str)
def test_a_launch_without_gradients_is_not_said_to_pass(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str], options: Any
) -> None:
    x, y = reals(4), kl.zeros(4)
    with kl.Tape() as tape:
        kernels["right"][4](kl.ones(4), y)
        _loss = (x * y).sum()
    assert kl.autograd.gradcheck_tape(tape, **options)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "test_gradcheck_tape.py" in line]
    assert [row[:4] for row in rows][:2] == [
        ["no", "gradient", "1", "right"],
        ["✓", "pass", "2", "array_mul"],
    ]


FORWARD_ONLY = """
@kernel(enable_backward=False)
def forward_only(x: array[float], y: array[float]):
    y[tid()] = x[tid()]
"""


@pytest.mark.parametrize("options", [{}, {"fast": False}], ids=str)
def test_a_launch_whose_backward_pass_is_switched_off_is_said_to_have_none(options: Any) -> None:
    forward_only = kl.compile(FORWARD_ONLY)["forward_only"]
    x, y = reals(4), kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        forward_only[4](x, y)
        _loss = (x * y).sum()
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, **options)
    assert report
    assert report.launches[0].reason == "its backward pass is switched off"


BY_HOST: dict[str, Any] = {
    "an array": lambda x: x * kl.array(np.sin(x.numpy())),
    "a number": lambda x: x * x.sum()[0],
    "assigned": lambda x: x * _assigned(kl.zeros(4), 2.0 * x.numpy()),
    "in a checkpoint": lambda x: x * kl.checkpoint(lambda y: y * 2.0, kl.array(np.sin(x.numpy()))),
}


def _assigned(w: Any, values: Any) -> Any:
    w.assign(values)
    return w


@pytest.mark.parametrize("options", [{}, {"fast": False}, {"atol": 1e-3}], ids=str)
@pytest.mark.parametrize("way", BY_HOST)
def test_a_chain_through_the_host_fails_where_backward_warns(way: str, options: Any) -> None:
    x = reals(4)
    with kl.Tape() as tape:
        loss = BY_HOST[way](x).sum()
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False, **options)
    (bad,) = (launch for launch in report.launches if not launch.passed)
    assert bad.fault == "cut"
    with pytest.warns(kl.KernelWarning) as caught:
        tape.backward(loss)
    assert bad.reason in str(caught[0].message)


@pytest.mark.parametrize("options", [{}, {"fast": False}], ids=str)
def test_what_may_have_come_by_the_host_is_a_warning_and_a_note_beside_a_pass(options: Any) -> None:
    x = reals(4)
    with kl.Tape() as tape:
        y = x * x
        z = kl.array(np.asarray(y) * np.float32(2.0))
        loss = (x * z).sum()
    with pytest.warns(kl.KernelWarning, match="the host made its values after"):
        report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False, **options)
    assert report and report.whole
    with pytest.warns(kl.KernelWarning) as caught:
        tape.backward(loss)
    assert "the host made its values after" in report.whole.note
    assert report.whole.note in str(caught[0].message)


NUMBERS: dict[str, tuple[Any, bool]] = {
    "by float()": (lambda peak: 0.1 / (1.0 + float(peak)), True),
    "by math": (lambda peak: 0.1 * math.sqrt(peak), True),
    "a constant": (lambda peak: looked_at(float(peak), 0.1), False),
}


def looked_at(value: float, number: float) -> float:
    assert value > 0.0
    return number


@pytest.mark.parametrize("way", NUMBERS)
def test_a_number_that_the_host_may_have_computed_is_a_note_beside_a_pass(way: str) -> None:
    """Nothing tells `0.1 / (1.0 + float(peak))` from a constant but that it came later, and is not alike."""
    number, is_noted = NUMBERS[way]
    x = reals(4)
    with kl.Tape() as tape:
        y = x * x
        for _ in range(3):
            y = y * number(y.numpy()[1])
        _loss = y.sum()
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    told = "by float() or math, the gradient leaves it out"
    assert report.whole.note.endswith(told) if is_noted else not report.whole.note


def test_what_the_host_only_looks_at_is_no_cut() -> None:
    x = reals(4)
    with kl.Tape() as tape:
        y = x * x
        printed, steps = y.numpy().sum(), int(y[0] > 0.0) + 1
        for _ in range(steps):
            y = y * kl.clone(y, requires_grad=False).numpy() * 2.0
        _loss = y.sum()
    assert printed > 0.0
    assert kl.autograd.gradcheck_tape(tape, show_summary=False)


def test_a_copy_out_of_an_array_without_gradients_is_a_cut(kernels: dict[str, Any]) -> None:
    x, y, z = reals(4), kl.zeros(4), kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][4](x, y)
        kl.copy(z, y)
        kernels["doubled"][4](z)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    assert [(c.record, c.kernel, c.fault) for c in report.launches][0::2] == [
        (1, "right", ""),
        (3, "doubled", ""),
    ]
    assert report.launches[1].fault == "cut"


def test_a_chain_that_ends_by_a_clone_or_in_an_array_to_look_at_is_not_cut(kernels: dict[str, Any]) -> None:
    x, looked, total = reals(4), kl.zeros(4), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][4](x, looked)
        kernels["add"][4](kl.clone(x, requires_grad=False), total)
        kernels["add"][4](x, total)
    assert kl.autograd.gradcheck_tape(tape, show_summary=False)


def side_branch(kernels: dict[str, Any]) -> tuple[kl.Tape, Any, Any]:
    """A tape with a right chain to a loss, and another chain that is cut in the middle."""
    x, y, cut, side = reals(4), kl.zeros(4, requires_grad=True), kl.zeros(4), kl.zeros(4, requires_grad=True)
    total = kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][4](x, y)
        kernels["right"][4](x, cut)
        kernels["right"][4](cut, side)
        kernels["add"][4](y, total)
    return tape, total, side


def test_a_cut_on_a_branch_that_does_not_lead_to_the_loss_is_none(kernels: dict[str, Any]) -> None:
    tape, total, _ = side_branch(kernels)
    assert kl.autograd.gradcheck_tape(tape, show_summary=False)
    tape.backward(total)
    assert kl.autograd.gradcheck_tape(tape, show_summary=False)


def test_after_backward_the_cuts_are_those_on_the_way_from_its_seeds(kernels: dict[str, Any]) -> None:
    tape, total, side = side_branch(kernels)
    with pytest.warns(
        kl.KernelWarning, match="through the argument `y` of the launch of `right`, read by the launch"
    ):
        tape.backward(grads={side: kl.ones(4), total: kl.ones(1)})
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    assert [(c.record, c.fault) for c in report.launches if not c.passed] == [(3, "cut")]


def test_launches_are_chosen_by_the_names_of_kernels(kernels: dict[str, Any]) -> None:
    tape, _ = chain(kernels, "stepped")

    def checked(**options: Any) -> list[int]:
        found = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False, **options)
        return [launch.record for launch in found.launches]

    assert checked(blacklist_kernels=["stepped"]) == [1, 3]
    assert checked(whitelist_kernels=["add", "stepped"]) == [2, 3]
    assert checked(skip_to_launch_index=2) == [3]
    assert checked(skip_to_launch_index=2, reverse_launches=True) == [1]
    assert checked(input_output_masks={"right": [("x", "y")]}) == [1, 2, 3]
    with pytest.raises(GradientError, match="blacklist_kernels names 'other'"):
        checked(blacklist_kernels=["other"])


def test_what_was_overwritten_is_checked_when_the_tape_can_run_again(kernels: dict[str, Any]) -> None:
    tape, (x, y, *_) = chain(kernels)
    x.fill_(9.0)  # saved by the tape, since the adjoint needs it
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, fast=False)
    assert report.whole is not None
    assert report.is_exact
    assert report.launches[0].report is not None
    with kl.Tape() as other:
        kernels["doubled"][4](y)
    report = kl.autograd.gradcheck_tape(other, show_summary=False, whitelist_kernels=["doubled"])
    assert report.launches[0].report is not None
    other.record_func(lambda: None, [y])
    with pytest.raises(GradientError, match=r"0 pairs checked.*read from `x` has been overwritten"):
        kl.autograd.gradcheck_tape(other, show_summary=False, whitelist_kernels=["doubled"])


@pytest.mark.parametrize(
    "options",
    [{"eps": 1e-3}, {"fast": False}, {"reverse_launches": True}, {"skip_to_launch_index": 2}, {"atol": 1e-3}],
)
def test_launches_in_place_are_checked_whatever_is_chosen(options: dict[str, Any]) -> None:
    text = """
@kl.func
def square(a: float):
    return a * a

@kl.func_grad(square, check=False)
def adjoint_square(a: float, adj_ret: float):
    adjoint[a] += adj_ret * a

@kl.kernel
def steps(x: array(dtype=float), w: array(dtype=float)):
    i = tid()
    x[i] = x[i] * 0.5 + sin(w[i])

@kl.kernel
def wrong(x: array(dtype=float), w: array(dtype=float)):
    i = tid()
    x[i] = x[i] * 0.5 + square(w[i])
"""
    made = kl.compile(text)
    for name, is_right in (("steps", True), ("wrong", False)):
        x, w = reals(4), reals(4)
        with kl.Tape() as tape:
            for _ in range(5):
                made[name][4](x, w)
        report = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False, **options)
        assert bool(report) is is_right
        assert all(one.report is not None for one in report.launches)


# ------------------------------------------------------------------------------------------ end to end


def test_of_many_launches_the_first_bad_one_is_found(kernels: dict[str, Any]) -> None:
    arrays = [reals(4), *(kl.zeros(4, requires_grad=True) for _ in range(12))]
    with kl.Tape() as tape:
        for k in range(12):
            kernels["stepped" if k in (7, 9) else "right"][4](arrays[k], arrays[k + 1])
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None
    assert (bad.record, bad.kernel) == (8, "stepped")
    assert [launch.covered for launch in report.launches] == [True] * 7 + [False]


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
def test_an_overwrite_that_is_not_saved_is_named_with_its_reader(kernels: dict[str, Any]) -> None:
    def overwriting(policy: Any) -> Any:
        x, y, z = reals(4), kl.zeros(4, requires_grad=True), kl.zeros(4, requires_grad=True)
        with kl.Tape(overwrite=policy) as tape:
            kernels["right"][4](x, y)
            kernels["right"][4](y, x)
            kernels["right"][4](x, z)
        return tape

    report = kl.autograd.gradcheck_tape(overwriting("warn"), show_summary=False, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None
    assert (bad.record, bad.fault) == (2, "overwrite")
    with pytest.raises(
        GradientError, match="it overwrites `x`, whose old values the adjoint of the launch of"
    ):
        kl.autograd.gradcheck_tape(overwriting("warn"), show_summary=False)
    assert kl.autograd.gradcheck_tape(overwriting("save"), show_summary=False).whole


def overwrite_inside(x: Any, kernels: dict[str, Any]) -> None:
    x.fill_(3.0)


def overwrite_by_a_launch(x: Any, kernels: dict[str, Any]) -> None:
    kernels["doubled"][4](x)


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
@pytest.mark.parametrize("fast", ["auto", False])
@pytest.mark.parametrize("overwrite", [overwrite_inside, overwrite_by_a_launch])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("which", [0, 1])
def test_what_was_overwritten_and_not_saved_fails_wherever_it_was_overwritten(
    kernels: dict[str, Any], fast: Any, overwrite: Any, inside: bool, which: int
) -> None:
    arrays = [reals(4), *(kl.zeros(4, requires_grad=True) for _ in range(2))]
    with kl.Tape(overwrite="warn") as tape:
        kernels["right"][4](arrays[0], arrays[1])
        kernels["right"][4](arrays[1], arrays[2])
        if inside:
            overwrite(arrays[which], kernels)
    if not inside:
        overwrite(arrays[which], kernels)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False, fast=fast)
    bad = report.first_bad()
    assert bad is not None
    assert bad.fault == "overwrite"


@pytest.mark.filterwarnings("ignore::kernelab.errors.KernelWarning")
def test_a_copy_that_overwrites_is_named(kernels: dict[str, Any]) -> None:
    x, y, z = reals(4), kl.zeros(4, requires_grad=True), kl.zeros(4, requires_grad=True)
    with kl.Tape(overwrite="warn") as tape:
        kernels["right"][4](x, y)
        kernels["right"][4](y, z)
        kl.copy(y, z)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None
    assert (bad.record, bad.kernel, bad.fault) == (3, "copy", "overwrite")


def test_threads_that_race_have_no_derivative_and_the_launch_is_named(kernels: dict[str, Any]) -> None:
    x, y, z = reals(4), kl.zeros(4, requires_grad=True), kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][4](x, y)
        kernels["raced"][4](y, z)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None
    assert bad.report is not None
    assert (bad.record, bad.report.worst().verdict) == (2, "race")
    assert "if the first thread runs first" in bad.report.worst().explanation


def test_copies_and_fills_are_a_part_of_the_whole(kernels: dict[str, Any]) -> None:
    x, y, total = reals(4), kl.zeros(4, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        for _ in range(2):
            total.zero_()
            z = kl.clone(x)
            y.fill_(2.0)
            kernels["right"][4](z, y)
            kernels["add"][4](y, total)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is not None
    assert len(report.launches) == 4


def test_picked_elements_are_a_part_of_the_whole(kernels: dict[str, Any]) -> None:
    x, y = reals(4), kl.zeros(4, requires_grad=True)
    some, others = kl.array([2, 0, 3], dtype=int), kl.array([1, 0, 2], dtype=int)
    with kl.Tape() as tape:
        kernels["right"][3](x[some], y[others])
        kernels["doubled"][3](y[some])
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is not None
    assert report.is_exact


def test_copies_between_overlapping_views_are_a_part_of_the_whole(kernels: dict[str, Any]) -> None:
    x, y = reals(6), kl.zeros(6, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][6](x, y)
        kl.copy(y[1:5], y[0:4])
        kl.copy(y[::-1], y)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is not None
    assert report.is_exact


def test_elements_that_were_saved_in_part_are_read_as_they_were(kernels: dict[str, Any]) -> None:
    x, y = reals(8), kl.zeros(3, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][3](x, y)
        x[1:3].fill_(9.0)
    (launch,) = kl.autograd.gradcheck_tape(tape, show_summary=False, whitelist_kernels=["right"]).launches
    assert launch.report is not None
    assert launch.report


def test_a_tape_of_copies_alone_passes(kernels: dict[str, Any]) -> None:
    x, y = reals(4), kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        kl.copy(y, x)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is not None
    assert report.launches == ()


@pytest.mark.parametrize("swept", [False, True])
def test_what_the_host_overwrote_after_the_tape_is_saved_before_a_backward_pass_alone(
    kernels: dict[str, Any], swept: bool
) -> None:
    x, y = kl.array([1.0, 2.0], requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kernels["bent"][2](x, y)
    if swept:
        tape.backward(grads={y: kl.ones(2)})
    x.assign([0.0, 0.0])
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.is_exact == (not swept)


def test_a_tape_that_overwrote_what_it_began_with_is_checked_at_what_stands_there(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    x = reals(4)
    with kl.Tape() as tape:
        kernels["doubled"][4](x)
        kernels["doubled"][4](x)
    report = kl.autograd.gradcheck_tape(tape)
    assert report.whole is not None
    assert not report.is_exact
    assert "at the values that stand there now" in capsys.readouterr().out


def test_a_tape_that_cannot_run_again_is_checked_launch_by_launch(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = reals(4), kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][4](x, y)
        tape.record_func(lambda: None, [y])
    report = kl.autograd.gradcheck_tape(tape)
    assert report.whole is None
    assert "is known by its adjoint only" in report.alone
    right, function = report.launches
    assert (right.report is not None, right.is_open, function.is_open) == (True, False, True)
    assert (
        "gradcheck of 1 launch on a tape, but for 1 record that could not be checked"
        in capsys.readouterr().out
    )


def sine(x: Any) -> Any:
    return np.sin(x.numpy())


def cosine(x: Any, y_bar: Any) -> Any:
    return y_bar.numpy() * np.cos(x.numpy())


def twice_cosine(x: Any, y_bar: Any) -> Any:
    return 2.0 * cosine(x, y_bar)


def through(function: Any, kernels: dict[str, Any]) -> kl.Tape:
    """A tape on which a Python function stands between two launches."""
    x, y, z = reals(4), kl.zeros(4, requires_grad=True), kl.zeros(4, requires_grad=True)
    with kl.Tape() as tape:
        kernels["right"][4](x, y)
        kernels["right"][4](function(y), z)
    return tape


def test_a_function_of_custom_vjp_is_run_again_as_a_part_of_the_tape(kernels: dict[str, Any]) -> None:
    tape = through(kl.func.custom_vjp(sine, cosine), kernels)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is not None
    assert all(launch.covered for launch in report.launches)


def test_a_wrong_rule_of_custom_vjp_is_found_on_a_tape(kernels: dict[str, Any]) -> None:
    tape = through(kl.func.custom_vjp(sine, twice_cosine, check=False), kernels)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False)
    bad = report.first_bad()
    assert bad is not None
    assert [launch.passed for launch in report.launches] == [True, False]
    assert bad.kernel == "the function sine"
    assert bad.report is not None
    assert bad.report.worst().verdict == "custom"
    with pytest.raises(GradientError, match=r"of the function sine is not[^$]*twice_cosine gives"):
        kl.autograd.gradcheck_tape(tape, show_summary=False)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: sine(x) * next(numbers), "returns something else each time"),
        (lambda x: sine(x)[: 4 if x.dtype == kl.float32 else 3], "returns arrays of other shapes"),
        (lambda x: sine(x) if x.dtype == kl.float32 else 1 / 0, "fails on float64 (ZeroDivisionError: "),
    ],
)
def test_a_function_that_cannot_run_again_is_named(
    function: Any, reason: str, kernels: dict[str, Any]
) -> None:
    tape = through(kl.func.custom_vjp(function, cosine), kernels)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is None
    assert reason in report.alone
    (left,) = (launch for launch in report.launches if not launch.report)
    assert left.is_open and left.kernel.startswith("the function ") and left.reason


numbers = itertools.count(1)


def test_an_empty_tape_has_nothing_to_check() -> None:
    with pytest.raises(GradientError, match=r"0 pairs checked on this tape \(it holds no launch\)"):
        kl.autograd.gradcheck_tape(kl.Tape())


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
    assert report.worst().verdict == "kink"


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


def test_one_name_of_a_kernel_may_stand_alone(kernels: dict[str, Any]) -> None:
    tape, _ = chain(kernels)
    report = kl.autograd.gradcheck_tape(tape, whitelist_kernels="add", show_summary=False)
    assert [check.kernel for check in report.launches] == ["add"]


@pytest.mark.parametrize("skip", [-1, "a", 0.5])
def test_a_number_of_launches_to_skip_that_means_nothing_is_named(kernels: dict[str, Any], skip: Any) -> None:
    tape, _ = chain(kernels)
    with pytest.raises(KernelValueError, match=f"skip_to_launch_index={skip!r} is not a number of launches"):
        kl.autograd.gradcheck_tape(tape, skip_to_launch_index=skip, show_summary=False)


def test_a_tape_whose_gradient_is_not_a_number_fails(kernels: dict[str, Any]) -> None:
    root = kl.compile("def root(x: array[float], y: array[float]):\n    y[tid()] = sqrt(x[tid()])\n")["root"]
    x, y = kl.array([-1.0, 1.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        root[2](x, y)
    assert not kl.autograd.gradcheck_tape(tape, show_summary=False, raise_exception=False)


EXTREMA = kl.compile(
    """
def largest(x: array[float64], y: array[float64]):
    i = tid()
    atomic_max(y, i % y.shape[0], x[i] * x[i])

def smallest(x: array[float64], y: array[float64]):
    i = tid()
    atomic_min(y, i % y.shape[0], x[i])

def vectors(x: array[float64], y: array[vec2d]):
    i = tid()
    atomic_max(y, 0, vec2d(x[i], -x[i]))
"""
)


@pytest.mark.parametrize("options", [{}, {"fast": False}, {"whitelist": True}])
@pytest.mark.parametrize("start", [-100.0, 0.0, 2.5, 100.0])
@pytest.mark.parametrize("name", ["largest", "smallest", "vectors"])
def test_reductions_to_an_extremum_pass(name: str, start: float, options: dict[str, Any]) -> None:
    if options.get("whitelist"):
        options = {"whitelist_kernels": [name]}
    dtype: Any = kl.vec2d if name == "vectors" else kl.float64
    x = kl.array([1.0, -3.0, 2.0, 1.5], dtype=kl.float64, requires_grad=True)
    y = kl.full(2, start, dtype=dtype, requires_grad=True)
    with kl.Tape() as tape:
        EXTREMA[name][4](x, y)
    assert kl.autograd.gradcheck_tape(tape, show_summary=False, **options)


def test_an_extremum_at_a_tie_is_still_a_kink() -> None:
    x = kl.array([1.0, 2.0, 2.0], dtype=kl.float64, requires_grad=True)
    y = kl.zeros(1, dtype=kl.float64, requires_grad=True)
    with kl.Tape() as tape:
        EXTREMA["largest"][3](x, y)
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    assert not report


def test_the_check_says_nothing_of_the_passes_that_it_makes_itself(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    tape, _ = chain(kernels)
    kl.autograd.gradcheck_tape(tape)
    assert capsys.readouterr().err == ""


WRONG_REPLAY = """
def f(v: float):
    return exp(v)

@func_replay(f, check=False)
def again(v: float):  # !
    return exp(v) + 0.5

def kernel(x: array[float], y: array[float]):
    i = tid()
    a = f(x[i])
    y[i] = a * a
"""
WRONG_INDEX = """
def f(x: array[float], i: int):
    return x[i] * x[i]

@func_grad(f, check=False)
def adj_f(x: array[float], i: int, adj_ret: float):  # !
    adjoint[x][i + 1] += 2.0 * x[i] * adj_ret

def kernel(x: array[float], y: array[float]):
    i = tid()
    y[i] = 3.0 * f(x, i)
"""


@pytest.mark.parametrize("text", [WRONG_REPLAY, WRONG_INDEX])
def test_a_wrong_replay_and_a_rule_that_adds_elsewhere_are_named_at_their_line(text: str) -> None:
    x = kl.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    y = kl.zeros(2, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        kl.compile(text)["kernel"][2](x, y)
        _ = y.sum()
    report = kl.autograd.gradcheck_tape(tape, raise_exception=False, show_summary=False)
    worst = report.first_bad().report.worst()
    assert text.splitlines()[worst.span.line - 1].endswith("# !")
