"""`make test-gpu`, on simulated devices below cuda-python's functions: it would run where a GPU is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": "", "KERNELAB_TEST_CACHE": ""}
    command = [sys.executable, "-m", "tests.gpu", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=hidden, timeout=250, check=False
    )


@pytest.mark.long
def test_the_tests_that_tell_most_pass_through_the_calls_of_cuda_python() -> None:
    done = started("--dry", "--quick", "-p", "no:cacheprovider", "-k", "graph or captured or residuals")
    assert done.returncode == 0, done.stdout
    assert "test_a_tape_and_its_sweep_are_one_graph[False] PASSED" in done.stdout
    assert "test_a_tape_with_overwrites_residuals_and_sums_gives_the_same_gradients PASSED" in done.stdout
    assert "NOT ON THE GPU: all other files of tests/" in done.stdout


def test_what_takes_too_long_ends_and_is_told() -> None:
    done = started("--dry", "--minutes", "0.001")
    assert done.returncode == 1 and "ENDED after 0.001 minutes" in done.stdout


def test_without_a_gpu_it_says_that_nothing_was_tested() -> None:
    done = started("--quick")
    assert done.returncode == 1 and done.stdout.startswith("NOT RUN: there is no device 'cuda:0'")
