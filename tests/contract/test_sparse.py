"""Sparse Jacobians: right patterns, compressed equals dense, a pattern that changed is found again."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl
from kernelab.autodiff.jacobians import pattern as pattern_module
from kernelab.autodiff.jacobians.jacobian import jacobians
from kernelab.autodiff.jacobians.pattern import Pattern, color_columns, color_stars, patterns
from kernelab.autodiff.jacobians.sparse import Compressed, Stars
from kernelab.autodiff.jacobians.subject import of_function, of_kernel

pytestmark = pytest.mark.slow

CELL = """
def band(x: array[float], y: array[float]):
    i = tid()
    s = 2.0 * sin(x[i])
    if i > 0:
        s = s + x[i - 1] * x[i]
    if i < x.shape[0] - 1:
        s = s - x[i + 1] * x[i]
    y[i] = s

def gathers(x: array[float], index: array2d[int], y: array[float]):
    i = tid()
    s = 0.0
    for k in range(index.shape[1]):
        j = index[i, k]
        if j >= 0:
            s = s + float(k + 1) * x[j] * x[j]
    y[i] = s

def scatters(x: array[float], index: array2d[int], y: array[float]):
    i = tid()
    for k in range(index.shape[1]):
        j = index[i, k]
        if j >= 0:
            atomic_add(y, j, float(k + 1) * sin(x[i]))

def vectors(p: array[vec3], scale: vec3, q: array[vec2]):
    i = tid()
    q[i] = vec2(p[i][0] * scale[1], dot(p[i], scale) * p[0][2])

def locals(x: array[float], y: array[float]):
    i = tid()
    a = zeros(shape=2, dtype=float)
    a[0] = x[i] * x[i]
    a[1] = x[0]
    n = 0
    while n < i % 3:
        a[0] = a[0] + a[1]
        n += 1
    y[i] = a[0] + floor(x[1])

def stiff(x: array[float], y: array[float], w: array[float], o: array[float]):
    i = tid()
    n = x.shape[0]
    o[0] += x[i] * x[i] * x[(i + 1) % n] + w[i] * y[i] * y[i] * y[i]

def doubled(y: array[float]):
    i = tid()
    for _ in range(2):
        y[i] = y[i] * y[i]

def steps(x: array[float], y: array[float]):
    i = tid()
    y[i] = surrogate(x[i])

def arrow(x: array[float], w: array[float], s: array[float]):
    i = tid()
    atomic_add(s, 0, sin(x[0]) * x[i] * x[i] * w[i] + x[i] * w[i] * w[i])

def surrogate(x: float):
    return floor(x)

@func_grad(surrogate, check=False)
def adj_surrogate(x: float, adj_ret: float):
    adjoint[x] += adj_ret
