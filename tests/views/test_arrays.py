"""An array as the value of a cell: tables, pictures and curves that show its values, and its gradient."""

import base64
import io
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

import kernelab as kl
from kernelab.views.pages import markup, page
from kernelab.views.tape.arrays import array_view, picked_view
from tests.views.test_markup import Page

random = np.random.default_rng(3)


def html(x: kl.array) -> str:
    return page.render(array_view(x))


def shown(x: kl.array) -> str:
    return markup.render(array_view(x))


def pictures(x: kl.array, paper: int = 255) -> list[Any]:
    """The pixels of the PNGs in a view, as red, green and blue, on a page that is white or grey."""
    found = re.findall(r"data:image/png;base64,([^\"]+)", html(x))
    return [on_paper(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA"), paper) for data in found]


def on_paper(picture: Image.Image, paper: int) -> Any:
    behind = Image.new("RGBA", picture.size, (paper, paper, paper, 255))
    return np.asarray(Image.alpha_composite(behind, picture).convert("RGB"))


def test_a_small_array_is_a_table_under_its_dtype_shape_and_device() -> None:
    lines = shown(kl.array([1.0, 2.5, -3e-7])).splitlines()
    assert lines == ["array of 3 float32 on cpu", "", "0    1       2", "-  ---  ------", "1  2.5  -3e-07"]


def test_a_small_matrix_has_a_row_for_each_row() -> None:
    lines = shown(kl.array([[1, 2], [3, 4]])).splitlines()
    assert lines[2:] == ["   0  1", "-  -  -", "0  1  2", "1  3  4"]


def test_a_few_vectors_have_a_column_for_each_component() -> None:
    lines = shown(kl.array([[1, 2, 3]], dtype=kl.vec3)).splitlines()
    assert lines == ["array of 1 vec3 on cpu", "", "   x  y  z", "-  -  -  -", "0  1  2  3"]


def test_a_rigid_motion_has_columns_for_its_translation_and_its_rotation() -> None:
    lines = shown(kl.array([kl.transform_identity()], dtype=kl.transform)).splitlines()
    assert lines[2].split() == ["p.x", "p.y", "p.z", "q.x", "q.y", "q.z", "q.w"]
    assert lines[4].split() == ["0", "0", "0", "0", "0", "0", "0", "1"]


def test_small_matrices_are_written_by_rows() -> None:
    assert "(1, 0), (0, 1)" in shown(kl.array([np.eye(2)], dtype=kl.mat22))
    assert "(1, 0), (0, 1)" in shown(kl.array([[np.eye(2)]], dtype=kl.mat22))


def test_the_gradient_stands_beside_the_values_once_there_is_one() -> None:
    x = kl.array([1.0, 2.0], requires_grad=True)
    assert shown(x).startswith("array of 2 float32 on cpu, requires gradients\n")
    assert "gradient\n" not in shown(x)
    with kl.Tape() as tape:
        y = x * x
    tape.backward(grads={y: kl.ones_like(y)})
    assert shown(x).endswith("gradient\n0  1\n-  -\n2  4")


def test_a_matrix_is_a_heatmap_with_a_pixel_an_element() -> None:
    data = np.zeros((12, 20))
    data[3, 5], data[4, 6] = 2.0, -1.0
    (pixels,) = pictures(kl.array(data))
    assert pixels.shape == (12, 20, 3)
    assert pixels[3, 5].tolist() == [178, 24, 43]
    assert pixels[4, 6, 2] > pixels[4, 6, 0]


@pytest.mark.parametrize("paper", [255, 17])
def test_zero_between_both_signs_is_the_page_itself_light_or_dark(paper: int) -> None:
    data = np.zeros((12, 20))
    data[3, 5], data[4, 6] = 2.0, -2.0
    (pixels,) = pictures(kl.array(data), paper)
    assert pixels[0, 0].tolist() == [paper] * 3
    assert (pixels[3, 5].tolist(), pixels[4, 6].tolist()) == ([178, 24, 43], [33, 102, 172])


def test_numbers_of_one_sign_go_from_dark_to_bright() -> None:
    (pixels,) = pictures(kl.array(np.arange(100.0).reshape(10, 10)))
    assert (pixels[0, 0].tolist(), pixels[9, 9].tolist()) == ([68, 1, 84], [253, 231, 37])


def test_what_is_not_finite_is_grey_and_counted() -> None:
    data = np.ones((10, 10))
    data[2, 3], data[0, 0], data[1, 1] = np.nan, np.inf, 3.0
    (pixels,) = pictures(kl.array(data))
    assert pixels[2, 3].tolist() == pixels[0, 0].tolist() == [128, 128, 128]
    assert "1 to 3, mean 1.02, 2 not finite" in shown(kl.array(data))


def test_vectors_between_0_and_1_are_a_photograph() -> None:
    data = random.random((16, 24, 3)).astype(np.float32)
    (pixels,) = pictures(kl.array(data, dtype=kl.vec3))
    assert np.array_equal(pixels, np.round(data * 255).astype(np.uint8))


def test_other_vectors_are_shown_by_their_lengths() -> None:
    data = np.zeros((10, 10, 3), np.float32)
    data[4, 4] = (3, 4, 0)
    x = kl.array(data, dtype=kl.vec3)
    assert html(x).count("the norm of each vec3") == 1
    assert pictures(x)[0][4, 4].tolist() == [253, 231, 37]
    assert '<div class="kl-key">0<' in html(x)
    assert "</i>5</div>" in html(x)


def test_a_large_matrix_keeps_its_proportions_and_its_means() -> None:
    data = np.zeros((400, 800))
    data[:, 400:] = 1.0
    (pixels,) = pictures(kl.array(data))
    assert pixels.shape == (128, 256, 3)
    assert pixels[0, 127].tolist() == [68, 1, 84]
    assert pixels[0, 128].tolist() == [253, 231, 37]


def test_a_long_array_is_a_curve_with_its_range() -> None:
    x = kl.array(np.sin(np.arange(1000) / 50))
    found = html(x)
    assert len(re.findall("<path", found)) == 1
    assert ">999<" in found
    assert "-1 to 1, mean" in shown(x)


def test_a_curve_breaks_where_it_is_not_finite_and_keeps_its_peaks() -> None:
    data = np.zeros(10_000)
    data[5000] = 7.0
    data[2000:3000] = np.nan
    found = html(kl.array(data))
    (path,) = re.findall(r' d="M([^"]*)"', found)
    heights = [float(y) for y in re.findall(r" ([\d.]+)", path)]
    assert len(path.split("M")) == 2
    assert min(heights) < 10 < 80 < max(heights)


def test_the_components_of_many_vectors_are_curves_of_their_own() -> None:
    found = html(kl.array(random.random((50, 3)), dtype=kl.vec3))
    assert re.findall(r"<title>(.)</title>", found) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (kl.zeros(0), "no elements"),
        (kl.zeros((3, 4, 5)), "only [0] of 3 is shown: in all 0 to 0, mean 0"),
        (kl.ones((3, 4, 5, 6)), "only [0, 0] of 12 is shown: in all 1 to 1, mean 1"),
        (kl.zeros((3, 2000, 1000)), "only [0] of 3 is shown: in all 0 to 0, mean 0, of one element in 8"),
        (kl.full(20, np.nan), "no finite number"),
        (kl.array(np.arange(20) % 2 == 0), "False to True, mean 0.5"),
        (kl.zeros((9, 9), dtype=kl.mat33), "array of 9 × 9 mat33"),
        (kl.zeros(20, dtype=kl.mat33), "array of 20 mat33"),
    ],
)
def test_every_kind_of_array_is_shown(x: kl.array, expected: str) -> None:
    assert expected in shown(x)
    assert "kl-" in html(x)


