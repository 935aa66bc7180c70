"""Heatmaps of Jacobians: as figures and as text."""

import math
from typing import Any

import numpy as np
import pytest
from IPython.lib.pretty import pretty

import kernelab as kl
from kernelab.errors import GradientError
from kernelab.views.checks import heatmap, sparsity
from kernelab.views.pages import display, figures

K = kl.compile(
    """
def two(a: array[float], b: array[vec3], out1: array[vec2], out2: array[float]):
    i = tid()
    out1[i] = vec2(a[i] * b[i][0], b[i][2])
    out2[i] = a[i] * a[0]

def spread(x: array[float], y: array[float], e: array[float]):
    y[tid()] = x[0]
    e[0] += 1e-4 * x[0]

def long(x: array[float], y: array[float]):
    i = tid()
    y[i] = x[i] * x[i / 2]
""".replace("i / 2", "i // 2")
)


@pytest.fixture(scope="module")
def found() -> Any:
    rng = np.random.default_rng(0)
    a = kl.array(rng.normal(size=3), dtype=float, requires_grad=True)
    b = kl.array(rng.normal(size=(3, 3)), dtype=kl.vec3, requires_grad=True)
    outputs = [kl.zeros(3, dtype=kl.vec2), kl.zeros(3)]
    return kl.autograd.jacobian(K["two"], 3, [a, b], outputs)


def test_jacobians_print_as_text_and_remain_a_dict(found: Any) -> None:
    assert str(found).startswith("d out1 / d a   6 x 3, ")
    assert repr(found).startswith("{(0, 0): <Jacobian d out1 / d a, 6 x 3>")
    assert pretty(found) == str(found)


def test_a_small_matrix_of_small_numbers_is_seen_beside_a_large_one_of_large_numbers() -> None:
    x, outputs = kl.ones(1, requires_grad=True), [kl.zeros(40), kl.zeros(1)]
    parts = heatmap.panels(kl.autograd.jacobian(K["spread"], 40, [x], outputs))
    high, low, *scales = heatmap.figure(parts, heatmap.style_of("f", parts)).axes
    assert 0.3 < low.get_position().height / high.get_position().height < 0.6
    assert low.get_images()[0].get_clim()[1] == pytest.approx(4e-3)
    assert len(scales) == 2


def test_inputs_stand_across_and_outputs_down_with_lines_between(found: Any) -> None:
    drawn = kl.autograd.plot_kernel_jacobians(found, show_plot=False, title="two")
    axes = drawn.axes[:4]
    assert [(a.get_xlabel(), a.get_ylabel()) for a in axes] == [
        ("a", "out1 (components)"),
        ("b (components)", "out1 (components)"),
        ("a", "out2"),
        ("b (components)", "out2"),
    ]
    by_b = axes[1].get_lines()
    assert [line.get_linestyle() for line in by_b].count("-") == 2 + 2
    assert len(by_b) == 5 + 8
    (image,) = axes[0].get_images()
    low, high = image.get_clim()
    assert low == -high < 0
    assert figures.png(drawn).startswith(b"\x89PNG")


def test_many_panels_fit_beside_each_other_and_large_ones_keep_lines_between_elements_only() -> None:
    inputs = [kl.ones(10, dtype=kl.vec3, requires_grad=True) for _ in range(5)]
    sum_of = kl.compile(
        "def add(a: array[vec3], b: array[vec3], c: array[vec3], d: array[vec3], e: array[vec3],\n"
        "        y: array[vec3]):\n    i = tid()\n    y[i] = a[i] + b[i] + c[i] + d[i] + e[i]"
    )["add"]
    found = kl.autograd.jacobian(sum_of, 10, inputs, [kl.zeros(10, dtype=kl.vec3)])
    drawn = kl.autograd.plot_kernel_jacobians(found, show_plot=False)
    assert drawn.get_size_inches()[0] <= 11
    assert len(drawn.axes[0].get_lines()) == 9 + 9


def test_panels_share_a_scale_unless_told_otherwise(found: Any) -> None:
    drawn = kl.autograd.jacobian_plot(found, show_plot=False, scale_colors_per_submatrix=True)
    limits = [a.get_images()[0].get_clim()[1] for a in drawn.axes if a.get_images()]
    assert len(set(limits)) > 1


