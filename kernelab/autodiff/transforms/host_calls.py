"""Python functions with user-written derivatives, called in transforms and on tapes."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kernelab.autodiff.records.adjoint_buffers import Level
from kernelab.autodiff.records.moves import published
from kernelab.autodiff.transforms.compared import MOST_TRIES, Compared, Function, Known
from kernelab.autodiff.transforms.surroundings import Surroundings, Used, arrays_reached
from kernelab.data_classes import dataclass, field
from kernelab.errors import GradientError, KernelTypeError, a_thing, counted, name_of
from kernelab.host.traced import Origins, origins
from kernelab.lang.rounding import alike
from kernelab.lang.types import is_differentiable, scalar_of, shape_of, uint8
from kernelab.runtime.array.array import array, numbers_of
from kernelab.runtime.array.layout import is_picked
from kernelab.runtime.array.transfers import unreadable
from kernelab.runtime.context.recorder import (
    GIVEN,
    IN_RULE,
    RECORDER,
    note_given,
    observing_outside_use,
    refusal,
    unrecorded,
    warn_at,
)
from kernelab.runtime.host.create import clone, zeros_like
from kernelab.runtime.host.structarray import structarray
from kernelab.runtime.launch.checked import require_written
from kernelab.runtime.memory.memory import Allocation, set_aside, youngest, zeros_like_memory
from kernelab.settings import during


def shared_defaults(func: Function, back: Function) -> dict[int, Any]:
    """The defaults of a function by their positions, where its derivative has parameters of these names."""
    if not getattr(func, "__defaults__", None):
        return {}
    try:
        pairs = zip(*(inspect.signature(one).parameters.values() for one in (func, back)), strict=False)
    except (TypeError, ValueError):  # one that does not say what it takes
        return {}
    return {n: own.default for n, (own, other) in enumerate(pairs) if _has_default_of(own, other)}


def _has_default_of(own: inspect.Parameter, other: inspect.Parameter) -> bool:
    is_positional = own.kind in (own.POSITIONAL_ONLY, own.POSITIONAL_OR_KEYWORD)
    return is_positional and own.default is not own.empty and own.name == other.name


@dataclass(slots=True)
class HostCall:
    """A call of `func`; some arrays, at `places` among `args`, are given anew each time it runs.

    These are the arrays of floats, and those of integers that differ between lanes.
    `back` is the derivative, None for a function that is differentiated as it runs.  `is_several` says, after
    a run, whether the results were a tuple.  `in_place` says that the results are the arguments: what `back`
    gives replaces their adjoints.  `compared` has what comparisons of `back` have told, by positions among
    the arrays of floats; None where there are to be none.  `rule_of` is set in the call of a derivative:
    the call that it is of, and the arrays for which it is to be compared.  `given` are the origins of the
    numbers that its last run has computed with, though they are no arguments.  `used` is the memory around
    the function that its runs have used; `behind`, what `back` may use besides; `left`, what the last run
    computed of its arguments and did not return.  `forward` is, of a derivative, the call that it is of, and
    `number` tells calls apart.  `is_told` says that a change of what the derivative reads has been warned of.
    """

    func: Function
    back: Function | None
    args: tuple[Any, ...]
    places: tuple[int, ...]
    is_several: bool = False
    in_place: bool = False
    compared: Compared | None = None
    rule_of: "tuple[HostCall, Sequence[int]] | None" = None
    given: Origins = ()
    used: "WeakKeyDictionary[Allocation, Used]" = field(default_factory=WeakKeyDictionary)
    behind: "WeakKeyDictionary[Allocation, Used]" = field(default_factory=WeakKeyDictionary)
    left: "WeakKeyDictionary[Allocation, Any]" = field(default_factory=WeakKeyDictionary)
    forward: "HostCall | None" = None
    number: int = field(default_factory=youngest)
    is_told: bool = False

    @staticmethod
    def of(func: Function, back: Function, args: tuple[Any, ...], compared: Compared | None) -> "HostCall":
        """The call of a user's function, which gets picked elements as an array; refuses structs.

        Raises KernelTypeError for these.
        """
        args = tuple(arg.contiguous() if is_picked(arg) else arg for arg in args)
        for n, arg in enumerate(args):
            if isinstance(arg, structarray) or hasattr(arg, "__kernelab_struct__"):
                message = f"argument {n} of {name_of(func)} is {a_thing(arg)}, and custom_vjp takes arrays"
                raise refusal(KernelTypeError, message, "custom", "pass the arrays of its fields")
        arrays = [(n, arg) for n, arg in enumerate(args) if isinstance(arg, array)]
        places = [n for n, one in arrays if is_differentiable(one.dtype) or unreadable(one) is not None]
        return HostCall(func, back, args, tuple(places), compared=compared)

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"the function {name_of(self.func)}"

    @property
    def taken(self) -> Origins:
        """The origins of the numbers that it is given or captures, which have no derivatives."""
        return origins(*[arg for arg in self.args if not isinstance(arg, array)]) + self.given

    def run(self, arrays: Sequence[array]) -> list[array]:
        """The results as new arrays; the function gets copies, which it may change."""
        return self._results(self._copies(arrays), arrays)

    def run_alone(self, arrays: Sequence[array]) -> list[array]:
        """The same unrecorded: other arrays that the function uses are told to who follows them."""
        with unrecorded():
            copies, given = self._copies(arrays), list[Any]()
            with during(IN_RULE, youngest()), during(GIVEN, given):
                results = self._results(copies, arrays)
        self.given = (*given,)
        note_given((), self.taken)  # to the function around this one, if there is one
        return results

    def is_stateful(self, arrays: Sequence[array], found: Iterable[Allocation]) -> bool:
        """Whether the results depend on what runs before this one have left in memory that it has `found`.

        Those of a solver that begins there do not: another run gives the same where this has changed.  What
        the call itself has left is there again afterwards, also where a run leaves new arrays.  On a device
        that is not tried.
        """
        assert self.back is not None
        known, used, left = Compared.of(self.func, self.back).known, dict(self.used), dict(self.left)
        if any(memory.space is not None for memory in (*used, *left)):
            return True
        if known.is_stateful is None:
            latest = known.latest
            with ExitStack() as aside:
                for memory in used:
                    aside.enter_context(set_aside(memory))
                known.is_stateful = self._gives_other_from(arrays, {one: used[one].dtype for one in found})
            known.latest = latest
            for memory, again in zip(left, tuple(self.left), strict=False):
                if memory is not again and memory.nbytes == again.nbytes:
                    numbers_of(again, uint8).host()[...] = numbers_of(memory, uint8).host()
            self.used = WeakKeyDictionary(used)
            self.left.update(left)
        return known.is_stateful

    def _gives_other_from(self, arrays: Sequence[array], found: Mapping[Allocation, Any]) -> bool:
        """Whether a run gives something else, or fails, after memory it found and left has changed."""
        before = self.run_alone(arrays)
        for memory, dtype in {**self.left, **found}.items():
            _perturb(memory, dtype)
        try:
            return not all(map(_are_alike, self.run_alone(arrays), before))
        except Exception:  # noqa: BLE001 (the user's function, from values that it has not left)
            return True

    def settle(self, arrays: Sequence[array]) -> None:
        """Of a derivative: find out whether it needs another run of the function, which ran for other calls.

        It does if it gives something else after one, for cotangents drawn at random, and after two the same.
        """
        call = self.forward
        if call is None or call.compared is None or call.compared.known.uses_state:
            return
        known, given = call.compared.known, arrays[: len(call.places)]
        if known.latest == call._run_of(given):
            return
        if not (known.is_nondeterministic or call.compared.is_settled or known.settled == MOST_TRIES):
            call.compared.is_settled = True
            known.settled += 1
            with call.surroundings_kept():
                self._find_state(arrays, known, call)
        if known.is_nondeterministic:
            message = f"{name_of(call.func)} has run since it was called, and its derivative reads what it "
            hint = "let it return what it draws at random, or pass that to it"
            warn_at(f"{message}leaves outside, which differs from run to run", "changed", hint)

    @contextmanager
    def surroundings_kept(self) -> Iterator[None]:
        """A context in which arrays around it may change, and their gradients: they are restored."""
        with ExitStack() as aside:
            for memory in tuple(self.used):
                for each in (memory, memory.adjoint):
                    if each is not None and each.space is None:
                        aside.enter_context(set_aside(each))
            yield

    def _find_state(self, arrays: Sequence[array], known: Known, call: "HostCall") -> None:
        given = arrays[: len(call.places)]
        seeds = (len(arrays) - len(given)) // 2
        drawn = [*arrays[:-seeds], *map(_drawn, arrays[-seeds:])]
        before = self.run_alone(drawn)
        if call.gives_other(arrays[len(given) : -seeds], given):
            call.warn_of_change()
        after = self.run_alone(drawn)
        if not all(map(_are_close, before, after)):
            call.run_alone(given)
            known.uses_state = all(map(_are_close, after, self.run_alone(drawn)))
            known.is_nondeterministic = not known.uses_state

    def _run_of(self, arrays: Sequence[array]) -> tuple[int, ...]:
        """What tells this call, and a lane of it, from others."""
        memories = [(one.allocation.serial, one.allocation.version, one.offset) for one in arrays]
        return (self.number, *chain.from_iterable(memories))

    def _run_again(self, arrays: Sequence[array], results: Sequence[array]) -> None:
        """Let the function leave outside what its derivative needs for this call; warns where it cannot."""
        if RECORDER.get() is not None:
            self.run(arrays)
        elif self.gives_other(results, arrays):
            self.warn_of_change()

    def gives_other(self, results: Sequence[array], arrays: Sequence[array]) -> bool:
        """Run the function again: whether it gives something else than at first, and that each time.

        Results are those of the call only where the derivative takes them.
        """
        again = self.run_alone(arrays)
        if not self.takes_results(len(results)) or all(map(_are_alike, again, results)):
            return False
        return all(map(_are_close, again, self.run_alone(arrays)))

    def warn_of_change(self) -> None:
        """Warn that the function gives something else than when it was called, unless more is told."""
        if self.is_told:
            return
        message = f"{name_of(self.func)} gives something else than when it was called"
        hint = "pass it what changes as an argument, and what it draws at random"
        warn_at(f"{message}: the derivative is not that of what ran", "changed", hint)

    def overwrites(self, arrays: Sequence[array]) -> dict[int, int]:
        """The lines at which the function first changes its copies of arrays, by their positions."""
        copies, lines, line = self._copies(arrays), dict[int, int](), 0

        def look(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal line
            if frame.f_code is not getattr(self.func, "__code__", None):
                return None
            for n, before in zip(self.places, arrays, strict=True):
                if not np.array_equal(copies[n].host(), before.host(), equal_nan=True):
                    lines.setdefault(n, line)
            line = frame.f_lineno
            return look

        tracing = sys.gettrace()
        sys.settrace(look)
        try:
            self._results(copies, arrays)
        finally:
            sys.settrace(tracing)
        return lines

    def _copies(self, arrays: Sequence[array]) -> list[Any]:
        return self._whole([clone(one, requires_grad=False) for one in arrays])

    def _results(self, arguments: Sequence[Any], arrays: Sequence[array]) -> list[array]:
        forward = self.forward
        own = [arguments[n].allocation for n in self.places]
        around = Surroundings(own, {} if forward is None else {**forward.behind, **forward.used})
        with observing_outside_use(around):
            returned = self.func(*arguments)
        if forward is not None:
            forward.is_told |= around.warn_of_stale(name_of(forward.func))
        else:
            self._note_left(around, own, arrays)
        self._note_used(around)
        self.is_several = isinstance(returned, tuple | list)
        return [self._result(result, arrays) for result in (returned if self.is_several else [returned])]

    def _note_left(self, around: Surroundings, own: Sequence[Allocation], arrays: Sequence[array]) -> None:
        """Note what a run has left around it."""
        if self.compared is not None:
            self.compared.known.latest = self._run_of(arrays)
        self.left = around.carrying
        for memory in own:
            self.left.pop(memory)

    def _note_used(self, around: Surroundings) -> None:
        """Note the memory around it that a run has used."""
        for memory, (version, arrays) in around.used.items():
            if memory not in self.used or memory.version != version:
                self.used[memory] = Used.of(memory, arrays)
        for one in () if self.back is None else arrays_reached(self.back):
            if one.allocation not in self.behind:
                self.behind[one.allocation] = Used.of(one.allocation, [one])

    def has_stale_derivative(self) -> bool:
        """Whether an array that only the derivative may use has changed since the call."""
        apart = (memory for memory in self.behind if memory not in self.used and memory not in self.left)
        return any(self.behind[memory].has_changed(memory) for memory in apart)

    def arrays_used(self) -> Iterator[array]:
        """The arrays besides its arguments that its runs have used."""
        for memory, used in self.used.items():
            yield from used.arrays(memory)

    def arrays_around(self) -> Iterator[array]:
        """The same, and those that its derivative may use."""
        yield from self.arrays_used()
        for memory, used in self.behind.items():
            yield from used.arrays(memory)

    def _whole(self, arrays: Sequence[array]) -> list[Any]:
        whole = list(self.args)
        for n, elements in zip(self.places, arrays, strict=True):
            whole[n] = elements
        return whole

    def _result(self, result: Any, arrays: Sequence[array]) -> array:
        if isinstance(result, array):
            return clone(result, requires_grad=False)
        if not isinstance(result, int | float | np.number | np.ndarray):
            message = f"{name_of(self.func)} returned {a_thing(result)}"
            raise refusal(
                KernelTypeError, message, "custom", "return arrays, of NumPy or kernelab's, or numbers"
            )
        values = np.atleast_1d(result)
        first = next((one for one in arrays if is_differentiable(one.dtype)), None)
        if values.dtype.kind != "f" or first is None:
            return array(values)
        is_alike = values.shape == (*first.shape, *shape_of(first.dtype))
        values = values.astype(scalar_of(first.dtype).dtype)
        return array(values, first.dtype) if is_alike else array(values)

    def reversed(self, results: int, active: Sequence[int] = ()) -> "HostCall":
        """The call of the derivative: of the arrays, the results and the cotangents of these.

        It is compared for the `active` arrays.
        """
        count, every = len(self.places), len(self.places) + 2 * results
        back = self.back
        assert back is not None
        takes_results = self.takes_results(results)

        def adjoints(*arrays: array) -> list[array]:
            args, rest = self._whole(arrays[:count]), arrays[count:]
            if self.compared is not None and self.compared.known.uses_state:
                self._run_again(arrays[:count], rest[:results])
            returned = back(*args, *(rest if takes_results else rest[results:]))
            several = list(returned) if isinstance(returned, tuple | list) else [returned]
            floats = [k for k in range(count) if is_differentiable(arrays[k].dtype)]
            if len(several) != len(floats):
                message = (
                    f"{name_of(back)} returned {len(several)} adjoints for {len(floats)} arrays of floats"
                )
                raise refusal(GradientError, message, "custom", "return one for each, None for zeros")
            bars = {k: _adjoint(back, n, several[n], arrays[k]) for n, k in enumerate(floats)}
            return [bars[k] if k in bars else arrays[k] for k in range(count)]  # nobody asks for others

        wanted = [k for k in active if self.compared is not None and k not in self.compared.places]
        rule_of = (self, wanted) if wanted else None
        return HostCall(adjoints, None, (None,) * every, tuple(range(every)), rule_of=rule_of, forward=self)

    def takes_results(self, results: int) -> bool:
        """Whether the derivative takes the results, too; GradientError where its parameters fit neither."""
        back, args = self.back, len(self.args)
        assert back is not None
        parameters = inspect.signature(back).parameters.values()
        if any(one.kind is one.VAR_POSITIONAL for one in parameters):
            return True
        positional = [
            one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        required = sum(one.default is one.empty for one in positional)
        for count in (required, len(positional)):  # what has a default keeps it, if the others fit
            if count in (args + results, args + 2 * results):
                return count > args + results
        message = f"{name_of(back)} takes {counted(required, 'argument')}, "
        message += f"for {counted(args, 'argument')} and {counted(results, 'result')}"
        hint = "let it take the arguments, then the results or not, then a cotangent for each result; "
        hint += "there are no residuals: what it needs beside these is a further result"
        raise refusal(GradientError, message, "custom", hint)


def of_recorded(backward: Callable[[], object], arrays: Sequence[array], base: Level) -> HostCall:
    """The call of what the host computed in `arrays`, whose derivative is a function of `record_func`.

    Where no level runs that, `base` copies.
    """
    versions = [elements.allocation.version for elements in arrays]

    def adjoints(*given: array) -> list[array]:
        level: Level = RECORDER.get() or base
        changed = [
            (elements, value)
            for elements, value, version in zip(arrays, given, versions, strict=False)
            if elements.allocation.version != version
        ]
        with published({elements.allocation: zeros_like_memory(elements.allocation) for elements in arrays}):
            aside = [(elements, level.copy(elements)) for elements, _ in changed]
            for elements, value in changed:
                level.move(elements, value)
            for elements, seed in zip(arrays, given[-len(arrays) :], strict=True):
                level.move(elements.grad, seed)
            backward()
            whole: list[Any] = [elements.grad for elements in arrays]
            bars = [clone(bar, requires_grad=False) for bar in whole]
            for elements, now in aside:
                level.move(elements, now)
        return bars

    return HostCall(backward, adjoints, tuple(arrays), tuple(range(len(arrays))), in_place=True)


def _drawn(seed: array) -> array:
    """A cotangent like another one, drawn at random."""
    copy = clone(seed, requires_grad=False)
    if is_differentiable(copy.dtype):
        values = copy.host()
        values[...] = np.random.default_rng(0).uniform(0.5, 1.5, values.shape)
    return copy


def _perturb(memory: Allocation, dtype: Any) -> None:
    """Change the floats in some memory by more than a tenth."""
    if is_differentiable(dtype):
        values = numbers_of(memory, scalar_of(dtype)).host()
        values += 0.1 * (1.0 + np.abs(values))


def _are_alike(one: array, other: array) -> bool:
    """Whether results agree but for what a solver gains that begins where its last run has ended."""
    a, b = one.seen(), other.seen()
    return a.shape == b.shape and bool(alike(b, a, 1e-3).all())


def _are_close(one: array, other: array) -> bool:
    """Whether two results agree but for rounding."""
    return one.shape == other.shape and np.allclose(one.seen(), other.seen(), rtol=1e-5, equal_nan=True)


def _adjoint(back: Function, n: int, bar: Any, like: array) -> array:
    """What a derivative returned for an array, in its shape and type; raises GradientError for another."""
    if bar is None:
        return zeros_like(like, requires_grad=False)
    shape = (*like.shape, *shape_of(like.dtype))
    if isinstance(bar, array) and (bar.shape, bar.dtype) == (like.shape, like.dtype):
        require_written(bar, f"adjoint {n} that {name_of(back)} returned")
        return bar
    values = None if isinstance(bar, array) else np.asarray(bar)
    if values is not None and (recorder := RECORDER.get()) is not None:
        message = f"a second derivative passes through {name_of(back)}, which returned {a_thing(bar)}"
        hint = f"compute in it with kernels and arrays, or give it a rule: custom_vjp({name_of(back)}, ...)"
        raise recorder.refusing(refusal(GradientError, message, "custom", hint))
    if values is None or values.dtype.kind not in "fiu" or (values.shape or (1,)) != shape:
        what = f"{bar.dtype} {bar.shape}" if values is None else f"{a_thing(bar)} of shape {values.shape}"
        message = (
            f"adjoint {n} that {name_of(back)} returned is {what}, and has to be {like.dtype} {like.shape}"
        )
        hint = "return adjoints in the shapes of the arguments"
        if values is None and bar.shape == like.shape:
            hint = "return arrays of the dtype of the arguments, kl.array(values, dtype=x.dtype), or NumPy's"
        raise refusal(GradientError, message, "custom", hint)
    return array(values.reshape(shape).astype(scalar_of(like.dtype).dtype), like.dtype)
