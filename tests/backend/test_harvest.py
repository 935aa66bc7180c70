"""The texts that are gathered for `make test-nvrtc`."""

from pathlib import Path

import kernelab as kl
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
