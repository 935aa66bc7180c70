"""Vectors of which each lane has one anywhere are moved as a whole, with the bits of scalar code."""

import copy
import ctypes
import mmap
from math import prod
from typing import Any

import numpy as np
import pytest

from kernelab.backend.common.backends import pack
from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.codegen.cpp.entry import layout_of
from kernelab.codegen.vectors.vector_emitter import emit_vectors
from kernelab.codegen.vectors.vector_operations import Lanes
from kernelab.lang.ir import Function
from kernelab.passes.common.scalarise import scalarise
from tests.codegen.test_vectors import KINDS, kind_of, run_vectors
from tests.support.lowering import lowered

pytestmark = pytest.mark.skipif(not KINDS, reason="no vectors that this compiler makes use of")

PROGRAMS = {
    "read": "y[i, 0] = x[of[i]] * 2.0",
    "changed": "y[i, 1] = x[i] * 2.0",
    "read and changed": "y[i, 1] = x[of[i]] + x[to[i]]",
    "added": "y[to[i], 0] += x[i] * 2.0",
    "added at both ends": """
        d = x[to[i]] - x[of[i]]
        y[of[i], 0] += d
        y[to[i], 0] -= d
    """,
    "added to own": "y[i, 1] += x[of[i]]",
    "of integers": "z[i, 1] = w[to[i]] * 3",
    "integers added": "z[i, 1] += w[to[i]]",
    "added to one": """
        for k in range(of.shape[0]):
            y[k, 0] += x[i]
    """,
    "a component": "y[i, 1][1] = x[of[i]][0]",
    "in a branch": """
        if to[i] % 3 == 0:
            y[i, 1] = x[of[i]]
            y[i, 0] += x[to[i]]
    """,
}

MOVED = {
    "read": "components_apart_",
    "changed": "put_row<",
    "added": "widen_row<",
    "added to own": "add_row<",
    "of integers": "put_row<",
}
"""The helper that the code of a program calls."""


ELEMENTS: dict[str, tuple[int, ...]] = {
    **{f"vec{n}": (n,) for n in (2, 3, 4)},
    **{f"mat{n}{n}": (n, n) for n in (2, 3, 4)},
    "spatial_vector": (6,),
}
"""Types of elements, with their shapes."""


def scalarised(name: str, real: str) -> Function:
    whole, one = f"vec{min(prod(ELEMENTS[real]), 4)}i", "array[int]"
    lines = [line.removeprefix("        ") for line in PROGRAMS[name].strip("\n").splitlines()]
    text = f"""
def f(
    x: array[{real}], y: array2d[{real}], w: array[{whole}], z: array2d[{whole}], of: {one}, to: {one}
):
    i = tid()
    """
    return scalarise(lowered(text + "\n    ".join(lines), "f"))


def memory_that_ends_with_a_page(values: Any) -> Any:
    """A copy of an array in memory behind which nothing can be read."""
    page = mmap.PAGESIZE
    room = -(-values.nbytes // page) * page
    whole = mmap.mmap(-1, room + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0) == 0
    end = np.frombuffer(whole, np.uint8, values.nbytes, room - values.nbytes)
    copied = end.view(values.dtype).reshape(values.shape)
    copied[...] = values
    return copied


def arguments(elem: str, threads: int) -> dict[str, Any]:
    shape, rng = ELEMENTS[elem], np.random.default_rng(7)
    few = min(prod(shape), 4)
    floats = [rng.standard_normal((threads, *of, *shape)).astype(np.float32) for of in ((), (2,))]
    ints = [rng.integers(-(2**31), 2**31, (threads, *of, few)).astype(np.int32) for of in ((), (2,))]
    of, to = rng.permutation(threads), rng.integers(0, threads // 2, threads)
    to[1] = threads - 1  # the last element, which ends with its page
    values = (*floats, *ints, of.astype(np.int32), to.astype(np.int32))
    return dict(zip(("x", "y", "w", "z", "of", "to"), values, strict=True))


@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "added to one"])
@pytest.mark.parametrize("elem", ELEMENTS)
def test_all_lanes_have_the_bits_of_scalar_code(elem: str, name: str, lanes: Lanes) -> None:
    if name == "a component" and elem.startswith("mat"):
        name = "read"
    function, threads = scalarised(name, elem), 5 * lanes.width + 3
    expected = arguments(elem, threads)
    found = {key: memory_that_ends_with_a_page(values) for key, values in copy.deepcopy(expected).items()}
    run_vectors(function, lanes, (threads,), found)
    CpuBackend().build([function])["f"](pack(layout_of(function), (threads,), expected))
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("elem", ELEMENTS)
def test_vectors_are_moved_as_a_whole(elem: str, name: str) -> None:
    text = emit_vectors(scalarised(name, elem), KINDS[0]).text
    helper = f"{MOVED[name]}{min(prod(ELEMENTS[elem]), 4)}{'>' if '<' in MOVED[name] else ''}("
    assert helper in text.partition('extern "C"')[2]


@pytest.mark.parametrize("elem", ELEMENTS)
def test_what_all_lanes_add_to_one_element_is_summed_first(elem: str) -> None:
    text = emit_vectors(scalarised("added to one", elem), KINDS[0]).text.partition('extern "C"')[2]
    assert "sum_of(" in text and "_row<" not in text
