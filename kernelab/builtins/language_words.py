"""Words of the language that are not operations of the table, and functions written in the language itself.

Words take arrays, types or the program itself, and the frontend knows them one by one; here is what there is
to say of each, for help and for the reference.  What loops as often as an argument says, such as a search,
is a text in the language, which the frontend lowers when one is first called, so both derivatives follow
from it.
"""

import ast
import re
from functools import cache

_TEXT = r"""
tid: i = tid(); i, j = tid()
    Which thread of the launch this is: an int for each dimension of the grid, 1 to 4 of them; one alone
    counts all threads of any grid.
atomic_add: atomic_add(a, i, value)
    Add to ``a[i]``, whatever other threads do at the same time, and return what was there before; ``a[i]
    += value`` where that is not needed. There are as many indices as `a` has dimensions.
atomic_sub: atomic_sub(a, i, value)
    Subtract from ``a[i]``, as `atomic_add` adds, and return what was there before.
atomic_min: atomic_min(a, i, value)
    Put the smaller of ``a[i]`` and `value` there, and return what was there before; of vectors and matrices,
    that of each component. Its gradient goes to the value that won, the first one where several are equal.
atomic_max: atomic_max(a, i, value)
    Put the larger of ``a[i]`` and `value` there, and return what was there before; of vectors and matrices,
    that of each component. Its gradient goes to the value that won, the first one where several are equal.
atomic_and: atomic_and(a, i, value)
    Keep the bits of an int that are set in both, and return what was there before.
atomic_or: atomic_or(a, i, value)
    Set the bits of an int that are set in either, and return what was there before.
atomic_xor: atomic_xor(a, i, value)
    Set the bits of an int that are set in exactly one, and return what was there before.
atomic_exch: atomic_exch(a, i, value)
    Put `value` there, and return what was there before. An error where a gradient would have to pass:
    which value stays depends on the order of threads.
atomic_cas: atomic_cas(a, i, compare, value)
    Put `value` there if what is there equals `compare`, and return what was there before. An error where
    a gradient would have to pass: which value stays depends on the order of threads.
zeros: zeros(shape, dtype=float)
    In a kernel, an array of the thread's own, of an extent that is known when the kernel is compiled and
    at most 16,384 bytes, filled with zeros; it ends with the thread, and is differentiated.
print: print(...)
    Text and values, to the output of the cell, in the order of the threads.
printf: printf("%d: %f\n", i, x)
    Text with values in it, by the conversions of C, to the output of the cell.
len: len(x)
    The extent of the first axis of an array; the number of items of a tuple, of components of a vector,
    or of rows of a matrix.
range: for i in range(start, stop, step, adjoint="save")
    Python's range, with bounds that may be known at run time only. `adjoint` says what the loop keeps for
    its adjoint: ``"save"``, ``"recompute"`` or ``"checkpoint"``.
static: static(expression)
    The value that Python gives the expression when the kernel is compiled. It sees the notebook's names,
    types, lengths, and the index of a loop over a constant range, which is then written out.
type: type(x)(1)
    The type of a value, to convert another one to it.
constant: constant(x)
    The number itself: numbers of the notebook are constants anyway.
adjoint: adjoint[x] += value
    In a function under ``@func_grad(f)``, the adjoint of the argument `x`, or of ``x[i]`` as
    ``adjoint[x][i]``.
array: x: array[float]
    In an annotation, an array of one dimension; `array2d` and so on have more, as has
    ``array(dtype=float, ndim=2)``.
array1d: x: array1d[float]
    In an annotation, an array of one dimension.
array2d: x: array2d[float]
    In an annotation, an array of two dimensions.
array3d: x: array3d[float]
    In an annotation, an array of three dimensions.
array4d: x: array4d[float]
    In an annotation, an array of four dimensions.
indexedarray: x: indexedarray[float]
    In an annotation, the same as `array`, which takes picked elements, too.
indexedarray1d: x: indexedarray1d[float]
    In an annotation, the same as `array1d`.
indexedarray2d: x: indexedarray2d[float]
    In an annotation, the same as `array2d`.
indexedarray3d: x: indexedarray3d[float]
    In an annotation, the same as `array3d`.
indexedarray4d: x: indexedarray4d[float]
    In an annotation, the same as `array4d`.
select: select(condition, if_false, if_true)
    One of two values, the one for false first; `where` has the value for true first.
cast: cast(x, dtype)
    The bits of a number of 32 or 64 bits, read as a number of another type that is as wide. ``float(x)``
    and ``int(x)`` convert the number itself.
grad: grad(f)(x)
    The derivative of a function or an operation with respect to each argument that is a float, as a
    value, which is differentiated again like any other.
vector: vector(x, y, ...); vector(length=5, dtype=float)
    A vector of any length: of these components, or of zeros.
matrix: matrix(..., shape=(2, 3), dtype=float)
    A matrix of any shape, up to 144 numbers: of these entries by rows, of one number, or of zeros.
quaternion: quaternion(x, y, z, w, dtype=float)
    A quaternion of a type of floats.
transformation: transformation(p, q, dtype=float)
    A rigid motion of a type of floats.
identity: identity(n=3, dtype=float)
    The identity matrix.
quat_identity: quat_identity(dtype=float)
    The quaternion that turns nothing.
transform_identity: transform_identity(dtype=float)
    The transform that moves nothing.
expect_eq: expect_eq(a, b)
    End the launch with an error at this line unless the two are equal.
expect_neq: expect_neq(a, b)
    End the launch with an error at this line if the two are equal.
expect_near: expect_near(a, b, tolerance=1e-6)
    End the launch with an error at this line if the two, or any of their components, are further apart
    than that.
"""

