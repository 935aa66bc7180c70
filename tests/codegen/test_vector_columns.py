"""Loops along rows, of which each lane has its own, read columns together, with the bits of scalar code."""

import copy
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
from tests.codegen.test_vector_rows import memory_that_ends_with_a_page
from tests.codegen.test_vectors import KINDS, kind_of, run_vectors
from tests.support.lowering import lowered

pytestmark = pytest.mark.skipif(not KINDS, reason="no vectors that this compiler makes use of")

PROGRAMS = {
    "a sum": "for k in range(x.shape[1]): s += x[i, k] * x[i, k]",
    "backwards": "for k in range(x.shape[1]): s = 0.5 * s + x[i, x.shape[1] - 1 - k]",
    "neighbours": "for k in range(x.shape[1] - 1): s += x[i, k + 1] * x[i, k] - x[i, k]",
    "from a start": "for k in range(first[0], x.shape[1]): s = 0.5 * s + x[i, k]",
    "steps": "for k in range(0, x.shape[1], 3): s = 0.5 * s + x[i, k]",
    "integers": "for k in range(w.shape[1]): s = 0.5 * s + float(w[i, k])",
    "rows found in an array": "for k in range(x.shape[1]): s = 0.5 * s + x[of[i], k]",
    "two loops": """
        for j in range(3):
            for k in range(x.shape[1]):
                s = 0.5 * s + x[i, k] * float(j)
    """,
    "the outer counter": """
        for k in range(x.shape[1]):
            for j in range(of.shape[0]):
                s = 0.5 * s + x[i, k] * float(of[j])
    """,
    "rows of a matrix": """
        for j in range(x.shape[0]):
            t = float(0.0)
            for k in range(x.shape[1]):
                t += x[i, k] * x[j, k]
            s = 0.5 * s + t
    """,
    "an end that differs": """
        for k in range(x.shape[1]):
            if s > 1.0:
                break
            s += x[i, k]
    """,
    "a branch that all take": """
        for k in range(x.shape[1]):
            if k % 2 == 0:
                s = 0.5 * s + x[i, k]
    """,
    "written at the end": """
        for k in range(x.shape[1]):
            s += x[i, k]
        for k in range(x.shape[1]):
            z[i, k] = x[i, k] - s
    """,
    "added to": """
        for k in range(x.shape[1]):
            z[i, k] += x[i, k]
            z[i, k] *= 0.5
    """,
    "written in part": """
        for k in range(first[0], x.shape[1] - 1):
            z[i, x.shape[1] - 1 - k] = z[i, x.shape[1] - 1 - k] + x[i, k]
    """,
    "written in turn": """
        for j in range(of.shape[0]):
            for k in range(x.shape[1]):
                z[i, k] = 0.5 * z[i, k] + x[i, k]
            z[i, 0] += float(j)
    """,
    "written beside": """
        for k in range(x.shape[1] - 1):
            z[i, k + 1] = z[i, k] + x[i, k]
    """,
    "written in a branch": """
        for k in range(x.shape[1]):
            z[i, k] += 1.0
            if x[i, k] > 0.0:
                z[i, k] += x[i, k]
    """,
    "rows of others": """
        for k in range(x.shape[1]):
            z[of[i], k] += x[i, k]
    """,
}

ONE_BY_ONE = "steps", "an end that differs", "a branch that all take"
"""The programs that do not read columns together."""

WRITTEN_TOGETHER = "written at the end", "added to", "written in part", "written in turn"
"""The programs that write columns together."""

LAYOUTS = {
    "rows": lambda values: values,
    "columns": lambda values: np.asfortranarray(values),
    "a part": lambda values: np.repeat(values, 2, 1)[:, 1 : values.shape[1] + 1],
    "each second": lambda values: np.repeat(values, 2, 1)[:, ::2],
}


def scalarised(name: str) -> Function:
    lines = [line.removeprefix("        ") for line in PROGRAMS[name].strip("\n").splitlines()]
    text = """
def f(
    x: array2d[float], w: array2d[int], of: array[int], first: array[int], y: array[float], z: array2d[float]
):
    i = tid()
    s = float(0.0)
    """
    return scalarise(lowered(text + "\n    ".join([*lines, "y[i] = s"]), "f"))


def arguments(threads: int, columns: int, layout: str) -> dict[str, Any]:
    rng = np.random.default_rng(columns)
    x = LAYOUTS[layout](rng.standard_normal((threads, columns)).astype(np.float32))
    w = rng.integers(-(2**31), 2**31, (threads, columns)).astype(np.int32)
    of = rng.permutation(threads).astype(np.int32)
    y = np.zeros(threads, np.float32)
    # A launch that writes along columns runs scalar code.
    written = LAYOUTS[layout if layout != "columns" else "rows"]
    z = written(rng.standard_normal((threads, columns)).astype(np.float32))
    return {"x": x, "w": w, "of": of, "first": np.array([min(2, columns)], np.int32), "y": y, "z": z}


def require_same_bits(
    function: Function, build: Any, lanes: Lanes, expected: dict[str, Any], to_the_end: str
) -> None:
    """Run vector code and scalar code; arrays named in `to_the_end` end with a page in vector code."""
    found, grid = copy.deepcopy(expected), (len(expected["y"]),)
    found |= {key: memory_that_ends_with_a_page(expected[key]) for key in to_the_end}
    run_vectors(function, lanes, grid, found)
    build(pack(layout_of(function), grid, expected))
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=f"{key}, x of {expected['x'].shape}")


@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_lanes_have_the_bits_of_scalar_code(layout: str, name: str, lanes: Lanes) -> None:
    function, threads = scalarised(name), 3 * lanes.width + 3
    build = CpuBackend().build([function])["f"]
    for columns in (1, lanes.width - 1, lanes.width, 2 * lanes.width + 3):
        given = arguments(threads, columns, layout)
        require_same_bits(function, build, lanes, given, "xz" if layout == "rows" else "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_columns_are_moved_together(name: str) -> None:
    text = emit_vectors(scalarised(name), KINDS[0]).text.rpartition('extern "C"')[2]
    assert ("get_columns(" in text) == (name not in ONE_BY_ONE)
    assert ("put_columns(" in text) == (name in WRITTEN_TOGETHER)


@pytest.mark.parametrize(("place", "is_own"), [("j, i, k", True), ("0, i, 16 * j + k", False)])
def test_columns_are_written_together_where_no_other_thread_comes_to_their_row(
    place: str, is_own: bool
) -> None:
    head = "def f(z: array3d[float]):\n    j, i = tid()\n    for k in range(16):\n"
    text = f"{head}        z[{place}] = 1.0\n"
    written = emit_vectors(scalarise(lowered(text, "f")), KINDS[0]).text.rpartition('extern "C"')[2]
    assert ("put_columns(" in written) == is_own


@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
def test_what_lies_between_rows_is_not_touched(lanes: Lanes) -> None:
    function, threads, columns = scalarised("added to"), 2 * lanes.width, lanes.width + 3
    given = arguments(threads, columns, "rows")
    whole = np.zeros((threads, columns + 2), np.float32)
    given["z"] = whole[:, 1:-1]
    run_vectors(function, lanes, (threads,), given)
    np.testing.assert_array_equal(whole[:, 1:-1], 0.5 * given["x"])
    assert not whole[:, 0].any() and not whole[:, -1].any()