"""

K = kl.compile(CELL)
RNG = np.random.default_rng(8)


def reals(*shape: int, dtype: Any = float) -> Any:
    return kl.array(RNG.uniform(0.4, 1.6, shape), dtype=dtype, requires_grad=True)


def agrees(kernel: Any, dim: Any, inputs: list[Any], outputs: list[Any]) -> Any:
    dense = kl.autograd.jacobian(kernel, dim, inputs, outputs)
    sparse = kl.autograd.jacobian(kernel, dim, inputs, outputs, sparse=True)
    for key, value in dense.items():
        np.testing.assert_allclose(sparse[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
    return sparse


def test_a_band_takes_three_lanes_and_only_its_entries_are_kept() -> None:
    n = 40
    (found,) = agrees(K["band"], np.int64(n), [reals(n)], [kl.zeros(n)]).values()
    assert found.nnz == len(found.entries.data) == 3 * n - 2
    assert found.tocsr().nnz == 3 * n - 2
    subject = of_kernel(K["band"], n, [reals(n)], [kl.zeros(n)], "jacobian")
    _, (pattern,) = patterns(subject, 0)
    assert color_columns(pattern.rows, pattern.columns, pattern.shape).max() == 2


def test_a_hessian_that_all_columns_of_meet_in_one_row_takes_two_lanes() -> None:
    n = 30
    x = reals(n)
    gradient = kl.func.grad(arrow)
    (found,) = kl.autograd.jacobian(gradient, inputs=[x], sparse=True).values()
    dense = kl.func.hessian(arrow)(x).numpy().reshape(n, n)
    np.testing.assert_allclose(found.numpy(), dense, rtol=1e-5, atol=1e-5)
    parts = [part for kept in gradient.__kernelab_beside__.found["patterns"].values() for part in kept[0]]
    assert [(part.lanes, part.runs) for part in parts] == [(n, 2)]
    again = kl.autograd.jacobian(gradient, inputs=[x], sparse=True)[0, 0]
    np.testing.assert_array_equal(again.numpy(), found.numpy())


def test_what_only_looks_like_a_hessian_is_computed_by_columns_or_rows() -> None:
    n = 12
    x, w = reals(n), reals(n)
    x.requires_grad = False
    mixed = kl.func.grad(lambda x, w: arrow(x, w))
    (found,) = kl.autograd.jacobian(mixed, inputs=[x, w], sparse=True).values()
    crossed = kl.func.jacfwd(kl.func.grad(lambda x, w: arrow(x, w)), argnums=1)(x, w)
    np.testing.assert_allclose(found.numpy(), crossed.numpy().reshape(n, n), rtol=1e-5, atol=1e-6)


def test_the_hessian_of_a_function_that_works_in_place_is_computed_whole() -> None:
    """Its adjoint reads what the kernels have kept, of which no bits tell what it depends on."""
    x = reals(5)

    def scaled(x: Any) -> Any:
        y = kl.clone(x)
        y *= x
        kl.launch(K["doubled"], 5, [y])
        return (y * x).sum()

    gradient = kl.func.grad(scaled)
    for _ in range(2):
        found = kl.autograd.jacobian(gradient, inputs=[x], sparse=True)[0, 0].numpy()
        np.testing.assert_allclose(found, kl.func.hessian(scaled)(x).numpy(), rtol=1e-5)
        np.testing.assert_allclose(np.diag(found), 72.0 * x.numpy() ** 7, rtol=1e-5)


@pytest.mark.parametrize("through", ["clone", "copy of a part", "copy of what is repeated"])
def test_the_pattern_of_a_gradient_is_the_union_of_what_copies_add(through: str) -> None:
    """A stiff number hid the entries that were lost: a pattern just found is compared by its largest row."""
    n = 9
    x, w = reals(n), kl.array(np.where(np.arange(n) == 0, 1e6, 1.0), dtype=float)

    def energy(x: Any) -> Any:
        y, total = kl.clone(x), kl.zeros(1)
        if through == "copy of a part":
            kl.copy(y, x, dest_offset=2, src_offset=1, count=5)
        if through == "copy of what is repeated":
            y[3:6] = x[7:8]
        kl.launch(K["stiff"], n, [x, y, w], [total])
        return total

    gradient = kl.func.grad(energy)
    found = kl.autograd.jacobian(gradient, inputs=[x], sparse=True)[0, 0]
    np.testing.assert_allclose(found.numpy(), kl.func.hessian(energy)(x).numpy(), rtol=1e-5)
    assert found.tocsr().nnz <= 3 * n


def arrow(x: Any, w: Any = None) -> Any:
    total = kl.zeros(1)
    kl.launch(K["arrow"], x.size, [x, kl.ones(x.size) if w is None else w], [total])
    return total


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0.05, 0.6))
def test_star_colours_tell_every_entry_of_a_symmetric_matrix(n: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((n, n)) < share, rng.integers(1, 100, (n, n)), 0)
    matrix = np.tril(matrix) + np.tril(matrix, -1).T
    rows, columns = (each.astype(np.int32) for each in np.nonzero(matrix))
    colors = color_stars(rows, columns, n)
    stars = Stars.of(Pattern(rows, columns, (n, n)), colors)
    runs = np.stack([matrix[:, colors == k].sum(axis=1) for k in range(int(colors.max(initial=0)) + 1)])
    np.testing.assert_array_equal(runs[stars.lanes, stars.rows], matrix[rows, columns])


def test_a_pattern_is_kept_with_the_function_and_not_with_what_wraps_it() -> None:
    x = reals(6)
    (row,) = kl.autograd.jacobian(arrow, inputs=[x], sparse=True).values()
    (square,) = kl.autograd.jacobian(kl.func.grad(arrow), inputs=[x], sparse=True).values()
    assert (row.shape, square.shape) == ((1, 6), (6, 6))


def test_vectors_local_arrays_and_loops_have_exact_patterns() -> None:
    agrees(K["vectors"], 3, [reals(3, 3, dtype=kl.vec3), (1.0, 2.0, 3.0)], [kl.zeros(3, dtype=kl.vec2)])
    (found,) = agrees(K["locals"], 6, [reals(6)], [kl.zeros(6)]).values()
    assert found.nnz == 6 + 4  # the diagonal, and the first column where the loop ran
    inputs = [reals(3, 3, dtype=kl.vec3), (1.0, 2.0, 3.0)]
    subject = of_kernel(K["vectors"], 3, inputs, [kl.zeros(3, dtype=kl.vec2)], "jacobian")
    _, (pattern,) = patterns(subject, 0)
    dense = jacobians(subject)[0, 0].numpy()
    assert len(pattern.rows) == np.count_nonzero(dense)


@st.composite
def indices(draw: st.DrawFn) -> tuple[int, int, list[list[int]]]:
    inputs, outputs, width = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 3))
    index = draw(
        st.lists(
            st.lists(st.integers(-1, inputs - 1), min_size=width, max_size=width),
            min_size=outputs,
            max_size=outputs,
        )
    )
    return inputs, outputs, index


@settings(max_examples=40)
@given(indices())
def test_compressed_equals_dense_whatever_the_pattern(case: tuple[int, int, list[list[int]]]) -> None:
    inputs, outputs, index = case
    places = kl.array(index, dtype=int)
    agrees(K["gathers"], outputs, [reals(inputs), places], [kl.zeros(outputs)])
    agrees(K["scatters"], outputs, [reals(outputs), places], [kl.zeros(inputs)])


def test_a_pattern_that_changed_is_found_again() -> None:
    x, y = reals(4), kl.zeros(4)
    for row in ([0, 1, 2, 3], [3, 2, 1, 0], [0, 0, 0, 0], [-1, 1, -1, 1]):
        agrees(K["gathers"], 4, [x, kl.array([[j] for j in row], dtype=int)], [y])


def test_blocks_are_found_before_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelab.autodiff.jacobians.pattern.MOST_LANES", 1)
    n = 300
    subject = of_kernel(K["band"], n, [reals(n)], [kl.zeros(n)], "jacobian")
    _, (pattern,) = patterns(subject, 0)
    dense = np.zeros((n, n), bool)
    dense[pattern.rows, pattern.columns] = True
    assert dense.sum() == len(pattern.rows) == 3 * n - 2
    assert not np.triu(dense, 2).any()
    assert not np.tril(dense, -2).any()


def test_functions_of_several_launches_have_the_pattern_of_their_product() -> None:
    def f(x: Any) -> Any:
        y, z = kl.zeros_like(x), kl.zeros_like(x)
        K["band"][20](x, y)
        K["band"][20](kl.clone(y), z)
        return z, y

    x = reals(20)
    dense, sparse = (kl.autograd.jacobian(f, inputs=[x], sparse=s) for s in (False, True))
    for key in dense:
        np.testing.assert_allclose(sparse[key].numpy(), dense[key].numpy(), rtol=1e-4, atol=1e-5)
    assert sparse[0, 0].nnz == 5 * 20 - 6
    _, found = patterns(of_function(f, [x], [], "jacobian"), 0)
    assert [len(pattern.rows) for pattern in found] == [94, 58]


def test_what_bits_cannot_follow_is_computed_whole() -> None:
    x = reals(3)
    found = kl.autograd.jacobian(K["steps"], 3, [x], [kl.zeros(3)], sparse=True)[0, 0]
    assert found.entries is None
    np.testing.assert_array_equal(found.numpy(), np.eye(3))


def test_auto_keeps_small_and_dense_matrices_whole() -> None:
    small = kl.autograd.jacobian(K["band"], 20, [reals(20)], [kl.zeros(20)], sparse="auto")[0, 0]
    large = kl.autograd.jacobian(K["band"], 300, [reals(300)], [kl.zeros(300)], sparse="auto")[0, 0]
    assert small.entries is None
    assert large.entries is not None


@pytest.mark.parametrize("lanes", [1, 2, 5, 16])
@pytest.mark.parametrize("n", [63, 65, 4097, 20_000])
def test_a_pattern_is_found_in_blocks_of_any_number_and_in_any_lanes(
    lanes: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_module, "MOST_LANES", lanes)
    index = RNG.integers(0, n, (n, 3)).astype(np.int32)
    x, y = reals(n), kl.zeros(n)
    given = kl.array(index, dtype=int)
    _, (found,) = patterns(of_kernel(K["gathers"], n, [x, given], [y], "jacobian"), 0)
    wanted = sorted({(row, int(column)) for row in range(n) for column in index[row]})
    assert [*zip(found.rows.tolist(), found.columns.tolist(), strict=True)] == wanted
    _, (band,) = patterns(of_kernel(K["band"], n, [x], [y], "jacobian"), 0)
    near = [(i, j) for i in range(n) for j in (i - 1, i, i + 1) if 0 <= j < n]
    assert [*zip(band.rows.tolist(), band.columns.tolist(), strict=True)] == near


def test_the_memory_of_a_band_grows_with_its_entries() -> None:
    n = 400_000  # whole, it has 640 GB
    x = reals(n)
    (found,) = kl.autograd.jacobian(K["band"], n, [x], [kl.zeros(n)], sparse=True).values()
    assert found.nnz == 3 * n - 2
    values = x.numpy().astype(np.float64)
    matrix = found.tocsr()
    np.testing.assert_allclose(matrix.diagonal(1), -values[:-1], rtol=1e-6)
    np.testing.assert_allclose(matrix.diagonal(-1), values[1:], rtol=1e-6)


def test_python_and_a_kernel_give_the_same_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = np.nonzero(np.random.default_rng(3).uniform(size=(40, 30)) < 0.1)
    symmetric = np.nonzero(np.abs(np.subtract.outer(np.arange(20), np.arange(20))) % 7 < 2)
    colors, stars = color_columns(rows, columns, (40, 30)), color_stars(*symmetric, 20)
    for row in range(40):
        mine = colors[columns[rows == row]]
        assert len({*mine.tolist()}) == len(mine)
    monkeypatch.setattr(pattern_module, "FEW", 0)
    np.testing.assert_array_equal(color_columns(rows, columns, (40, 30)), colors)
    np.testing.assert_array_equal(color_stars(*symmetric, 20), stars)


def test_no_colours_are_looked_for_where_they_cannot_be_few_enough() -> None:
    n = 300
    columns = np.concatenate([np.arange(n), np.arange(1, n), np.arange(n - 2)]).astype(np.int32)
    rows = np.concatenate([np.zeros(n), np.arange(1, n), np.arange(2, n)]).astype(np.int32)
    order = np.lexsort((columns, rows))
    wide = Compressed(Pattern(rows[order], columns[order], (n, n)))
    assert wide.way == "rows"
    assert "columns" not in vars(wide)
    turned = np.lexsort((rows, columns))
    high = Compressed(Pattern(columns[turned], rows[turned], (n, n)))
    assert high.way == "columns"
    assert "rows" not in vars(high)


def test_columns_without_entries_and_empty_patterns_are_coloured() -> None:
    nothing = np.zeros(0, np.int32)
    assert color_columns(nothing, nothing, (2, 3)).tolist() == [0, 0, 0]
    rows, columns = np.array([0, 0, 1, 1], np.int32), np.array([0, 2, 1, 2], np.int32)
    assert color_columns(rows, columns, (2, 3)).tolist() == [0, 0, 1]


# ------------------------------------------------------------------------- patterns that no longer hold

BRANCHING = """
def branching(x: array[SCALAR], scale: array[SCALAR], on: array[int], k: int, y: array[SCALAR]):
    i = tid()
    s = scale[i] * x[i]
    if on[i] == 1:
        s = s + scale[i] * x[(i + k) % x.shape[0]]
    if on[i] == 2:
        s = s + scale[i] * sqrt(x[i])
    if on[i] == 3:
        s = s + scale[i] * sqrt(x[(i + k) % x.shape[0]])
    y[i] = s
