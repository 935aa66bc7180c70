"""A tape as data for a page: what it holds, what is new, what was overwritten by which line."""

import gc
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import kernelab as kl
from kernelab.autodiff.records import recording
from kernelab.runtime.launch.call import Call
from kernelab.runtime.memory.device import CPU
from kernelab.runtime.memory.memory import Allocation
from kernelab.views.pages.markup import render
from kernelab.views.tape.answers import answer
from kernelab.views.tape.digest import Digest
from kernelab.views.tape.tape_view import names_of

KERNELS = kl.compile(
    """def square(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i]

def total(y: array[float], loss: array[float]):
    atomic_add(loss, 0, y[tid()])

def root(x: array[float], y: array[float]):
    i = tid()
    y[i] = sqrt(x[i])
"""
)
SQUARE, TOTAL, ROOT = KERNELS["square"], KERNELS["total"], KERNELS["root"]


def nameless(memories: Iterable[Allocation]) -> Mapping[Allocation, str]:
    return {}


def arrays(number: int, size: int = 3) -> list[Any]:
    return [kl.ones(size, dtype=float, requires_grad=True) for _ in range(number)]


def the_overwrite(tape: kl.Tape) -> dict[str, Any]:
    """The only overwrite, with what it has in common with others."""
    whole = looked(tape).whole()
    ((clash, *rest),) = whole["overwrites"]
    return whole["clashes"][clash] | dict(
        zip(("reader", "writer", "array", "bytes", "affects"), rest, strict=True)
    )


def looked(tape: kl.Tape) -> Digest:
    digest = Digest(tape, nameless)
    digest.look()
    return digest


def test_records_that_do_the_same_at_the_same_line_are_one_step() -> None:
    x, y = arrays(2)
    with kl.Tape() as tape:
        for _ in range(5):
            SQUARE[3](x, y)
        SQUARE[3](y, x)
    whole = looked(tape).whole()
    assert whole["records"] == [0, 0, 0, 0, 0, 1]
    assert whole["steps"] == [[0, [0], [1]], [1, [1], [0]]]
    first = whole["kinds"][0]
    assert [first[key] for key in ("title", "grid", "reads", "writes")] == ["square", [3], ["x"], ["y"]]
    assert (whole["arrays"], whole["layouts"]) == ([[0, 0], [1, 0]], [["float32", [3]]])


def test_news_are_what_has_come_since_the_last_ones() -> None:
    x, y, z = arrays(3)
    digest = looked(tape := kl.Tape())
    assert digest.news() is None
    with tape:
        SQUARE[3](x, y)
        digest.look()
        first = digest.news()
        SQUARE[3](x, z)
        digest.look()
        second = digest.news()
    assert first is not None
    assert second is not None
    assert (first["from"]["records"], first["records"]) == (0, [0])
    assert second["from"] == {"memories": 2, "arrays": 2, "kinds": 1, "steps": 1, "records": 1, "times": 1}
    assert second["records"] == [1]
    assert digest.news() is None


def test_views_of_one_memory_share_its_column() -> None:
    x, y = arrays(2, 6)
    with kl.Tape() as tape:
        SQUARE[2](x[:2], y[:2])
        SQUARE[2](x[2:4], y[2:4])
    whole = looked(tape).whole()
    assert [name for name, _, _ in whole["memories"]] == ["x", "y"]
    assert [memory for memory, _ in whole["arrays"]] == [0, 1, 0, 1]


def test_a_reset_begins_another_epoch() -> None:
    x, y = arrays(2)
    with kl.Tape() as tape:
        SQUARE[3](x, y)
        SQUARE[3](y, x)
    digest = looked(tape)
    digest.news()
    tape.reset()
    with tape:
        SQUARE[3](x, y)
    digest.look()
    news = digest.news()
    assert news is not None
    assert (news["epoch"], news["from"]["records"], news["records"]) == (1, 0, [0])


@pytest.mark.parametrize(("policy", "outcome", "nbytes"), [("save", "saved", 12), ("warn", "tainted", 0)])
def test_an_overwrite_names_reader_writer_and_both_lines(policy: Any, outcome: str, nbytes: int) -> None:
    x, y = arrays(2)
    with kl.Tape(overwrite=policy) as tape:
        SQUARE[3](x, y)
        if policy == "warn":
            with pytest.warns(kl.KernelWarning, match="overwritten here"):
                SQUARE[3](y, x)
        else:
            SQUARE[3](y, x)
    found = the_overwrite(tape)
    assert (found["reader"], found["writer"], found["array"]) == (0, 1, 0)
    assert (found["outcome"], found["bytes"], found["affects"]) == (outcome, nbytes, [0])
    assert found["read"][1] == "SQUARE[3](x, y)"
    assert found["wrote"][1] == "SQUARE[3](y, x)"


