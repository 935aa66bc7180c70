"""The tape itself: what it records, and what becomes of it."""

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.autodiff.records.moves import CopyRecord, OverwriteRecord
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import LaunchRecord
from kernelab.runtime.kernel import dispatch
from tests.support.chains import kernels, square
from tests.support.leaves import gradient, leaf, result


def test_records_say_what_ran_where() -> None:
    x, y = leaf(1), result()
    with kl.Tape() as tape:
        square[1](x, y)
        z = kl.clone(y)
        z.fill_(0)
    launched, copied, filled = tape
    assert isinstance(launched, LaunchRecord)
    assert isinstance(copied, CopyRecord)
    assert isinstance(filled, OverwriteRecord)
    assert launched.kernel is square
    assert launched.grid.extents == (1,)
    assert launched.named == {"x": x, "y": y}
    assert (launched.versions_read, launched.versions_written) == ({"x": 0}, {"y": 1})
    assert copied.how == "clone"
    assert repr(launched) == f"<the launch of `square` at {launched.place}>"
    assert str(filled.place).startswith("test_tape.py, line ")
    assert filled.place.line == launched.place.line + 2


def test_gradients_maps_arrays_to_their_gradients() -> None:
    x, y, z = leaf(3), result(), kl.zeros(1)
    with kl.Tape() as tape:
        square[1](x, y)
        kl.copy(z, y)
    tape.backward(grads={y: [1]})
    assert tape.gradients[x] is x.grad
    assert z not in tape.gradients
    assert tape.get_adjoint(x) is x.grad


def test_zero_clears_all_gradients() -> None:
    x, y = leaf(3), result()
    with kl.Tape() as tape:
        square[1](x, y)
    tape.backward(grads={y: [1]})
    tape.zero()
    assert (gradient(x), gradient(y)) == ([0], [0])
    tape.backward(grads={y: [1]})
    assert gradient(x) == [6]


def test_zero_keeps_the_gradient_arrays() -> None:
    x, y = leaf(3), result()
    with kl.Tape() as tape:
        square[1](x, y)
    tape.backward(grads={y: [1]})
    kept = x.grad
    tape.zero()
    tape.backward(grads={y: [1]})
    assert x.grad is kept


def test_reset_forgets_records_and_gradients() -> None:
    x, y = leaf(3), result()
    tape = kl.Tape()
    for _ in range(2):
        tape.reset()
        with tape:
            square[1](x, y)
        tape.backward(grads={y: [1]})
        assert (len(tape), gradient(x)) == (1, [6])
    tape.reset()
    assert (len(tape), gradient(x)) == (0, [0])


def test_one_tape_cannot_be_opened_inside_another() -> None:
    with kl.Tape(), pytest.raises(kl.TapeError, match="recording already"), kl.Tape():
        pass


def test_entering_a_tape_a_second_time_says_so() -> None:
    x, y = leaf(3), result()
    tape = kl.Tape()
    with tape:
        square[1](x, y)
    with pytest.warns(kl.KernelWarning, match="already holds 1 records"), tape:
        pass


def test_a_tape_stops_recording_when_its_block_raises() -> None:
    x, y = leaf(3), result()
    with pytest.raises(ZeroDivisionError), kl.Tape() as tape:
        raise ZeroDivisionError
    square[1](x, y)
    assert len(tape) == 0


def test_scopes_group_records_and_empty_ones_go_away() -> None:
    x, y = leaf(3), result()
    with kl.Tape() as tape:
        tape.record_scope_begin("outer", metadata={"a": 1})
        tape.record_scope_begin("empty")
        tape.record_scope_end()
        square[1](x, y)
        tape.record_scope_end()
    assert [(scope.name, scope.begin, scope.end) for scope in tape.scopes] == [("outer", 0, 1)]
    with pytest.raises(kl.TapeError, match="no scope is open"):
        tape.record_scope_end()


def test_each_launch_knows_its_line_however_deep_in_kernelab_it_runs() -> None:
    x, y = leaf(3), result()
    with kl.Tape() as tape:
        for _ in range(2):
            kl.launch(square, 1, [x], [y])
            kl.launch(square, 1, [x], [y], device="cpu")
            square[1](x, y)
    first = tape.launches[0].place.line
    assert [one.place.line - first for one in tape.launches] == [0, 1, 2, 0, 1, 2]
    assert {one.place.filename for one in tape.launches} == {__file__}


def test_a_launch_can_be_recorded_after_it_was_made() -> None:
    x, y = leaf(3), result()
    tape = kl.Tape()
    square[1](x, y)
    tape.record_launch(square, 1, inputs=[x], outputs=[y])
    tape.backward(grads={y: [1]})
    assert gradient(x) == [6]
    with pytest.raises(kl.TapeError, match="overwrites values"):
        tape.record_launch(kernels["squared_in_place"], 1, inputs=[x])


def test_a_tape_and_what_it_holds_go_away_together() -> None:
    x, y, z = leaf(3), result(), result()
    with kl.Tape() as tape:
        square[1](x, y)
        square[1](x, z)
        x.fill_(4)
    watch = weakref.ref(tape.launches[0].snapshots[0][1])
    gc.disable()
    try:
        del tape
        assert watch() is None
        assert not x.allocation.watches
    finally:
        gc.enable()


def test_a_build_in_the_background_keeps_no_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    ready, started, go_on = dispatch.ready, threading.Event(), threading.Event()

    def waiting(*given: Any) -> Any:
        started.set()
        assert go_on.wait(60)
        return ready(*given)

    monkeypatch.setattr(dispatch, "ready", waiting)
    kernels = kl.compile("def twice(x: array[float], y: array[float]):\n    y[tid()] = 2.0 * x[tid()]\n")
    tape = kl.Tape()
    with tape:
        kl.launch(kernels["twice"], 1, [leaf(3)], [result()])
    recording = weakref.ref(tape._recording)
    assert started.wait(60)
    gc.disable()
    try:
        del tape
        assert recording() is None
    finally:
        gc.enable()
        go_on.set()


def test_a_tape_is_closed_where_it_was_opened_and_once() -> None:
    tape, told = kl.Tape(), []

    def elsewhere() -> None:
        with pytest.raises(kl.TapeError, match="a tape is closed in the thread") as refused:
            tape.__exit__()
        told.append(refused)

    tape.__enter__()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert told
    tape.__exit__()
    with pytest.raises(kl.TapeError, match="this tape is not open"):
        tape.__exit__()


def test_a_tape_whose_last_look_is_interrupted_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(self: Recording) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recording, "ends", pressed)
    with pytest.raises(KeyboardInterrupt), kl.Tape():
        pass
    monkeypatch.undo()
    with kl.Tape() as tape:
        pass
    assert not len(tape)


def test_get_adjoint_of_what_has_none_and_a_new_name_of_a_kernel_are_refused() -> None:
    tape = kl.Tape()
    kernel: Any = kl.compile("def idle():\n    pass\n")["idle"]
    for given in (3, None, [kl.ones(1)], np.ones(1), kernel):
        with pytest.raises(kl.TapeError, match="get_adjoint takes an array or a struct, not"):
            tape.get_adjoint(given)
    assert tape.get_adjoint(kl.ones(1)) is None
    with pytest.raises(AttributeError, match="name"):
        kernel.name = "other"
