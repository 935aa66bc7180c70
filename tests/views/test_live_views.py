"""Views that follow arrays, numbers and sliders, and animations: what they show, and what they refuse."""

import base64
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import kernelab as kl
from kernelab.views.live.live_views import LiveView
from kernelab.views.pages import markup, page
from kernelab.views.pages.picture import thinned


def news(view: LiveView) -> str:
    found = view.news()
    return "" if found is None else markup.render(found)


def images(html: str) -> list[Any]:
    found = re.findall(r"data:image/png;base64,([^\"]+)", html)
    return [Image.open(io.BytesIO(base64.b64decode(data))) for data in found]


# ------------------------------------------------------------------------------------------ arrays


def test_an_update_is_news_once_and_shows_the_elements_as_they_were_then() -> None:
    x = kl.zeros((20, 20), dtype=float)
    view = kl.live(x, "pressure")
    assert news(view) == ""
    x.fill_(2.0)
    view.update()
    x.fill_(3.0)
    assert news(view).splitlines()[0] == "pressure of 20 × 20 float32"
    view.update()
    assert "3 to 3, mean 3" in news(view)
    assert news(view) == ""
    assert "3 to 3" in repr(view)


def test_a_view_is_no_part_of_what_a_tape_records() -> None:
    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        y = x * x
        view = kl.live(y)
        loss = y.sum()
        view.update()
    tape.backward(loss)
    assert x.grad.list() == [2.0, 4.0]
    assert len(tape) == 2  # the product and the sum


def test_a_quick_picture_has_the_pixels_of_a_careful_one() -> None:
    colors = np.random.default_rng(0).random((30, 40, 3)).astype(np.float32)
    view = kl.live(kl.array(colors, dtype=kl.vec3))
    view.changed()
    quick, careful = (images(page.render(node)) for node in (view.news(), view.node(36_000)))
    assert np.array_equal(np.asarray(quick[0]), np.asarray(careful[0]))
    assert np.array_equal(np.asarray(quick[0]), np.round(colors * 255).astype(np.uint8))


@pytest.mark.parametrize("shape", [(300, 500), (1000, 70), (257, 511, 3)])
def test_a_large_matrix_is_thinned_to_means_of_neighbours(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).random(shape)
    found = thinned(values, 64)
    assert max(found.shape[:2]) == 64
    rows = np.arange(found.shape[0] + 1) * shape[0] // found.shape[0]
    columns = np.arange(found.shape[1] + 1) * shape[1] // found.shape[1]
    block = values[rows[3] : rows[4], columns[-3] : columns[-2]]
    np.testing.assert_allclose(found[3, -2], block.mean(axis=(0, 1)))


def test_structs_and_small_arrays_are_tables() -> None:
    view = kl.live(kl.array([1.0, 2.0]))
    assert "1  2" in repr(view)
    with pytest.raises(kl.KernelTypeError, match="live takes an array of kernelab, not"):
        kl.live([1.0])


# ------------------------------------------------------------------------------------------ curves


def test_a_curve_gets_a_point_with_each_update() -> None:
    curve = kl.live.curve("loss", "error")
    assert "no numbers yet" in repr(curve)
    curve.update(1.0, np.float32(2.0))
    assert "after 1 step" in repr(curve) and "1 steps" not in repr(curve)
    curve.update(kl.array([0.5]), 3)
    assert news(curve) == "loss 0.5, error 3 after 2 steps"
    assert len(re.findall("<path", page.render(curve.node(None)))) == 2


def test_a_logarithmic_curve_is_straight_where_the_loss_halves() -> None:
    curve = kl.live.curve("loss", log=True)
    for k in range(5):
        curve.update(0.5**k)
    (path,) = re.findall(r' d="M([^"]*)"', page.render(curve.node(None)))
    heights = [float(y) for y in re.findall(r" ([\d.]+)", path)]
    np.testing.assert_allclose(np.diff(heights), np.diff(heights)[0], atol=0.11)
    curve.update(0.0)
    assert ">0.0625<" in page.render(curve.node(None))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kl.live.curve("a").update(1.0, 2.0), "2 numbers for 1 curve: a"),
        (lambda: kl.live.curve("a").update(kl.zeros(2)), "the curve a takes a number at a time"),
        (lambda: kl.live.curve("a").update("b"), "the curve a takes a number at a time, not the text 'b'"),
        (lambda: kl.live.curve(), "a curve needs a name"),
        (lambda: kl.live.curve(3), "are not names of curves"),
    ],
)
def test_what_is_no_number_of_a_curve_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call()