def test_of_more_than_two_dimensions_the_text_shows_what_its_heading_says() -> None:
    lines = shown(kl.array(np.arange(12.0).reshape(3, 2, 2))).splitlines()
    at = lines.index("only [0] of 3 is shown: in all 0 to 11, mean 5.5")
    assert lines[at + 1 :] == ["[[0. 1.]", " [2. 3.]]"]


@pytest.mark.parametrize(
    "x",
    [
        kl.array(random.standard_normal((500, 500))),
        kl.array(random.random((500, 500, 3)), dtype=kl.vec3),
        kl.array(random.standard_normal((5000, 4)), dtype=kl.vec4),
        kl.array(random.standard_normal(100_000)),
        kl.array(-1e300 * random.random((8, 8))),
    ],
)
def test_no_array_makes_a_large_page(x: kl.array) -> None:
    assert 0 < len(html(x)) < 60_000
    x.requires_grad = True
    x.grad = kl.clone(x, requires_grad=False)
    Page(html(x))
    assert 0 < len(html(x)) < 60_000
    assert len(shown(x)) < 5_000


def test_structs_have_a_row_each_and_a_column_for_each_field() -> None:
    @kl.struct
    class Particle:
        mass: float
        speed: kl.vec3

    few = kl.full((2, 2), Particle(2.5, (1, 2, 3)), requires_grad=True)
    few["mass"].grad[1, 0] = 7.0
    found = shown(few)
    assert "mass" in found and "speed" in found and "2.5  (1, 2, 3)" in found and "gradient" in found
    assert found.count("1, 0 ") == 2 and "7  (0, 0, 0)" in found
    assert "the first 12 of 40" in shown(kl.zeros(40, dtype=Particle))


def test_picked_elements_are_shown_as_an_array_is_and_not_recorded() -> None:
    x = kl.array([1.5, 2.5, 3.5], requires_grad=True)
    with kl.Tape() as tape:
        found = markup.render(picked_view(x[[2, 0]]))
    assert found.startswith("2 picked elements of an array of 3 float32 on cpu")
    assert "3.5" in found and "2.5" not in found and not len(tape)


def test_of_a_huge_array_only_some_elements_are_looked_at() -> None:
    x = kl.zeros((3000, 3000), dtype=kl.uint8)
    assert "0 to 0, mean 0, of one element in 4" in shown(x)
    assert ">8999999<" in html(x.flatten())


def test_a_flat_picture_is_high_enough_to_be_seen() -> None:
    assert 'width="280" height="16"' in html(kl.zeros((1, 1000)))


def test_showing_an_array_does_not_expose_its_memory() -> None:
    x = kl.zeros((20, 20))
    html(x)
    assert not x.allocation.is_exposed


def test_an_array_shows_itself_in_a_notebook() -> None:
    bundle = kl.zeros(3)._repr_mimebundle_()  # type: ignore[attr-defined]
    assert bundle["text/plain"].startswith("array of 3 float32")
    assert "<table>" in bundle["text/html"]
    assert repr(kl.zeros(1)) == "array([0.], shape=(1,), dtype=float32, device=cpu)"
