"""What must hold of every host program: its gradients are exact, whatever it overwrites.

The oracle runs the same text on NumPy arrays of complex numbers, launches a thread at a time as plain Python:
with a tiny imaginary part on the inputs, that of the result is the derivative, to the last digit.
"""

import cmath
import contextlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

import kernelab as kl
from tests.strategies.hosts import KERNELS
from tests.support import python_oracle

STEP = 1e-30
INDEX = np.array([0, 2, 1, 1, 0, 2], np.int32)
kernels: dict[str, Any] = kl.compile("\n".join(KERNELS.values()))
_code = {name: python_oracle.compiled(text) for name, text in KERNELS.items()}
Policy = Literal["save", "error", "careless", "passive"]
POLICIES: tuple[Policy, ...] = ("save", "error", "careless", "passive")
Floats = np.ndarray[Any, Any]
Complex = np.ndarray[Any, np.dtype[np.complex128]]


class TiedError(Exception):
    """A program sorts keys whose order rounding decides: it has no derivative there."""


class TooLargeError(Exception):
    """A program's numbers grow beyond what can be compared."""


class _Oracle:
    """The words of a host program, on NumPy arrays of complex numbers."""

    @staticmethod
    def run(name: str, *views: Complex) -> None:
        parameters = dict(zip("abcd", views, strict=False))
        ndims = {key: 1 for key, value in parameters.items() if isinstance(value, np.ndarray)}
        python_oracle.run_in_place(
            _code[name],
            name,
            (3,),
            parameters,
            ndims,
            sin=cmath.sin,
            cos=cmath.cos,
            float64=complex,
        )

    @staticmethod
    def copy(dest: Complex, src: Complex) -> None:
        dest[...] = src.copy()

    @staticmethod
    def fill(dest: Complex, value: float) -> None:
        dest[...] = value

    assign = fill

    @staticmethod
    def clone(src: Complex) -> Complex:
        return src.copy()

    @staticmethod
    def blank() -> Complex:
        return np.zeros(3, complex).view(_ViewsOfComplex)

    @staticmethod
    def poke(dest: Complex, place: int, value: float) -> None:
        dest[place] = int(value) if dest.dtype.kind == "i" else value

    @staticmethod
    def checkpoint(func: Callable[[], None]) -> None:
        func()

    @staticmethod
    def raw(view: Complex) -> Complex:
        return view

    @staticmethod
    def pick(view: Complex, places: Any) -> Complex:
        return view[np.array(places)]

    @staticmethod
    def put(view: Complex, places: Any, values: Complex) -> None:
        for place, value in zip(np.array(places), values.copy(), strict=True):
            view[place] = value

    @staticmethod
    def sort(view: Complex) -> None:
        view[...] = view[_order(view, view)]

    @staticmethod
    def sort_pairs(keys: Complex, values: Complex) -> None:
        order = _order(keys, values)
        sorted_keys, sorted_values = keys[order], values[order]
        keys[...] = sorted_keys
        values[...] = sorted_values

    @staticmethod
    def runs(view: Complex, dest: Complex) -> None:
        values = [x for k, x in enumerate(view) if k == 0 or x.real != view[k - 1].real]
        dest[: len(values)] = values

    @staticmethod
    def scan(view: Complex, dest: Complex) -> None:
        dest[...] = np.cumsum(view)

    @staticmethod
    def total(view: Complex, dest: Complex) -> None:
        dest[0] = view.sum()

    @staticmethod
    def inner(a: Complex, b: Complex, dest: Complex) -> None:
        dest[0] = (a * b).sum()

    @staticmethod
    def mapped(a: Complex, b: Complex) -> Complex:
        return np.array([x * cmath.cos(y) for x, y in zip(a, b, strict=True)]).view(_ViewsOfComplex)

    @staticmethod
    def mapped_into(a: Complex, b: Complex, dest: Complex) -> None:
        dest[...] = _Oracle.mapped(a, b)

    @staticmethod
    def with_rule(a: Complex, b: Complex) -> Complex:
        return np.array([x * cmath.sin(y) for x, y in zip(a, b, strict=True)]).view(_ViewsOfComplex)

    @staticmethod
    def host_sine(dest: Complex, src: Complex) -> None:
        dest[...] = [cmath.sin(x) for x in src]

    unrecorded = run
    take = copy


