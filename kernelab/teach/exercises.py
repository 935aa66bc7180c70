"""Exercises that check themselves: `check` compares an answer with what is right, and gives hints in stages.

What is right it asks of differences, or of a reference that the exercise gives.
"""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelab import hooks
from kernelab.autodiff.jacobians.differences import SHIFTS, extrapolated
from kernelab.autograd import jacobian_fd
from kernelab.data_classes import dataclass
from kernelab.errors import KernelError, KernelValueError, counted, name_of
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.launch import launch
from kernelab.runtime.ops.function_calls import is_function
from kernelab.views.pages.display import View, show_now
from kernelab.views.pages.markup import Run, words, written

__all__ = ["NotYet", "check"]

_failures: Counter[tuple[str, ...]] = Counter()
"""How often each check has failed in this session: so many hints are shown."""


class NotYet(KernelError, AssertionError):
    """An answer to an exercise that is blank, or not right yet."""

    def _render_traceback_(self) -> list[str]:
        """The message alone: which line called the check, a student sees."""
        return hooks.error_lines(self.with_traceback(None))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What an answer gives at one place, and what it has to be."""

    place: str
    found: Any
    expected: Any
    source: str = ""


@explains_bad_calls(shown="write kl.teach.check(answer, expected)")
def check(
    answer: Any,
    expected: Any = None,
    *,
    of: Callable[..., Any] | None = None,
    at: Any = (),
    dim: Any = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    hints: Sequence[str] | str = (),
    name: str = "",
    tolerance: float = 1e-3,
) -> None:
    """Check an answer to an exercise, and say in a sentence that it is right.

    ``check(slope, of=f, at=[0.5, 2.0])`` compares a derivative that was written by hand with differences of
    `f` at these points, a list or an array: a number, or a tuple of arguments, of each; of several arguments
    `slope` returns a tuple.  ``check(mine, reference, at=[...])`` compares two functions, ``check(mine,
    reference, dim=n, inputs=[...], outputs=[...])`` what a kernel writes to copies of the outputs with what
    `reference` returns for the inputs as NumPy arrays (or writes, if it is a kernel), and ``check(value,
    0.5)`` two values.
    Numbers pass within `tolerance` of what is expected, relative to it, or within 1e-6, and integers if they
    are equal.  Differences, and sums in float32, leave room for 1e-6 and 1e-7 of the largest number.

    Raises NotYet, an AssertionError, where the answer is blank (``...`` or None) or not right, with one more
    of the `hints` each time.  An answer that is right shows it.

    >>> def slope(x):
    ...     return 2.0 * x
    >>> kl.teach.check(slope, of=lambda x: x * x, at=[0.5, 2.0])
    ✓ slope is right at 2 of 2 points
    """
    __tracebackhide__ = True  # IPython shows the frames of the user
    name = name or getattr(answer, "__name__", "") or getattr(answer, "name", "") or "the answer"
    hints = (hints,) if isinstance(hints, str) else hints
    stage = (name, *hints)
    if _is_blank(answer):
        raise _blank(name, hints)
    if expected is None and of is None:
        raise _unclear(
            "there is nothing to compare with", "write check(answer, expected), or of=f, at=[0.5, 2.0]"
        )
    if expected is not None and of is not None:
        raise _unclear("there are two things to compare with", "leave the second argument away, or of=")
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < math.inf:
        raise _unclear(f"tolerance={tolerance!r} is not a share of a number", "write tolerance=1e-3")
    try:
        compared = _comparisons(answer, expected, of, at, (dim, inputs, outputs))
    except NotImplementedError:
        raise _blank(name, hints) from None
    found = [leaf for one in compared for leaf in _leaves(one.found)]
    if found and all(leaf is None for leaf in found):
        returns = "returns nothing yet; the value after `return` is its answer"
        raise _blank(name, hints, "writes to no output yet" if isinstance(answer, Kernel) else returns)
    if any(map(_is_blank, found)):
        raise _blank(name, hints)
    largest = max((_largest(leaf) for one in compared for leaf in _leaves(one.expected)), default=0.0)
    room = max(1e-6, (1e-7 if of is None else 1e-6) * largest)
    wrong = [one for one in compared if not _agrees(one.found, one.expected, tolerance, room)]
    if wrong:
        _failures[stage] += 1
        raise _wrong(name, wrong, len(compared), hints[: _failures[stage]], len(hints))
    show_now(View(words(Run("✓ ", "good"), Run(name, "strong"), f" is right{_points(compared)}")))


def _is_blank(value: Any) -> bool:
    return value is None or value is Ellipsis


def _blank(name: str, hints: Sequence[str], state: str = "is still blank") -> NotYet:
    message = f"{name} {state}\n  write your answer into the cell above, run that, then run this one again"
    return NotYet.of(message, "exercise", hints[0] if hints else "")


def _wrong(
    name: str, wrong: Sequence[_Comparison], count: int, hints: Sequence[str], all_hints: int
) -> NotYet:
    lines = [f"{name} is not right yet" + (f": {count - len(wrong)} of {count} agree" if count > 1 else "")]
    lines += [
        f"  {one.place}{_given(one.found)}, and has to be {_given(one.expected)}{one.source}"
        for one in wrong[:3]
    ]
    if len(hints) > 1:
        lines += [f"  earlier hint: {hint}" for hint in hints[:-1]]
    hint = hints[-1] if hints else ""
    if len(hints) < all_hints:
        hint += "\n  (run this cell again for the next hint)"
    return NotYet.of("\n".join(lines), "exercise", hint)


def _unclear(message: str, hint: str) -> KernelValueError:
    return KernelValueError.of(message, "exercise", hint)


def _comparisons(
    answer: Any, expected: Any, of: Any, at: Any, launched: tuple[Any, Sequence[Any], Sequence[Any]]
) -> list[_Comparison]:
    __tracebackhide__ = True  # IPython shows the frames of the user
    if isinstance(answer, Kernel):
        dim, _, outputs = launched
        if not callable(expected):
            hint = "write check(kernel, reference, dim=n, inputs=[...], outputs=[...])"
            raise _unclear("a kernel is compared with what a reference returns", hint)
        if not outputs or (dim is not None and 0 in np.atleast_1d(dim)):
            raise _unclear("there is nothing that the kernel writes", "write dim=n, outputs=[...]")
        results, needed = _written(answer, *launched), _written(expected, *launched)
        if len(results) != len(needed):
            message = f"{counted(len(results), 'output')} to compare with {counted(len(needed), 'result')}"
            raise _unclear(message, "write outputs=[...], an array for each result of the reference")
        names = [parameter.name for parameter in answer.plan.parameters[-len(results) :]]
        outcomes = zip(names, results, needed, strict=True)
        return [_Comparison(f"`{name}` is ", mine, theirs) for name, mine, theirs in outcomes]
    if of is None and not callable(expected):
        return [_Comparison("it is ", answer, expected)]
    if not callable(answer):
        message = f"functions are compared at points, and {described(answer)} is none"
        raise _unclear(message, "write the name of the function: check(slope, of=f, at=[0.5, 2.0])")
    given = [at] if isinstance(at, int | float | np.generic) else list(at)
    if not given:
        raise _unclear("there is no point to compare at", "write at=[0.5, 2.0]")
    source = " by differences" if of is not None else ""
    compared = []
    for one in given:
        point = one if isinstance(one, tuple) else (one,)
        _require_call(expected if of is None else of, len(point), "the function to compare with")
        needed = expected(*_own(point)) if of is None else _slopes(of, point)
        place = ", ".join(map(_given, point))
        if of is not None and not all(np.isfinite(leaf).all() for leaf in _leaves(needed)):
            raise _unclear(f"differences of the function at {place} are not finite", "take other points")
        _require_call(answer, len(point), "")
        compared.append(_Comparison(f"at {place} it is ", answer(*_own(point)), needed, source))
    return compared


def _require_call(f: Callable[..., Any], count: int, which: str) -> None:
    """Raises where a function does not take so many arguments: NotYet for an answer, which is not `which`."""
    try:
        inspect.signature(f).bind(*range(count))
    except ValueError:
        return  # it does not say what it takes
    except TypeError as problem:
        message = f"{which or name_of(f)} is called with {counted(count, 'argument')} here: {problem}"
        if which:
            raise _unclear(
                message, "it takes the inputs, or a point: at=[(0.5, 2.0)] for two arguments"
            ) from None
        raise NotYet.of(message, "exercise", "let it take the arguments that the exercise names") from None


def _slopes(f: Callable[..., Any], point: tuple[Any, ...]) -> Any:
    """The derivatives of `f` with respect to its arguments, from differences: one, or a tuple."""
    if is_function(f) or any(isinstance(value, array) for value in point):
        jacobians = jacobian_fd(f, inputs=[_varied(value) for value in point])
        if any(output for _, output in jacobians):
            raise _unclear("the function of= returns several arrays", "check one: of=lambda x: f(x)[0]")
        slopes = [np.squeeze(jacobians[k, 0].numpy()) for k in range(len(point))]
    else:
        slopes = [_differences(f, point, k) for k in range(len(point))]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _varied(value: Any) -> Any:
    if not isinstance(value, array):
        return value
    copy = value.copy()
    copy.requires_grad = True
    return copy


def _differences(f: Callable[..., Any], point: tuple[Any, ...], k: int) -> Any:
    """Differences by argument `k`; the steps are wide enough for a function that computes in float32."""
    start = np.asarray(point[k], np.float64)
    steps = np.asarray(3e-3 * np.maximum(1.0, np.abs(start)))
    looked = np.zeros((len(SHIFTS), *start.shape))
    for i, *place in np.ndindex(looked.shape):
        values = start.copy()
        values[*place] += SHIFTS[i] * steps[*place]
        value = f(*_own(point[:k]), values if values.shape else float(values), *_own(point[k + 1 :]))
        try:
            looked[i, *place] = float(value)
        except TypeError:
            message = f"the function of= returns {described(value)}, and has to return a number"
            raise _unclear(message, "check one of them: of=lambda x: f(x)[0]") from None
    slopes = extrapolated(looked, steps)
    return slopes if slopes.shape else float(slopes)


def _written(by: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """What a kernel writes to copies of the outputs, or a function returns for the inputs."""
    if isinstance(by, Kernel):
        if not all(isinstance(x, array) for x in outputs):
            raise _unclear("outputs= are arrays of kernelab", "write outputs=[kl.zeros(n)]")
        ins, outs = _own(inputs), _own(outputs)
        before = [x.allocation.version for x in outs]
        launch(by, dim=dim, inputs=ins, outputs=outs, record_tape=False)
        pairs = zip(outs, before, strict=True)
        return [None if x.allocation.version == version else x.numpy() for x, version in pairs]
    _require_call(by, len(inputs), "the reference")
    returned = by(*(x.numpy() if isinstance(x, array) else x for x in _own(inputs)))
    return list(returned) if isinstance(returned, tuple) else [returned]


def _own(arguments: Sequence[Any]) -> list[Any]:
    """Arguments for a function of the user's, which may change its arrays."""
    return [x.copy() if isinstance(x, array | np.ndarray) else x for x in arguments]


