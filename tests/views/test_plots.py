"""Tooltips of heatmaps, spy plots, the Taylor test's plots, and figures that show themselves once."""

import re
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import GradientError, KernelTypeError
from kernelab.views.checks import heatmap, sparsity
from kernelab.views.checks.report import taylor_figure, taylor_view
from kernelab.views.pages import display, figures, markup, page

CELL = """
def band(x: array[float], y: array[float]):
    i = tid()
    s = sin(x[i])
    if i > 0:
        s = s + x[i - 1] * x[i]
    y[i] = s

def off(x: array[float], y: array[float]):
    i = tid()
    y[i] = wrong_cube(x[i])

def linear(x: array[float], y: array[float]):
    i = tid()
    y[i] = 3.0 * x[i]

def wrong_cube(x: float):
    return x * x * x

@func_grad(wrong_cube, check=False)
def adj_wrong_cube(x: float, adj_ret: float):
    adjoint[x] += 3.03 * x * x * adj_ret
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kl.compile(CELL)


def reals(n: int) -> Any:
    return kl.array(np.random.default_rng(1).uniform(0.5, 1.5, n), dtype=float, requires_grad=True)


def jacobian(kernels: dict[str, Any], n: int, **options: Any) -> Any:
    return kl.autograd.jacobian(kernels["band"], n, [reals(n)], [kl.zeros(n)], **options)


def titles(html: str) -> list[str]:
    return re.findall("<title>(.*?)</title>", html)


# ------------------------------------------------------------------------------------------ heatmaps


def test_pointing_at_a_cell_tells_its_elements_and_its_value(kernels: dict[str, Any]) -> None:
    found = jacobian(kernels, 3)
    shown = titles(found._repr_mimebundle_()["text/html"])
    values = found[0, 0].numpy()
    assert len(shown) == 9
    assert shown[3] == f"d y[1] / d x[0] = {values[1, 0]:.6g}"
    assert shown[2] == "d y[0] / d x[2] = 0"


def test_components_of_vectors_are_told_by_their_index() -> None:
    values = np.arange(1.0, 7.0).reshape(1, 6)
    panel = figures.Panel("p", "s", values, np.ones((1, 6), bool), 2, 1, (3, 2), (1,))
    shown = heatmap.figure_view(heatmap.figure([panel]), [panel])
    assert titles(page.render(shown))[3] == "d s[0] / d p[1, 1] = 4"


def test_blocks_of_a_large_matrix_tell_their_largest_entry_and_zeros_nothing(kernels: dict[str, Any]) -> None:
    found = jacobian(kernels, 300)
    shown = titles(found._repr_mimebundle_()["text/html"])
    assert 30 <= len(shown) <= 60
    assert shown[0].startswith("y 0-9, x 0-9: 19 not zero, the largest d y[")


def test_what_was_not_computed_says_so(kernels: dict[str, Any]) -> None:
    found = jacobian(kernels, 3, max_outputs_per_var=2)
    assert titles(found._repr_mimebundle_()["text/html"])[-1] == "d y[2] / d x[2] = not computed"


def test_tooltips_lie_over_their_panel(kernels: dict[str, Any]) -> None:
    found = jacobian(kernels, 3)
    parts = heatmap.panels(found)
    drawn = heatmap.figure(parts)
    html = page.render(heatmap.figure_view(drawn, parts))
    width, height = figures.pixels(drawn)
    left, top, wide, high = map(
        float, re.findall(r'<svg x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', html)[0]
    )
    box = drawn.axes[0].get_window_extent()
    scale = figures.DPI / drawn.dpi
    assert left == pytest.approx(box.x0 * scale, abs=2)
    assert top == pytest.approx(height - box.y1 * scale, abs=2)
    assert (wide, high) == (pytest.approx(box.width * scale, abs=2), pytest.approx(box.height * scale, abs=2))
    assert left + wide < width


def test_a_figure_shows_once_in_the_cell_that_draws_it(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = kl.autograd.jacobian_plot(jacobian(kernels, 3))
    assert "d y / d x" in capsys.readouterr().out
    drawn._ipython_display_()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(display, "cell", lambda: 7)
    drawn._ipython_display_()
    assert "d y / d x" in capsys.readouterr().out


def test_a_figure_that_was_not_shown_shows_itself(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "cell", lambda: 7)
    drawn = kl.autograd.jacobian_plot(jacobian(kernels, 3), show_plot=False)
    assert capsys.readouterr().out == ""
    drawn._ipython_display_()
    assert "d y / d x" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------ patterns


def test_groups_of_columns_have_letters_and_colours(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = kl.autograd.plot_sparsity(jacobian(kernels, 4, sparse=True))
    assert capsys.readouterr().out.splitlines() == [
        "d y / d x   4 x 4, 7 of 16 entries, columns in 2 groups",
        "  a···",
        "  ab··",
        "  ·ba·",
        "  ··ab",
    ]
    (image,) = drawn.axes[0].get_images()
    assert image.get_array().compressed().tolist() == [0, 0, 1, 1, 0, 0, 1]


def test_a_large_pattern_is_binned_and_its_corner_shown(kernels: dict[str, Any]) -> None:
    found = jacobian(kernels, 1000, sparse=True)
    drawn = kl.autograd.plot_sparsity(found, show_plot=False)
    whole, corner = (axis.get_images()[0].get_array().shape for axis in drawn.axes)
    assert max(whole) <= sparsity.MOST_CELLS
    assert corner == (48, 48)
    lines = sparsity.text_lines(sparsity.spies(found, True))
    assert len(lines) < 60
    assert lines[0] == "d y / d x   1000 x 1000, 1,999 of 1,000,000 entries, columns in 2 groups"


def test_a_dense_jacobian_has_a_pattern_too(kernels: dict[str, Any]) -> None:
    (spy,) = sparsity.spies(jacobian(kernels, 4), color_groups=False)
    assert (len(spy.rows), spy.groups) == (7, 0)


def test_only_jacobians_have_patterns() -> None:
    with pytest.raises(KernelTypeError, match="plot_sparsity draws what jacobian"):
        kl.autograd.plot_sparsity(np.eye(3))  # type: ignore[arg-type]
    with pytest.raises(GradientError, match="no Jacobian to draw"):
        kl.autograd.plot_sparsity({})


# ------------------------------------------------------------------------------------------ Taylor


def test_a_right_gradient_leaves_a_remainder_of_second_order(kernels: dict[str, Any]) -> None:
    report = kl.autograd.taylor_test(kernels["band"], 6, [reals(6)], [kl.zeros(6)], show_summary=False)
    assert report
    assert report.slope == pytest.approx(2.0, abs=0.1)
    assert 1e-7 < report.best_step < 1e-3


def test_a_gradient_that_is_off_by_a_hundredth_leaves_one_of_first_order(
    kernels: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report = kl.autograd.taylor_test(kernels["off"], 6, [reals(6)], [kl.zeros(6)])
    assert not report
    assert report.slope == pytest.approx(1.0, abs=0.1)
    shown = capsys.readouterr().out
    assert "FAIL  Taylor test of off: the remainder falls as h^1.0" in shown
    assert "1.0e-08" in shown
    assert "FAIL" in markup.render(taylor_view(report))
    low, high = taylor_figure(report).axes[1].get_ylim()
    assert high > 10 * low  # errors that hardly differ are a level line


def test_a_linear_function_leaves_rounding(kernels: dict[str, Any]) -> None:
    report = kl.autograd.taylor_test(kernels["linear"], 6, [reals(6)], [kl.zeros(6)], show_summary=False)
    assert report
    assert np.isnan(report.slope)
    assert "rounding at every step" in markup.render(taylor_view(report))


def test_functions_are_tested_as_kernels_are_and_the_plots_hold_both_curves(kernels: dict[str, Any]) -> None:
    def f(x: Any) -> Any:
        y, z = kl.zeros_like(x), kl.zeros_like(x)
        kernels["band"][x.size](x, y)
        kernels["band"][x.size](y, z)
        return y, z

    report = kl.autograd.taylor_test(f, inputs=[reals(5)], show_summary=False)
    assert report
    left, right = taylor_figure(report).axes
    assert len(left.get_lines()) == 4
    np.testing.assert_allclose(right.get_lines()[0].get_xdata(), report.steps)
    assert "data:image/png" in page.render(taylor_view(report))


# ------------------------------------------------------------------------------------------ odd matrices

ODD = """
def roots(x: array[float], w: array[float], y: array[float]):
    i = tid()
    y[i] = sqrt(x[i]) * w[0]