class _Kernelab:
    """The same words, on arrays."""

    @staticmethod
    def run(name: str, *views: kl.array) -> None:
        kernels[name][3](*views)

    @staticmethod
    def fill(dest: kl.array, value: float) -> None:
        dest.fill_(value)

    @staticmethod
    def assign(dest: kl.array, values: list[float]) -> None:
        dest.assign(np.array(values))

    @staticmethod
    def blank() -> kl.array:
        return kl.zeros(3, dtype=kl.float64, requires_grad=True)

    @staticmethod
    def poke(dest: kl.array, place: int, value: float) -> None:
        dest.numpy()[place] = value

    @staticmethod
    def host_sine(dest: kl.array, src: kl.array) -> None:
        dest.numpy()[...] = np.sin(src.numpy())

    @staticmethod
    def unrecorded(name: str, *views: kl.array) -> None:
        kl.launch(kernels[name], 3, list(views), record_tape=False)

    @staticmethod
    def raw(view: kl.array) -> kl.array:
        return kl.array(ptr=view.ptr, dtype=view.dtype, shape=view.shape, strides=view.strides)

    @staticmethod
    def pick(view: kl.array, places: Any) -> Any:
        return view[places]

    @staticmethod
    def put(view: kl.array, places: Any, values: kl.array) -> None:
        view[places] = values

    @staticmethod
    def take(dest: kl.array, values: Any) -> None:
        dest.assign(values)

    @staticmethod
    def sort(view: kl.array) -> None:
        kl.utils.radix_sort_pairs(view, kl.zeros(3, dtype=int), 3)

    @staticmethod
    def sort_pairs(keys: kl.array, values: kl.array) -> None:
        kl.utils.radix_sort_pairs(keys, values, 3)

    @staticmethod
    def runs(view: kl.array, dest: kl.array) -> None:
        kl.utils.runlength_encode(view, dest, kl.zeros(3, dtype=int))

    @staticmethod
    def total(view: kl.array, dest: kl.array) -> None:
        kl.utils.array_sum(view, out=dest[0:1])

    @staticmethod
    def inner(a: kl.array, b: kl.array, dest: kl.array) -> None:
        kl.utils.array_inner(a, b, out=dest[0:1])

    @staticmethod
    def mapped(a: kl.array, b: kl.array) -> Any:
        return kl.map(lambda x, y: x * kl.cos(y), a, b)

    @staticmethod
    def mapped_into(a: kl.array, b: kl.array, dest: kl.array) -> None:
        kl.map(lambda x, y: x * kl.cos(y), a, b, out=dest)

    with_rule = staticmethod(
        kl.func.custom_vjp(
            lambda a, b: a * kl.sin(b),
            lambda a, b, bar: (bar * kl.sin(b), bar * a * kl.cos(b)),
            check=False,
        )
    )
    checkpoint = staticmethod(kl.checkpoint)
    scan = staticmethod(kl.utils.array_scan)
    copy = staticmethod(kl.copy)
    clone = staticmethod(kl.clone)


