"""One gradient, three ways: `Tape.backward`, `kl.func.vjp` and differences agree on every tape."""

import contextlib
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl
from kernelab.autodiff.checks.endtoend import differs_in_sweep
from kernelab.autodiff.checks.tape_replay import Line, NotReplayableError
from tests.strategies.hosts import host_programs
from tests.support.tapes import ran, recorded, seen
from tests.support.zoo import ZOO, Animal

LARGEST = 1e4
"""Of larger numbers nothing is compared: rounding errors have grown with them."""


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_the_zoo_has_one_gradient(animal: Animal) -> None:
    rng = np.random.default_rng(3)
    kernel = kl.compile(animal.text)[animal.name]
    given = animal.draw(rng)
    leaves = [name for name in animal.differentiable if np.ndim(given[name])]
    types = dict(zip(given, kernel.plan.types, strict=True))
    mine = {
        name: kl.array(value, dtype=types[name].elem, requires_grad=name in leaves)
        for name, value in given.items()
        if np.ndim(value)
    }
    with kl.Tape() as tape:
        copies = {name: kl.clone(a) for name, a in mine.items()}
        kernel[animal.grid](*(given | copies).values())
    written = [copies[name] for name in leaves]
    cotangents = [rng.uniform(-1, 1, a.numpy().shape).astype(a.numpy().dtype) for a in written]
    tape.backward(grads=dict(zip(written, cotangents, strict=True)))

    def run(*arrays: Any) -> Any:
        own = {name: kl.clone(a) for name, a in (mine | dict(zip(leaves, arrays, strict=True))).items()}
        kernel[animal.grid](*(given | own).values())
        return tuple(own[name] for name in leaves)

    pull = kl.func.vjp(run, *(mine[name] for name in leaves))[1]
    pulled = pull(tuple(kl.array(c, dtype=a.dtype) for c, a in zip(cotangents, written, strict=True)))
    for name, other in zip(leaves, pulled, strict=True):
        np.testing.assert_allclose(mine[name].grad.numpy(), other.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    report = kl.autograd.gradcheck_tape(tape, show_summary=False)
    assert report.whole is not None


@pytest.mark.long
def test_random_tapes_have_one_gradient() -> None:
    checked = 0

    @hypothesis.seed(4)
    @settings(max_examples=60, deadline=None, database=None)
    @given(host_programs(), st.integers(0, 9))
    def check(program: tuple[str, str], seed: int) -> None:
        nonlocal checked
        tape, grads, leaves = recorded(program[0], seed)
        tape.backward(grads=grads)
        found = [np.array(leaf.grad.list()).reshape(leaf.shape) for leaf in leaves]
        if not all(np.abs(part).max() <= LARGEST for part in found):
            return
        cotangents = tuple(kl.array(c, dtype=kl.float64) for c in grads.values())
        pulled = kl.func.vjp(lambda a, b: ran(program[0], a, b), *leaves)[1](cotangents)
        for one, other in zip(found, seen(pulled), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)
        with contextlib.suppress(NotReplayableError):
            line = Line(tuple(tape), "save")
            assert not differs_in_sweep(line, len(line.records))
            checked += 1

    check()
    assert checked > 40
