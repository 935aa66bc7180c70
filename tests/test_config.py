"""`kl.config`: settings that act, those of Warp's that are taken, and names that are neither."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kernelab as kl
from kernelab.backend.common.build_cache import cache_dir, clear


@pytest.fixture
def double() -> Any:
    return kl.compile("def double(x: array[float], y: array[float]):\n    y[tid()] = 2.0 * x[tid()]")[
        "double"
    ]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    kl.config.enable_backward, kl.config.print_launches = True, False


def test_a_setting_of_warps_is_taken_and_says_why_it_changes_nothing() -> None:
    assert kl.config.mode == "release"
    kl.config.max_unroll = 4
    assert kl.config.max_unroll == 4
    kl.config.max_unroll = 16
    assert "always checked" in kl.config.UNUSED["mode"]
    assert "the GPU that it is launched on" in kl.config.UNUSED["ptx_target_arch"]
    assert kl.config.launch_array_access_mode == kl.config.LaunchArrayAccessMode.STRICT


@pytest.mark.parametrize("name", ["check_races", "live_tapes", "verify_autograd_array_access"])
def test_a_text_is_neither_true_nor_false(name: str) -> None:
    before = getattr(kl.config, name)
    with pytest.raises(kl.KernelValueError, match=f"{name} is True or False, not the text 'no'"):
        setattr(kl.config, name, "no")
    assert getattr(kl.config, name) is before


@pytest.mark.parametrize("name", ["loop_memory", "kept_memory", "kernel_cache_dir"])
def test_a_setting_that_cannot_be_so_is_refused_in_kernelabs_words(name: str) -> None:
    with pytest.raises(kl.KernelValueError, match=f"^{name} is .*, not -1"):
        setattr(kl.config, name, -1)


@pytest.mark.parametrize("name", ["max_unrol", "verfy_fp"])
def test_an_unknown_setting_is_an_error_with_a_near_name(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"there is no setting {name}\n  hint: did you mean"):
        setattr(kl.config, name, 1)
    with pytest.raises(AttributeError, match=rf"there is no setting {name}\n  hint: did you mean"):
        getattr(kl.config, name)


def test_without_a_backward_pass_a_gradient_is_an_error(double: Any) -> None:
    kl.config.enable_backward = False
    x, y = kl.ones(2, requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        double[2](x, y)
    with pytest.raises(kl.KernelError, match=r"switched off(?s:.*)set kl.config.enable_backward = True"):
        tape.backward(grads={y: kl.ones(2)})


def test_launches_say_so(double: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kl.config.print_launches = True
    double[2](kl.ones(2), kl.zeros(2))
    said = capsys.readouterr().out
    assert "launch of double, dim=(2,), test_config.py, line" in said


def test_launches_and_builds_are_logged_under_the_name_of_the_package(
    caplog: pytest.LogCaptureFixture, empty_cache: Path
) -> None:
    text = "def halved(x: array[float]):\n    i = tid()\n    x[i] = x[i] * 0.5"
    x = kl.ones(2)
    with caplog.at_level("DEBUG", logger="kernelab"):
        kl.launch(kl.compile(text)["halved"], dim=2, inputs=[x])
    said = [record.getMessage() for record in caplog.records]
    assert all(record.name.startswith("kernelab.") for record in caplog.records)
    assert any(line.startswith("build of halved: ") and ", status 0 after " in line for line in said)
    assert any(line.startswith("launch of halved, dim=(2,), test_config.py, line") for line in said)


def test_the_cache_has_a_folder_that_can_be_chosen_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, double: Any
) -> None:
    monkeypatch.delenv("KERNELAB_CACHE_DIR", raising=False)
    assert kl.config.kernel_cache_dir is None
    monkeypatch.setenv("KERNELAB_CACHE_DIR", "")
    kl.config.kernel_cache_dir = tmp_path
    assert cache_dir() == tmp_path and kl.config.kernel_cache_dir == str(tmp_path)
    double[2](kl.ones(2), kl.zeros(2))
    clear()
    assert not list(tmp_path.glob("*.so"))
    with pytest.raises(kl.KernelValueError, match="the path of a folder, or None, not 3"):
        kl.config.kernel_cache_dir = 3


def test_the_settings_show_themselves_as_lines_that_set_them() -> None:
    shown = repr(kl.config)
    assert "kl.config.check_races = False\n" in shown
    assert f"kl.config.loop_memory = {kl.config.loop_memory}\n" in shown
    assert "max_unroll" not in shown


def test_what_the_main_thread_sets_holds_in_other_threads_and_not_the_other_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "def before(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i - 1]"
    kernel, x, y = kl.compile(text)["before"], kl.ones(2), kl.zeros(2)

    def relaxed() -> None:
        kl.config.negative_index = "wrap"
        kl.launch(kernel, 2, [x], [y])

    monkeypatch.setattr(kl.config, "negative_index", "error")
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(kl.KernelIndexError, match="an index of `x` was negative"):
            pool.submit(kl.launch, kernel, 2, [x], [y]).result()
        pool.submit(relaxed).result()
    assert y.list() == [1.0, 1.0] and kl.config.negative_index == "error"
