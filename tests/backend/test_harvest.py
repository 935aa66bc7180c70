"""The texts that are gathered for `make test-nvrtc`."""

from pathlib import Path

import pytest

import kernelab as kl
from tests import nvrtc
from tests.support.harvest import Harvest


def test_a_kernel_that_no_test_has_used_is_left_for_the_end_and_then_becomes_all_its_programs(
    tmp_path: Path,
) -> None:
    @kl.kernel
    def halves(x: kl.array[float], y: kl.array[float]):
        i = kl.tid()
        y[i] = 0.5 * x[i]

    harvest = Harvest(tmp_path)
    harvest.kernels.append(halves)
    harvest.derive()
    assert "loaded" not in vars(halves) and not list(tmp_path.iterdir())
    harvest.derive(unread=True)
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert sum("halves_adjoint" in text for text in texts) == 2  # the adjoint, and its tangent
    assert any("halves_entry" in text for text in texts)


SLOW = """
extern "C" __global__ void slow_entry(float* p, int n) {
  float a[64];
  for (int i = 0; i < n; ++i) a[i * 7 & 63] = p[i];
  p[0] = a[n & 63];
}
"""
PLAIN = 'extern "C" __global__ void plain(float* p) { *p = 1.0f; }\n'


@pytest.mark.nvrtc
def test_the_kernels_that_keep_most_in_memory_of_their_own_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNELAB_CACHE_DIR", str(tmp_path / "cache"))
    for name, text in (("a", PLAIN), ("b", SLOW)):
        (tmp_path / f"{name}.cu").write_text(text)
    assert nvrtc.compile_all(tmp_path, ["sm_90"])
    told = capsys.readouterr().out
    assert "sm_90: 2 kernels were compiled now: 1 with a stack, 0 with spills" in told
    assert "slow_entry of b.cu: 256 B of stack, " in told and "plain" not in told
    (tmp_path / "c.cu").write_text("no C++")
    assert not nvrtc.compile_all(tmp_path, ["sm_90"]) and "NVRTC refused" in capsys.readouterr().out