WORDS: dict[str, tuple[str, str]] = {
    word: (written, " ".join(meaning.split()))
    for word, written, meaning in re.findall(r"^(\w+): (.+)\n((?:    .+\n)+)", _TEXT, re.MULTILINE)
}
"""How each word is written, and what it does."""


def said_of(word: str) -> str:
    """The signature and documentation of a word, in the form of an operation's; "" for other names."""
    return "\n\n".join(f"{written}\n    {meaning}" for written, meaning in ways_of(word))


def ways_of(word: str) -> list[tuple[str, str]]:
    """How a word is written, and what it does, for each way to write it; empty for other names."""
    return [said for name, said in (*WORDS.items(), *library_functions()) if name == word]


@cache
def library_functions() -> tuple[tuple[str, tuple[str, str]], ...]:
    """The functions in the language itself as users call them: the word, how it is written, what it does."""
    words = {meaning: word for (word, _), meaning in BY_COUNT.items()}
    words |= {word: word for word in LIBRARY_WORDS}
    functions = []
    for node in ast.parse(LIBRARY_TEXT).body:
        if isinstance(node, ast.FunctionDef) and node.name in words:
            word, sentence = words[node.name], " ".join((ast.get_docstring(node) or "").split())
            functions.append((word, (f"{word}({ast.unparse(node.args)})", sentence)))
    return tuple(functions)


# ---------------------------------------------------------------------------------- functions in the language


LIBRARY_TEXT = '''
def lower_bound(arr, value):
    """The index of the first element of a sorted array that is not less than a value; else the last index."""
    return lower_bound_within(arr, 0, len(arr), value)


def lower_bound_within(arr, arr_begin: int, arr_end: int, value):
    """The same among the elements from `arr_begin` up to `arr_end`."""
    low = arr_begin
    high = arr_end - 1
    while low < high:
        middle = low + (high - low) // 2
        if arr[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def sample_cdf(state: uint32, cdf):
    """An index drawn from the distribution whose sums up to each index an array holds, the last being 1."""
    return lower_bound_within(cdf, 0, len(cdf), cdf.dtype(randf(state)))


def log_factorial(k: float):
    """Stirling's series for the logarithm of k!, three places further on, where it is exact in float32."""
    x = k + 4.0
    series = (x - 0.5) * log(x) - x + 0.9189385332046727 + (1.0 / 12.0 - 1.0 / (360.0 * x * x)) / x
    return series - log((k + 1.0) * (k + 2.0) * (k + 3.0))


def poisson_below_ten(state: uint32, lam: float):
    """By counting how many numbers from 0 to 1 multiply to less than exp(-lam) (Knuth)."""
    count = uint32(0)
    product = randf(state)
    while product > exp(-lam):
        product *= randf(state)
        count += uint32(1)
    return count


def poisson_from_ten(state: uint32, lam: float):
    """By transformed rejection (Hoermann, The transformed rejection method for Poisson variables, 1993)."""
    b = 0.931 + 2.53 * sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2.0)
    k = 0.0
    searching = True
    while searching:
        u = randf(state) - 0.5
        v = 1.0 - randf(state)
        us = 0.5 - abs(u)
        k = floor((2.0 * a / us + b) * u + lam + 0.43)
        if us >= 0.07 and v <= limit:
            searching = False
        elif k >= 0.0 and (us >= 0.013 or v <= us):
            density = k * log(lam) - lam - log_factorial(k)
            searching = log(v * inverse_alpha / (a / (us * us) + b)) > density
    return uint32(k)


def poisson(state: uint32, lam: float):
    """A number of the Poisson distribution of mean `lam`; it takes one draw of the state, whatever it is."""
    own = rand_next(rand_next(state) ^ uint32(2654435769))
    count = uint32(0)
    if lam >= 10.0:
        count = poisson_from_ten(own, lam)
    elif lam > 0.0:
        count = poisson_below_ten(own, lam)
    return count


def curlnoise_octaves(state: uint32, coordinate, octaves, lacunarity=2.0, gain=0.5):
    """Flows of several scales: each `lacunarity` times as fine and `gain` times as strong as the last."""
    total = curlnoise(state, coordinate) * where(octaves > 0, 1.0, 0.0)
    frequency = 1.0
    weight = 1.0
    for k in range(1, int(octaves)):
        frequency *= lacunarity
        weight *= gain
        total += curlnoise(state, coordinate * frequency) * weight
    return total
'''

LIBRARY_WORDS = ("lower_bound", "sample_cdf", "poisson")
"""The words that mean a function of this text in every call."""

BY_COUNT = {
    ("lower_bound", 4): "lower_bound_within",
    **{("curlnoise", n): "curlnoise_octaves" for n in (3, 4, 5)},
}
"""The functions that calls of a word with so many arguments mean."""

DRAWS = {"sample_cdf": 1, "poisson": 1}
"""How many numbers they draw from their state."""