def test_plain_matrices_get_their_labels_from_the_kernel(found: Any) -> None:
    plain = {key: value.numpy() for key, value in found.items()}
    drawn = kl.autograd.plot_kernel_jacobians(plain, K["two"], inputs=[0, 0], show_plot=False)
    assert drawn.axes[0].get_xlabel() == "a"
    assert drawn.axes[0].get_ylabel() == "out1"
    with pytest.raises(GradientError, match="no Jacobian to draw"):
        kl.autograd.plot_kernel_jacobians({}, show_plot=False)


def test_what_was_left_out_is_hatched_and_said(found: Any) -> None:
    x = kl.array(np.arange(1.0, 5.0), dtype=float, requires_grad=True)
    few = kl.autograd.jacobian(K["long"], 4, [x], [kl.zeros(4)], max_outputs_per_var=2)
    drawn = kl.autograd.plot_kernel_jacobians(few, show_plot=False)
    assert [patch.get_hatch() for patch in drawn.axes[0].patches] == ["///"]
    text = heatmap.text_lines(heatmap.panels(few))
    assert text == [
        "d y / d x   4 x 4, 3 not zero",
        "  2  .  .  .",
        "  2  1  .  .",
        "  /  /  /  /",
        "  /  /  /  /",
    ]


def test_large_matrices_are_binned(found: Any) -> None:
    x = kl.array(np.ones(1000), dtype=float, requires_grad=True)
    whole = kl.autograd.jacobian(K["long"], 1000, [x], [kl.zeros(1000)])
    drawn = kl.autograd.plot_kernel_jacobians(whole, show_plot=False)
    assert max(drawn.axes[0].get_images()[0].get_array().shape) <= heatmap.MOST_CELLS
    text = heatmap.text_lines(heatmap.panels(whole))
    assert max(map(len, text)) < 60
    assert "█" in text[1]
    assert "·" in text[1]


def test_a_dict_of_jacobians_shows_itself(found: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = found._repr_mimebundle_()
    assert "data:image/png;base64" in bundle["text/html"]
    assert "d out1 / d b   6 x 9" in bundle["text/plain"]
    kl.autograd.plot_kernel_jacobians(found)
    assert "d out2 / d a   3 x 3" in capsys.readouterr().out
    assert display.bundle(found, heatmap.jacobians_view)["text/plain"] == bundle["text/plain"]


def test_a_nan_that_was_computed_is_told_from_zero() -> None:
    parts = [heatmap.Panel("x", "y", np.array([[np.nan, 0.0]]), np.array([[True, True]]))]
    assert heatmap.text_lines(parts)[1] == "  nan    ."


def test_exponents_show_ones_as_no_zeros_and_of_a_bin_its_largest_entry() -> None:
    wide = np.zeros((1, 2 * heatmap.MOST_CELLS))
    wide[0, :4] = 1e-12, 10.0, 0.0, 1e-3
    for values, shown in ((np.eye(2), [[0, None], [None, 0]]), (wide, [[1, -3]])):
        panels = heatmap.panels({(0, 0): values})
        (axis, *_) = heatmap.figure(panels, heatmap.Style(log_scale=True)).axes
        drawn = axis.images[0].get_array()
        assert drawn[: len(shown), : len(shown[0])].tolist() == shown
        assert len(axis.images) == 1 and drawn.count() == 2  # all else is white


def test_in_a_plain_matrix_only_rows_of_nan_were_not_computed() -> None:
    values = np.eye(4)
    values[0, 2], values[1] = math.nan, math.nan
    (axis, *_) = heatmap.figure(heatmap.panels({(0, 0): values})).axes
    drawn, undefined = (image.get_array() for image in axis.images)
    assert drawn.mask[0].tolist() == [False, True, True, True]
    assert [tuple(cell) for cell in np.argwhere(~undefined.mask)] == [(0, 2)]
    assert [(patch.get_y(), patch.get_height()) for patch in axis.patches] == [(0.5, 1)]


def test_what_was_not_computed_is_no_entry() -> None:
    x, y = kl.full(4, 2.0, requires_grad=True), kl.zeros(4)
    found = kl.autograd.jacobian(K["long"], 4, [x], [y], max_outputs_per_var=2)
    assert found[0, 0].nnz == 3
    (spy,) = sparsity.spies(found, color_groups=False)
    assert spy.describe() == "d y / d x   2 x 4 of 4 x 4, 3 of 8 entries"