def _leaves(value: Any) -> list[Any]:
    """The numbers and arrays of a value as NumPy arrays, whatever else there is as it is."""
    if isinstance(value, tuple | list | dict):
        parts = value.values() if isinstance(value, dict) else value
        return [leaf for part in parts for leaf in _leaves(part)]
    values = value.numpy() if isinstance(value, array) else value
    if not isinstance(values, int | float | complex | np.ndarray | np.generic):
        return [values]
    numbers = np.squeeze(np.asarray(values))
    return [numbers if numbers.dtype.kind in "biuc" else numbers.astype(np.float64)]


def _largest(leaf: Any) -> float:
    """The largest absolute value among finite numbers, 0 without any."""
    numbers = np.abs(leaf).astype(np.float64) if isinstance(leaf, np.ndarray) else np.zeros(0)
    return float(np.max(numbers, initial=0.0, where=np.isfinite(numbers)))


def _agrees(found: Any, expected: Any, tolerance: float, room: float) -> bool:
    """Whether two values are the same: numbers nearly, all else exactly; lists part by part."""
    if isinstance(found, tuple | list) and isinstance(expected, tuple | list) and len(found) == len(expected):
        pairs = zip(found, expected, strict=True)
        return all(_agrees(mine, theirs, tolerance, room) for mine, theirs in pairs)
    if isinstance(found, dict) and isinstance(expected, dict):
        alike = found.keys() == expected.keys()
        return alike and all(_agrees(found[key], expected[key], tolerance, room) for key in expected)
    mine, theirs = _whole(found), _whole(expected)
    if mine is None or theirs is None:
        is_single = not isinstance(found, tuple | list | dict)
        return is_single and bool(type(found) is type(expected) and found == expected)
    return _is_near(mine, theirs, tolerance, room)