def blocks(x: array[float], y: array[float]):
    i = tid()
    n = x.shape[0] // y.shape[0]
    for k in range(n):
        y[i] += x[i * n + k] * x[i * n + k]
"""


@pytest.fixture(scope="module")
def odd() -> dict[str, Any]:
    return kl.compile(ODD)


def test_an_infinite_entry_is_black_and_not_the_white_of_a_zero(odd: dict[str, Any]) -> None:
    x = kl.array([1.0, 0.0, -1.0], dtype=float, requires_grad=True)
    found = kl.autograd.jacobian(odd["roots"], 3, [x, kl.ones(1)], [kl.zeros(3)], max_outputs_per_var=2)
    assert found[0, 0].numpy()[1, 1] == np.inf
    drawn = kl.autograd.jacobian_plot(found, show_plot=False)
    black = drawn.axes[0].get_images()[1].get_array()
    assert np.argwhere(~np.ma.getmaskarray(black)).tolist() == [[1, 1]]
    assert (
        drawn.get_supxlabel() == "in the colour of this text: infinite or not a number, hatched: not computed"
    )
    assert drawn.get_suptitle() == "Jacobians of roots"


def test_tiny_matrices_count_in_whole_numbers(odd: dict[str, Any]) -> None:
    x = kl.array([1.0], dtype=float, requires_grad=True)
    found = kl.autograd.jacobian(odd["roots"], 1, [x, kl.ones(1)], [kl.zeros(1)])
    for drawn in (
        kl.autograd.jacobian_plot(found, show_plot=False, title=""),
        kl.autograd.plot_sparsity(found, show_plot=False),
    ):
        figures.png(drawn)
        axes = drawn.axes[0]
        assert [t for t in axes.get_xticks() if -0.5 <= t <= 0.5] == [0]
        assert drawn.get_suptitle() == ""


@pytest.mark.parametrize(("rows", "columns"), [(4, 400), (2, 6000)])
def test_wide_patterns_fill_their_panel_and_have_labels(odd: dict[str, Any], rows: int, columns: int) -> None:
    found = kl.autograd.jacobian(odd["blocks"], rows, [reals(columns)], [kl.zeros(rows)], sparse=True)
    drawn = kl.autograd.plot_sparsity(found, show_plot=False)
    figures.png(drawn)
    axes = drawn.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")
    assert axes.get_title() == f"d y / d x: {columns:,} entries\nall rows in one group"
    assert axes.get_position().height > 0.5
    if columns > 400:
        assert drawn.axes[1].get_title() == "the first 2 rows and 48 columns"


def test_a_dark_theme_turns_over_how_light_a_figure_is_and_nothing_else() -> None:
    assert (
        "[data-jp-theme-light=false] .kl .kl-over>img{filter:invert(.93) hue-rotate(180deg)}" in figures.STYLE
    )
    assert figures.STYLE.count("filter:") == 3


def test_a_terminal_draws_no_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "picture", lambda *_: pytest.fail("drawn for a terminal"))
    kernel = kl.compile(CELL)["band"]
    x, y = (kl.zeros(3, requires_grad=True) for _ in range(2))
    kl.autograd.taylor_test(kernel, dim=3, inputs=[x], outputs=[y])
    assert "Taylor test of band" in capsys.readouterr().out