# ------------------------------------------------------------------------------------------ animations


def html(view: Any) -> str:
    return str(view._repr_mimebundle_()["text/html"])


def test_an_animation_of_matrices_is_a_png_that_moves_on_one_scale() -> None:
    frames = [kl.full((16, 16), float(k)) for k in range(5)]
    (moving,) = images(html(kl.animation(frames, fps=10)))
    assert (moving.n_frames, moving.info["duration"]) == (5, 100)
    colors = []
    for k in range(5):
        moving.seek(k)
        colors.append(moving.convert("RGBA").getpixel((3, 3))[:3])
    assert (colors[0], colors[4]) == ((68, 1, 84), (253, 231, 37))
    assert len(set(colors)) == 5


def test_an_animation_of_curves_changes_its_paths() -> None:
    frames = [np.sin(np.linspace(0, 6, 100) + k) for k in range(4)]
    found = html(kl.animation(frames, fps=2))
    (values,) = re.findall(r'attributeName="d" dur="2.000s"[^>]* values="([^"]*)"', found)
    assert len(set(values.split(";"))) == 4


def test_colours_and_time_along_the_first_axis_are_animated() -> None:
    colors = kl.array(np.random.default_rng(2).random((3, 20, 20, 3)), dtype=kl.vec3)
    (moving,) = images(html(kl.animation(colors)))
    assert (moving.n_frames, moving.convert("RGB").mode) == (3, "RGB")
    assert "3 frames of 20 × 20 vec3, 25 a second" in str(kl.animation(colors))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: kl.animation([x, x]), r"one array(.|\n)*frames.append\(x.copy\(\)\)"),
        (lambda x: kl.animation([]), "an animation of no frames"),
        (lambda x: kl.animation([x, kl.zeros(3)]), r"the frames are float32 \(2,\) and float32 \(3,\)"),
        (lambda x: kl.animation(3), "takes the frames in a list, not the int 3"),
        (lambda x: kl.animation([x], fps=0), "fps=0 is not a number of frames"),
    ],
)
def test_frames_that_do_not_go_together_are_refused(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        call(kl.zeros(2))


# ------------------------------------------------------------------------------------------ exploring


def spring(length: Any, angle: Any) -> Any:
    path = kl.map(lambda t, a, b: a * t + b, kl.array(np.arange(50.0), dtype=float), length, angle)
    return (path * path).mean(), path


def test_an_explored_function_shows_value_gradient_and_picture_and_stays_a_function() -> None:
    found = kl.explore(angle=(0.0, 2.0), length=(1, 3, 1.5))(spring)
    t = np.arange(50.0)
    path = 1.5 * t + 1.0
    lines = repr(found).splitlines()
    assert lines[0] == f"spring = {(path**2).mean():.4g}"
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("angle", "length"))}
    assert rows["length"] == ["1.5", f"{(2 * path * t).mean():.4g}"]
    assert rows["angle"] == ["1", f"{(2 * path).mean():.4g}"]
    assert "<path" in page.render(found.node(None))
    assert found(kl.array([0.0]), kl.array([2.0]))[0].list() == [4.0]


def test_a_tape_in_an_explored_function_is_refused_in_its_terms() -> None:
    def taped(a: kl.array) -> kl.array:
        with kl.Tape() as tape:
            loss = a * a
        tape.backward(loss)
        return loss

    with pytest.raises(
        kl.TapeError, match=r"(?s)explore\(\) takes the gradient of this function.*return the value"
    ):
        kl.explore(a=(0.0, 1.0))(taped)


def test_a_function_of_numbers_is_explored_too() -> None:
    plane = kl.compile("def plane(x: float, y: float):\n    return x * y + 2.0 * x\n")["plane"]
    rows = repr(kl.explore(x=(0.0, 2.0), y=(0.0, 6.0))(plane)).splitlines()
    assert rows[0] == "plane = 5"
    assert [row.split() for row in rows[4:6]] == [["x", "1", "5"], ["y", "3", "1"]]


