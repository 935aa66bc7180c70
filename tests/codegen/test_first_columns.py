"""The first columns of rows, which each thread reads or changes by number, with the bits of scalar code."""

from typing import Any

import numpy as np
import pytest

from kernelab.backend.cpu.cpu_backend import CpuBackend
from kernelab.codegen.vectors.vector_emitter import emit_vectors
from kernelab.codegen.vectors.vector_operations import Lanes
from kernelab.lang.ir import Function
from kernelab.passes.common.scalarise import scalarise
from tests.codegen.test_vector_columns import LAYOUTS, require_same_bits
from tests.codegen.test_vector_rows import memory_that_ends_with_a_page
from tests.codegen.test_vectors import KINDS, kind_of, run_vectors
from tests.support.lowering import lowered

pytestmark = pytest.mark.skipif(not KINDS, reason="no vectors that this compiler makes use of")

PROGRAMS = {
    "read": "y[i] = x[i, 0] - 2.0 * x[i, 1] + x[i, 2]",
    "read in another order": "y[i] = x[i, 2] / x[i, 0] - x[i, 1]",
    "of the row behind": "y[i] = x[i + 1, 0] - 2.0 * x[i + 1, 1]",
    "two of them": "y[i] = x[i, 0] - 2.0 * x[i, 1]",
    "four of them": "y[i] = x[i, 0] - x[i, 1] * x[i, 2] / x[i, 3]",
    "seven of them": "y[i] = x[i, 0] - x[i, 1] * x[i, 2] / x[i, 3] + x[i, 4] * x[i, 5] - x[i, 6]",
    "integers": "y[i] = float(w[i, 0]) - 2.0 * float(w[i, 1])",
    "rows found in an array": """
        j = of[i]
        y[i] = x[j, 0] - 2.0 * x[j, 1] + x[j, 2]
    """,
    "of two rows": """
        a = of[i]
        y[i] = x[i, 0] * x[a, 0] + x[i, 1] * x[a, 1] + x[i, 2] * x[a, 2]
    """,
    "read in a branch": """
        if x[i, 0] > 0.0:
            y[i] = x[i, 1] - x[i, 2]
    """,
    "read in a branch of rows found in an array": """
        j = of[i]
        if x[j, 0] > 0.0:
            y[i] = x[j, 1] - x[j, 2]
    """,
    "read in a loop": """
        for k in range(w.shape[1]):
            j = abs(w[i, k]) % x.shape[0]
            y[i] += x[i, 0] * x[j, 0] + x[i, 1] * x[j, 1]
    """,
    "read in a loop that lanes leave": """
        j = i
        while x[j, 0] > 0.0:
            y[i] = 0.5 * y[i] + x[j, 1] - x[j, 2]
            j = (j + 7) % x.shape[0]
            if j == i:
                break
    """,
    "written": """
        z[i, 0] = y[i]
        z[i, 1] = 2.0
        z[i, 2] = y[i] + x[i, 0]
    """,
    "written in another order": """
        z[i, 1] = x[i, 0]
        z[i, 0] = x[i, 1]
    """,
    "eight written": """
        z[i, 0] = x[i, 0]
        z[i, 1] = y[i]
        z[i, 2] = 2.0
        z[i, 3] = x[i, 0] + y[i]
        z[i, 6] = x[i, 0]
        z[i, 5] = y[i]
        z[i, 4] = 3.0
        z[i, 7] = x[i, 0] + y[i]
    """,
    "seven added to": """
        z[i, 0] += y[i]
        z[i, 1] += x[i, 1]
        z[i, 2] += x[i, 0]
        z[i, 3] += x[i, 0] + x[i, 1]
        z[i, 4] += 1.0
        z[i, 5] += x[i, 1]
        z[i, 6] += y[i]
    """,
    "written in part": """
        z[i, 0] = x[i, 0]
        if y[i] > 0.0:
            z[i, 1] = x[i, 1]
            z[i, 2] = x[i, 2]
    """,
    "written in a branch": """
        if x[i, 0] > 0.0:
            z[i, 0] = x[i, 1]
            z[i, 1] = x[i, 2]
    """,
    "written twice": """
        z[i, 0] = x[i, 0]
        z[i, 0] = x[i, 1]
        z[i, 1] = x[i, 2]
    """,
    "written at a found one between": """
        k = abs(w[i, 0]) % 2
        z[i, 0] = x[i, 0]
        z[i, k] = x[i, 1]
        z[i, 1] = x[i, 2]
    """,
    "added to": """
        z[i, 1] += x[i, 0]
        z[i, 0] += x[i, 1]
        z[i, 2] += x[i, 2]
    """,
    "written and read": """
        z[i, 0] = x[i, 0]
        z[i, 1] = x[i, 1]
        y[i] = z[i, 0] - z[i, 1]
        z[i, 1] = x[i, 2]
    """,
}

