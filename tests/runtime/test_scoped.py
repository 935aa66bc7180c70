"""Timers and devices as blocks of a program."""

import pytest

import kernelab as kl


def test_a_timer_prints_what_it_measured_under_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with kl.ScopedTimer("outer") as outer, kl.ScopedTimer("inner") as inner:
        pass
    assert 0 < inner.elapsed < outer.elapsed
    lines = f"    inner took {inner.elapsed:.2f} ms\nouter took {outer.elapsed:.2f} ms\n"
    assert capsys.readouterr().out == lines


def test_a_timer_is_silent_where_it_is_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(2):
        with kl.ScopedTimer("step", print=False, dict=found) as timer:
            pass
    with kl.ScopedTimer("never", active=False, dict=found):
        pass
    assert capsys.readouterr().out == ""
    assert (list(found), found["step"][1]) == (["step"], timer.elapsed)


def test_a_timer_waits_for_devices_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("kernelab.runtime.launch.scoped.synchronize", lambda: waits.append(timer.elapsed))
    for told in (False, True):
        timer = kl.ScopedTimer("step", print=False, synchronize=told)
        with timer:
            pass
    assert waits == [0.0, 0.0]  # both times before it has measured


def test_a_detailed_timer_names_the_functions(capsys: pytest.CaptureFixture[str]) -> None:
    with kl.ScopedTimer("profiled", detailed=True):
        sorted([3, 1, 2])
    assert "built-in method builtins.sorted" in capsys.readouterr().out


def test_a_timer_names_a_scope_of_the_tape_that_is_recording() -> None:
    x = kl.ones(1)
    with kl.Tape() as tape:
        with kl.ScopedTimer("seen", print=False):
            x.fill_(2)
        with kl.ScopedTimer("unseen", print=False, skip_tape=True):
            x.fill_(3)
    assert [scope.name for scope in tape.scopes] == ["seen"]


def test_a_timer_that_outlives_its_tapes_reset_does_no_harm() -> None:
    with kl.Tape() as tape, kl.ScopedTimer("step", print=False):
        tape.reset()
    assert list(tape.scopes) == []


def test_the_cpu_is_the_device_of_every_block() -> None:
    with kl.ScopedDevice("cpu") as device:
        assert device == kl.get_device()
    kl.set_device("cpu")
    assert kl.is_cpu_available()
    assert kl.get_preferred_device().is_cuda == kl.is_cuda_available()


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(kl.LaunchError, match="no device 'cuda:99'"):
        kl.ScopedDevice("cuda:99")
    with pytest.raises(kl.LaunchError, match="no device 'cuda:99'"):
        kl.set_device("cuda:99")