class _ViewsOfComplex(np.ndarray):  # type: ignore[type-arg]
    """A NumPy array whose `flatten` is a view where there can be one, as an array's is.

    NumPy itself may read elements that an assignment has just written, where the two sides overlap.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, np.array(value))

    def flatten(self, *_: Any) -> Any:
        return self.reshape(-1)


def _order(keys: Complex, values: Complex) -> Any:
    """The stable order of real parts, in which -0.0 comes before 0.0.

    Raises TiedError where rounding decides.  Complex arithmetic does not keep the sign of a zero, so zeros
    are tied if their order matters.
    """
    order = np.lexsort((~np.signbit(keys.real), keys.real))
    sizes, moved = keys.real[order], np.stack([keys, values])[:, order]
    gaps = np.diff(sizes)
    close = gaps <= 1e-12 * np.abs(sizes[1:])
    exact = (gaps == 0) & (sizes[1:] != 0)
    if np.any(close & ~exact & (np.diff(moved) != 0).any(axis=0)):
        raise TiedError
    return order


def _words(source: type) -> dict[str, Any]:
    return {name: getattr(source, name) for name in vars(source) if not name.startswith("_")}


def check_tape(program: tuple[str, str], seed: int = 0, policy: Policy = "save") -> None:
    """Check that a program's gradients are exact, twice, and that the backward pass changes no primal value.

    Under the policy "error" nothing is checked of a program that overwrites what a gradient needs; a careless
    program may be refused, too.  Under "passive" the second array has no gradients: where one would pass it
    there is a warning or an error.  Nothing is compared where a sort has no derivative, or numbers overflow.
    """
    with contextlib.suppress(TiedError, TooLargeError, *_LOUD[policy]):
        _check(program, seed, policy)


_LOUD: dict[Policy, tuple[type[BaseException], ...]] = {
    "save": (),
    "error": (kl.TapeError,),
    "careless": (kl.TapeError, kl.KernelWarning),
    "passive": (kl.TapeError, kl.KernelWarning),
}


def _check(program: tuple[str, str], seed: int, policy: Policy) -> None:
    inside, after = program
    a, b, a_dot, b_dot, a_bar, b_bar = _drawn(seed)
    is_passive = policy == "passive"
    if is_passive:
        b_dot, b_bar = 0.0 * b_dot, 0.0 * b_bar
    values, dots = slopes(inside, (a, b), (a_dot, b_dot))
    slope = float(np.sum(a_bar * dots[0]) + np.sum(b_bar * dots[1]))

    leaves = [
        kl.array(given, dtype=kl.float64, requires_grad=active)
        for given, active in ((a, True), (b, not is_passive))
    ]
    mine = {"A": kl.clone(leaves[0]), "B": kl.clone(leaves[1])}
    # A second leaf of zeros is added to the first, and shares its gradient: both have the same.
    other = kl.zeros(8, kl.float64, requires_grad=True)
    shares = seed % 2
    if shares:
        other.grad = leaves[0].grad
    names = _words(_Kernelab) | mine | {"I": kl.array(INDEX, dtype=kl.int32)}
    with kl.Tape("error" if policy == "error" else "save") as tape:
        for made, leaf in zip(mine.values(), leaves, strict=True):
            kl.copy(made, leaf)
        if shares:
            mine["A"][...] += other
        exec(inside, names)
    for made, expected in zip(mine.values(), values, strict=True):
        np.testing.assert_allclose(np.array(made.list()), expected.ravel(), rtol=1e-10, atol=1e-12)
    exec(after, names)
    before = [made.list() for made in mine.values()]
    seeds = {mine["A"]: a_bar} if is_passive else {mine["A"]: a_bar, mine["B"]: b_bar}
    for times in (1, 2):
        tape.backward(grads=seeds)
        found = [np.zeros(()) if leaf.grad is None else np.array(leaf.grad.list()) for leaf in leaves]
        total = float(np.sum(found[0] * a_dot) / (1 + shares) + np.sum(found[1] * b_dot.ravel()))
        assert abs(total - times * slope) <= 1e-9 * max(1.0, abs(slope)), (total / times, slope)
    assert [made.list() for made in mine.values()] == before


def slopes(program: str, x: tuple[Floats, Floats], along: tuple[Floats, Floats]) -> tuple[Any, Any]:
    """What a program leaves in its two arrays, and the derivatives of that along a direction.

    Raises TiedError, and TooLargeError where a number overflows.
    """
    state = [(v + STEP * 1j * d).view(_ViewsOfComplex) for v, d in zip(x, along, strict=True)]
    names = _words(_Oracle) | dict(zip("AB", state, strict=True)) | {"I": INDEX.copy()}
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            exec(program, names)
            found = [s.real.copy() for s in state], [s.imag / STEP for s in state]
    except OverflowError:
        raise TooLargeError from None
    except ValueError as error:
        if str(error) != "math domain error":  # which cmath.sin raises for infinity
            raise
        raise TooLargeError from None
    if not all(np.isfinite(part).all() for parts in found for part in parts):
        raise TooLargeError
    return found


def ran(program: str, a: kl.array, b: kl.array) -> tuple[kl.array, kl.array]:
    """What a program leaves in copies of two arrays."""
    mine = {"A": kl.clone(a), "B": kl.clone(b)}
    exec(program, _words(_Kernelab) | mine | {"I": kl.array(INDEX, dtype=kl.int32)})
    return mine["A"], mine["B"]


def seen(arrays: Any) -> list[Floats]:
    """The elements of arrays, in NumPy's own."""
    return [np.array(elements.list()).reshape(elements.shape) for elements in arrays]


def recorded(inside: str, seed: int) -> tuple[kl.Tape, dict[kl.array, Any], list[kl.array]]:
    """A tape of a program, cotangents of the arrays that it leaves, and the arrays that it starts from."""
    a, b, _, _, a_bar, b_bar = _drawn(seed)
    made = [kl.array(given, dtype=kl.float64, requires_grad=True) for given in (a, b)]
    mine = dict(zip("AB", map(kl.clone, made), strict=True))
    with kl.Tape() as tape:
        for own, leaf in zip(mine.values(), made, strict=True):
            kl.copy(own, leaf)
        exec(inside, _words(_Kernelab) | mine | {"I": kl.array(INDEX, dtype=kl.int32)})
    return tape, {mine["A"]: a_bar, mine["B"]: b_bar}, made


def _drawn(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in [(8,), (3, 4)] * 3]


def reproducer(program: tuple[str, str], seed: int, policy: str) -> str:
    """A test to paste."""
    inside, after = program
    return (
        f'INSIDE = """\n{inside}"""\nAFTER = """\n{after}"""\n\n\ndef test_it() -> None:\n'
        f"    check_tape((INSIDE, AFTER), seed={seed}, policy={policy!r})\n"
    )


def checked_tape(program: tuple[str, str], seed: int = 0, policy: Policy = "save") -> None:
    """`check_tape`, whose errors say which test would fail the same way."""
    try:
        check_tape(program, seed, policy)
    except Exception as error:  # whatever it is, the program is what matters
        error.add_note(reproducer(program, seed, policy))
        raise