READ_ALONE = "read in a loop that lanes leave", "written", "eight written"
"""The programs that do not read columns together: most lanes may be off, or one column is read."""

WRITTEN_TOGETHER = (
    "written",
    "written and read",
    "added to",
    "written in another order",
    "written in a branch",
    "written twice",
)
"""The programs that write columns together."""

WRITTEN_IN_ROWS = "eight written", "seven added to"
"""The programs that write more columns than a vector has."""


def scalarised(name: str) -> Function:
    lines = [line.removeprefix("        ") for line in PROGRAMS[name].strip("\n").splitlines()]
    head = "def f(x: array2d[float], w: array2d[int], of: array[int], y: array[float], z: array2d[float]):"
    return scalarise(lowered("\n    ".join([head, "i = tid()", *lines]), "f"))


def arguments(threads: int, columns: int, layout: str) -> dict[str, Any]:
    rng = np.random.default_rng(columns)
    x = LAYOUTS[layout](rng.standard_normal((threads + 1, columns)).astype(np.float32))
    w = LAYOUTS[layout](rng.integers(-(2**31), 2**31, (threads, columns)).astype(np.int32))
    of = rng.permutation(threads).astype(np.int32)
    y = rng.standard_normal(threads).astype(np.float32)
    # A launch that writes along columns runs scalar code.
    written = LAYOUTS[layout if layout != "columns" else "rows"]
    z = written(rng.standard_normal((threads, columns)).astype(np.float32))
    return {"x": x, "w": w, "of": of, "y": y, "z": z}


@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_lanes_have_the_bits_of_scalar_code(layout: str, name: str, lanes: Lanes) -> None:
    function, threads = scalarised(name), 3 * lanes.width + 3
    build = CpuBackend().build([function])["f"]
    for columns in (2, 3, 4, 5, 8):
        if columns <= max(k for k in range(8) if f", {k}]" in PROGRAMS[name]):
            continue
        given = arguments(threads, columns, layout)
        require_same_bits(function, build, lanes, given, "xwz" if layout == "rows" else "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_columns_are_moved_together(name: str) -> None:
    text = emit_vectors(scalarised(name), KINDS[0]).text.rpartition('extern "C"')[2]
    assert ("_row_there" in text) == (name not in READ_ALONE)
    assert ("put_components_" in text) == (name in WRITTEN_TOGETHER)
    assert ("_row<4>" in text) == (name in WRITTEN_IN_ROWS)


@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
@pytest.mark.parametrize("name", ["read in a branch", "read in a branch of rows found in an array"])
def test_a_column_that_is_read_in_no_thread_need_not_be_there(name: str, lanes: Lanes) -> None:
    """Its place, behind the last row, is on a page that cannot be read."""
    function, threads = scalarised(name), 2 * lanes.width
    given = arguments(threads, 2, "rows")
    given["x"] = memory_that_ends_with_a_page(-np.abs(given["x"][:threads]))
    before = given["y"].copy()
    run_vectors(function, lanes, (threads,), given)
    np.testing.assert_array_equal(given["y"], before)


@pytest.mark.parametrize("lanes", KINDS, ids=kind_of)
def test_what_lies_between_rows_is_not_touched(lanes: Lanes) -> None:
    function, threads = scalarised("added to"), 2 * lanes.width
    given = arguments(threads, 3, "rows")
    whole = np.zeros((threads, 5), np.float32)
    given["z"] = whole[:, 1:-1]
    run_vectors(function, lanes, (threads,), given)
    np.testing.assert_array_equal(whole[:, 1:-1], given["x"][:threads][:, [1, 0, 2]])
    assert not whole[:, 0].any() and not whole[:, -1].any()
