"""Words.

What is no operation of the table, because its arguments are arrays, types or the program itself: the frontend
knows these words one by one.  This is what there is to say of each, and of the functions in the language
itself, for help and for the reference.
"""

import ast
import re
from functools import cache

from kernelab.builtins.records import library

TEXT = r"""
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
    The derivative of a function or an operation by each argument that is a float, as a value, which is
    differentiated again like any other.
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
    for word, written, meaning in re.findall(r"^(\w+): (.+)\n((?:    .+\n)+)", TEXT, re.MULTILINE)
}
"""How each word is written, and what it does."""


def said_of(word: str) -> str:
    """The signature and documentation of a word, in the form of an operation's; "" for other names."""
    said = [WORDS[word]] if word in WORDS else [meaning for name, meaning in functions() if name == word]
    return "\n\n".join(f"{written}\n    {meaning}" for written, meaning in said)


@cache
def functions() -> tuple[tuple[str, tuple[str, str]], ...]:
    """The functions in the language itself as users call them: the word, how it is written, what it does."""
    words = {meaning: word for (word, _), meaning in library.BY_COUNT.items()}
    words |= {word: word for word in library.WORDS}
    definitions = (node for node in ast.parse(library.TEXT).body if isinstance(node, ast.FunctionDef))
    return tuple(
        (words[node.name], (f"{words[node.name]}({ast.unparse(node.args)})", _sentence(node)))
        for node in definitions
        if node.name in words
    )


def _sentence(node: ast.FunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split())