def _whole(value: Any) -> Any:
    """A list of numbers, or of such lists of one length, as the array that it may stand for; else None."""
    if isinstance(value, dict):
        return None
    if not isinstance(value, tuple | list):
        return next((leaf for leaf in _leaves(value) if isinstance(leaf, np.ndarray)), None)
    parts = [_whole(part) for part in value]
    alike = len({None if part is None else part.shape for part in parts}) == 1
    return np.squeeze(np.stack(parts)) if alike and parts[0] is not None else None


def _is_near(mine: Any, theirs: Any, tolerance: float, room: float) -> bool:
    kinds = {mine.dtype.kind, theirs.dtype.kind}
    if mine.shape != theirs.shape or ("b" in kinds and len(kinds) > 1):
        return False
    if kinds <= set("biu"):
        return np.array_equal(mine, theirs)
    finite = np.isfinite(mine) & np.isfinite(theirs)
    is_near = np.allclose(mine[finite], theirs[finite], rtol=tolerance, atol=room)
    return is_near and np.array_equal(mine[~finite], theirs[~finite], equal_nan=True)


def _given(value: Any) -> str:
    """A value as a message shows it: six digits, the first elements of an array."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_given, value))})"
    if isinstance(value, complex | np.complexfloating | np.bool_):
        return str(value)
    values = value.numpy() if isinstance(value, array) else value
    if isinstance(values, np.ndarray) and values.dtype.kind == "c":
        return str(values)
    if isinstance(values, np.ndarray) and values.size > 6:
        return f"{written(values.reshape(-1)[:6])[:-1]}, ...) of shape {values.shape}"
    return written(values) if isinstance(values, int | float | np.ndarray | np.generic) else repr(value)


def _points(compared: Sequence[_Comparison]) -> str:
    count = len(compared)
    return f" at {count} of {counted(count, 'point')}" if compared[0].place[:2] == "at" else ""