def test_an_overwrite_after_the_tape_has_no_record_but_a_line() -> None:
    x, y = arrays(2)
    with kl.Tape() as tape:
        SQUARE[3](x, y)
    x.zero_()
    found = the_overwrite(tape)
    assert (found["reader"], found["writer"], found["wrote"][1]) == (0, -1, "x.zero_()")


def test_a_refused_overwrite_is_told_at_once() -> None:
    x, y = arrays(2)
    with kl.Tape(overwrite="error") as tape:
        SQUARE[3](x, y)
        with pytest.raises(kl.TapeError):
            x.zero_()
        found = the_overwrite(tape)
    assert (found["outcome"], found["writer"]) == ("refused", -1)


def test_what_backward_warned_of_is_a_finding_with_its_line() -> None:
    x, y, w = arrays(3)
    z, loss = kl.zeros(3, dtype=float), kl.zeros(1, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        SQUARE[3](x, z)
        TOTAL[3](z, loss)
        SQUARE[3](w, y)
        TOTAL[3](y, loss)
    with pytest.warns(kl.KernelWarning, match="no gradient flows through `z`"):
        tape.backward(loss)
    (found,) = looked(tape).whole()["findings"]
    assert found["code"] == "cut"
    assert found["at"][1] == "TOTAL[3](z, loss)"
    assert found["related"][0][2] == "SQUARE[3](x, z)"


def test_a_value_that_is_not_finite_is_a_finding() -> None:
    x, y = arrays(2)
    x.assign([1.0, float("inf"), 1.0])
    with kl.Tape() as tape:
        SQUARE[3](x, y)
    with pytest.raises(kl.NotFiniteError):
        tape.backward(grads={y: kl.ones_like(y)}, check_finite=True)
    assert [found["code"] for found in looked(tape).whole()["findings"]] == ["not-finite"]


def test_an_adjoint_that_turns_infinite_is_a_finding() -> None:
    x, y = kl.zeros(2, dtype=float, requires_grad=True), kl.zeros(2, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        ROOT[2](x, y)
    with pytest.raises(kl.NotFiniteError, match="infinite"):
        tape.backward(grads={y: kl.ones_like(y)}, check_finite=True)
    assert [found["code"] for found in looked(tape).whole()["findings"]] == ["not-finite"]


def test_an_observed_tape_knows_times_and_the_norms_of_each_step_back() -> None:
    x, y, z = arrays(3)
    tape = kl.Tape()
    tape.observe()
    with tape:
        SQUARE[3](x, y)
        SQUARE[3](y, z)
    tape.backward(grads={z: kl.ones_like(z)})
    whole = looked(tape).whole()
    assert all(time > 0 for time in whole["times"])
    assert whole["sweep"] == [[1, [[1, 3.464]]], [0, [[0, 6.928]]]]


@pytest.mark.parametrize("loop", ["", "for k in range(3):\n        s = s * s + x[i]\n    "])
def test_a_time_is_that_of_a_launch_without_the_build_of_its_kernel(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"def fresh(x: array[float], y: array[float]):\n    i = tid()\n    s = x[i]\n    {loop}y[i] = s\n"
    fresh, now = kl.compile(text)["fresh"], [0]

    def build(backend: Any, functions: Any, *given: Any, original: Any = CPU.backend.build) -> Any:
        # A thread may build its adjoint, or what an earlier test left to be built, at any time.
        now[0] += 10**9 * ([each.name for each in functions] == ["fresh"])
        return original(functions, *given)

    monkeypatch.setattr(type(CPU.backend), "build", build)
    monkeypatch.setattr(recording, "perf_counter_ns", lambda: now[0])
    x, y = arrays(2)
    tape = kl.Tape()
    tape.observe()
    with tape:
        fresh[3](x, y)
    assert now[0] >= 10**9
    assert tape.times[1] == 0


def test_a_launch_that_runs_while_the_tape_is_first_shown_has_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tape, run = kl.Tape(), Call.primal

    def primal(call: Call) -> None:
        tape.observe()
        run(call)

    monkeypatch.setattr(Call, "primal", primal)
    x, y = arrays(2)
    with tape:
        SQUARE[3](x, y)
        SQUARE[3](x, y)
    assert [*tape.times] == [2]


def test_a_tape_that_nobody_observes_measures_nothing() -> None:
    x, y = arrays(2)
    with kl.Tape() as tape:
        SQUARE[3](x, y)
    tape.backward(grads={y: kl.ones_like(y)})
    whole = looked(tape).whole()
    assert (whole["times"], whole["sweep"]) == ([-1], [])


def test_a_digest_keeps_neither_tape_nor_arrays_alive() -> None:
    x, y = arrays(2)
    with kl.Tape() as tape:
        SQUARE[3](x, y)
    digest = looked(tape)
    del tape, x, y
    gc.collect()
    assert not digest.look()
    assert digest.held(0) is None


@pytest.mark.parametrize(("memories", "most"), [(2, 400_000), (10_001, 600_000)])
def test_ten_thousand_launches_are_well_under_a_megabyte(memories: int, most: int) -> None:
    states = arrays(memories)
    with kl.Tape() as tape:
        for i in range(10_000):
            SQUARE[3](states[i % memories], states[(i + 1) % memories])
    assert len(json.dumps(looked(tape).whole(), separators=(",", ":"))) < most


# ------------------------------------------------------------------------------------------ names and answers


class Notebook:
    """A notebook of arrays: a search for names takes a microsecond for each of them, by its own clock."""

    def __init__(self, held: list[Any]) -> None:
        self.held = {one.allocation: f"held[{i}]" for i, one in enumerate(held)}
        self.now = self.searched = 0.0

    def clock(self) -> float:
        return self.now

    def names(self, memories: Iterable[Allocation]) -> Mapping[Allocation, str]:
        self.now += 1e-6 * len(self.held)
        self.searched += 1e-6 * len(self.held)
        return {memory: self.held[memory] for memory in memories if memory in self.held}


def test_each_name_is_told_once_and_looking_for_them_takes_a_twentieth_of_the_time() -> None:
    held = arrays(601)
    notebook, told = Notebook([*held, *arrays(9_400)]), []
    digest = Digest(tape := kl.Tape(), notebook.names, notebook.clock)
    with tape:
        for i in range(600):
            SQUARE[3](held[i], held[i + 1])
            notebook.now += 1 / 60
            digest.look()
            told += (digest.news() or {}).get("names", [])
    assert notebook.searched < notebook.now / 20
    assert told == [[i, f"held[{i}]"] for i in range(len(told))]
    assert len(told) > 580  # the last are looked for soon


def test_an_array_that_gets_its_name_late_or_another_has_the_last() -> None:
    (x, y), named = arrays(2), dict[Allocation, str]()
    digest = Digest(tape := kl.Tape(), lambda memories: {one: named[one] for one in memories if one in named})
    with tape:
        SQUARE[3](x, y)
    digest.look()
    for name in ("first", "second", "second"):
        named[y.allocation] = name
        digest.look_for_names()
    assert digest.whole()["names"] == [[1, "first"], [1, "second"]]


def test_an_update_is_as_long_as_what_is_new() -> None:
    held, sizes = arrays(3_002), []
    notebook = Notebook(held)
    digest = Digest(tape := kl.Tape(), notebook.names, notebook.clock)
    with tape:
        for i in range(3_001):
            tape.record_scope_begin("step")
            SQUARE[3](held[i], held[i + 1])
            tape.record_scope_end()
            if i in (999, 1000, 2999, 3000):
                notebook.now += 1
                digest.look()
                sizes.append(len(json.dumps(digest.news())))
    assert sizes[1] <= sizes[3] < 600


def test_names_are_those_of_variables_then_of_places_in_containers() -> None:
    x, y, z, w, u = arrays(5)
    holder = type("Holder", (), {})()
    holder.velocity, holder.states = z, [y, u]
    namespace = {"_x": x, "x": x, "states": [x, y], "table": {"z": z}, "particles": holder, "also": {"w": w}}
    memories = [one.allocation for one in (x, y, z, w, u)]
    names = ["x", "states[1]", "table['z']", "particles.states[1]", "also['w']"]
    assert list(names_of(memories, namespace).values()) == names


def test_an_array_that_only_the_outputs_of_cells_hold_has_no_name() -> None:
    """A view that is open would else rename `x`, once another array has that name, to `Out[3]`."""
    (x,) = arrays(1)
    outputs = {3: x}
    assert names_of([x.allocation], {"_oh": outputs, "Out": outputs, "_3": x}) == {}
    assert names_of([x.allocation], {"Out": outputs}) == {x.allocation: "Out[3]"}


def test_answers_show_values_or_kernels_or_say_why_not() -> None:
    x, y = arrays(2)
    with kl.Tape() as tape:
        SQUARE[3](x, y)
    digest = looked(tape)
    assert "array of 3 float32" in render(answer(digest, {"ask": "array", "number": 0}))
    shown = render(answer(digest, {"ask": "record", "number": 0}))
    assert "y[i] = x[i] * x[i]" in shown
    assert "array of 3 float32, requires gradients" in shown
    traced = render(answer(digest, {"ask": "thread", "number": 0, "thread": 1}))
    assert "thread 1 of square, run alone on copies" in traced
    assert "arrays are as they are now" in traced
    assert "there is no thread 5" in render(answer(digest, {"ask": "thread", "number": 0, "thread": 5}))
    for question in ({"ask": "array", "number": 9}, {"ask": "record", "number": 7}):
        assert "run the cell again" in render(answer(digest, question))
    assert "does not know" in render(answer(digest, {"ask": "tea"}))