def test_a_slider_computes_anew_and_an_error_stands_in_the_view() -> None:
    @kl.explore(a=(-1.0, 1.0, 0.5))
    def root(a: Any) -> Any:
        if a.item() < 0:
            raise ValueError("no root of negative numbers")
        return kl.map(kl.sqrt, a)

    root.slide({"a": 1.0})
    assert "root = 1" in news(root)
    assert root.sliders[0]["value"] == 1.0
    root.slide({"a": -0.5})
    assert news(root) == "ValueError: no root of negative numbers"
    root.slide({"a": 0.25})
    assert "root = 0.5" in news(root)


def test_a_value_without_a_gradient_says_why() -> None:
    shown = repr(kl.explore(a=(0.0, 1.0))(lambda a: 2.0 * float(a.item())))
    assert "= 1\n" in shown
    assert "no gradient: <lambda> returned" in shown


@pytest.mark.filterwarnings("ignore:no gradient flows:kernelab.errors.KernelWarning")
def test_a_warning_of_a_gradient_stands_beside_it() -> None:
    @kl.explore(a=(0.0, 2.0, 1.5), b=(0.0, 1.0))
    def partly(a: Any, b: Any) -> Any:
        return a * b if a.item() > 1.0 else kl.array(np.sin(a.numpy())) * b

    warning = "no gradient flows from an array back to `a`: the values came by the host"
    assert warning not in repr(partly)
    for a in (0.5, 0.75):
        partly.slide({"a": a, "b": 0.5})
        assert warning in news(partly)
    partly.slide({"a": 1.5, "b": 0.5})
    assert warning not in news(partly)


def test_a_value_of_several_elements_or_a_picture_that_is_none_stands_in_the_view() -> None:
    @kl.explore(a=(0.0, 2.0, 1.5))
    def various(a: Any) -> Any:
        if a.item() > 1.0:
            return a * kl.ones(3)
        return a * a, "text" if a.item() > 0.5 else np.ones(2)

    assert "various = 3 elements of float32" in repr(various)
    assert "no gradient: various returned 3 elements" in repr(various)
    various.slide({"a": 0.75})
    assert "cannot make an array from the text 'text'" in news(various)
    various.slide({"a": 0.25})
    assert "various = 0.0625" in news(various)


def test_a_view_keeps_its_values_together_where_a_slider_is_interrupted() -> None:
    @kl.explore(a=(0.0, 2.0))
    def square(a: Any) -> Any:
        if a.item() > 1.5:
            raise KeyboardInterrupt
        return a * a

    before = repr(square)
    with pytest.raises(KeyboardInterrupt):
        square.slide({"a": 2.0})
    assert repr(square) == before


@pytest.mark.parametrize("func", [lambda *a: a[0], lambda **a: a["a"], lambda: 1.0, int, "name"])
def test_what_has_no_parameters_is_not_explored(func: Any) -> None:
    with pytest.raises(kl.KernelTypeError, match=r"explore\(\) takes a function of named parameters"):
        kl.explore(a=(0.0, 1.0))(func)
    kernel = kl.compile("def k(a: array[float]):\n    a[tid()] = 1.0")["k"]
    with pytest.raises(kl.KernelTypeError, match=r"explore\(\) takes a function of named parameters, and k"):
        kl.explore(a=(0.0, 1.0))(kernel)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"length": (1.0, 2.0)}, r"ranges for length, the parameters are length, angle"),
        ({"length": (1.0, 2.0), "angle": 3.0}, r"angle is the float 3.0, and has to be a range"),
        ({"length": (2.0, 1.0), "angle": (0, 1)}, r"length=\(2.0, 1.0\) is not a range"),
        ({"length": (1.0, 2.0, 3.0), "angle": (0, 1)}, r"is not a range"),
        ({"length": (1.0, float("inf")), "angle": (0, 1)}, r"is not a range"),
    ],
)
def test_ranges_that_are_none_are_refused(ranges: dict[str, Any], message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        kl.explore(**ranges)(spring)


# ------------------------------------------------------------------------------------------ progress


def test_a_loop_goes_through_its_items_and_says_nothing_where_nobody_looks(capsys: Any) -> None:
    assert list(kl.progress(range(3))) == [0, 1, 2]
    with kl.progress(total=4, desc="work") as bar:
        bar.update(3)
        bar.set_postfix(loss=kl.array([0.125]), note="fine")
    assert (len(bar), bar._progress.done, bar._progress.note) == (4, 3, "loss=0.125, note=fine")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(kl.KernelTypeError, match="progress goes through items, and the int 200 has none"):
        kl.progress(200)