"""
WIDTHS = {
    width: kl.compile(BRANCHING.replace("SCALAR", width))["branching"] for width in ("float", "float64")
}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["float", "float64"]),
    st.integers(2, 9),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 3, 6]),
)
def test_every_row_of_a_stale_pattern_is_checked_by_its_own_terms(
    width: str, n: int, k: int, seed: int, decades: int
) -> None:
    """Rows differ by many orders of magnitude, and entries come, go and turn infinite from call to call."""
    rng = np.random.default_rng(seed)
    dtype: Any = float if width == "float" else kl.float64
    scale = kl.array(10.0 ** rng.uniform(-decades, decades, n), dtype=dtype)
    values = rng.uniform(0.5, 1.5, n) * rng.choice(2, n, p=[0.2, 0.8])
    x = kl.array(values, dtype=dtype, requires_grad=True)
    outputs = [kl.zeros(n, dtype=dtype)]
    on = np.zeros(n, np.int32)
    for _ in range(4):
        arguments: Any = (WIDTHS[width], n, [x, scale, kl.array(on), k], outputs)
        dense, found = (
            kl.autograd.jacobian(*arguments, sparse=sparse)[0, 0].numpy() for sparse in (False, True)
        )
        np.testing.assert_allclose(found, dense, rtol=1e-5)
        on[rng.integers(n)] = rng.choice(4)


@pytest.mark.parametrize("dtype", [kl.float16, kl.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 8.0, 64.0])
def test_the_pattern_of_halves_is_that_of_each_call(dtype: Any, scale: float) -> None:
    """The rounding of a half is 6 % of a row in the comparison with a product, which hid whole entries."""
    n = 12
    kernel = kl.compile(BRANCHING.replace("SCALAR", dtype.__name__))["branching"]
    x, y = kl.full(n, 0.5, dtype=dtype, requires_grad=True), kl.zeros(n, dtype=dtype)
    scales = kl.full(n, scale, dtype=dtype)
    on = kl.zeros(n, dtype=int)
    for branch in (0, 1, 2, 3, 0):
        on.assign(np.where(np.arange(n) == 3, branch, 0))
        arguments: Any = (kernel, n, [x, scales, on, 2], [y])
        dense, found = (
            kl.autograd.jacobian(*arguments, sparse=sparse)[0, 0].numpy() for sparse in (False, True)
        )
        np.testing.assert_array_equal(found, dense)


def test_a_pattern_that_holds_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(
        "kernelab.autodiff.jacobians.sparse.patterns", lambda *given: (found.append(1), patterns(*given))[1]
    )
    kernel = kl.compile(BRANCHING.replace("SCALAR", "float"))["branching"]
    x, scale, on = (
        reals(6),
        kl.array(10.0 ** np.arange(-20.0, 22.0, 8.0), dtype=float),
        kl.zeros(6, dtype=int),
    )
    for _ in range(3):
        kl.autograd.jacobian(kernel, 6, [x, scale, on, 1], [kl.zeros(6)], sparse=True)
    assert len(found) == 1


def test_an_error_of_a_sparse_jacobian_names_the_line_that_asked_for_it() -> None:
    with pytest.raises(kl.KernelTypeError, match=r"test_sparse\.py, line") as error:
        kl.autograd.jacobian(lambda x: np.sin(x.numpy()), inputs=[reals(3)], sparse=True)
    assert "functools" not in str(error.value)
