"""What arrives behind cuda-python of what kernelab asks for: a library that writes it down is the driver.

Whichever cuda-python is installed has to take the arguments as they are, and pass them on as they are meant.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelab.backend.common.compiler import open_compiler
from tests.support import everycall

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The calls that the driver got, each with its arguments as numbers."""
    folder = tmp_path_factory.mktemp("driver")
    build = [*open_compiler().command, "-x", "c++", "-std=c++17", "-shared", "-fPIC", "-o"]
    source = Path(everycall.__file__).with_name("libcuda.cpp")
    subprocess.run([*build, str(folder / "libcuda.so.1"), str(source), "-ldl"], check=True)
    environment = {"LD_LIBRARY_PATH": str(folder), "KERNELAB_TEST_DRIVER_LOG": str(folder / "log")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.everycall"],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "all was answered\n", done.stderr
    return (folder / "log").read_text().splitlines()


def numbers(asked: list[str], name: str) -> list[list[int]]:
    return [list(map(int, line.split()[1:])) for line in asked if line.split()[0] == name]


def test_a_launch_brings_its_shape_its_slots_and_its_status_block(asked: list[str]) -> None:
    ((function, *_),) = numbers(asked, "cuModuleGetFunction")[:1]
    first, second = numbers(asked, "cuLaunchKernel")
    assert first[1:8] == [7, 1, 1, 640, 1, 1, 0] and second[1:8] == [1, 1, 1, 32, 1, 1, 0]
    assert first[8] != second[8] and first[9] == second[9] == 0 and first[0] == second[0] > function
    ((mapped, _),) = numbers(asked, "cuMemHostGetDevicePointer")
    assert numbers(asked, "given") == [[2**40 + 1, 2, 3, mapped]] * 2


def test_numbers_keep_their_width(asked: list[str]) -> None:
    fills = [numbers(asked, f"cuMemsetD{bits}Async") for bits in (8, 16, 32)]
    assert [(value, count) for ((_, value, count, _),) in fills] == [(0x81, 3), (0x9234, 3), (0xBF800000, 3)]
    pools = numbers(asked, "cuMemPoolSetAttribute")
    release_threshold = 4
    assert {tuple(told[1:]) for told in pools} == {(release_threshold, 2**64 - 1)}


def test_memory_of_a_capture_is_handed_out_beside_it(asked: list[str]) -> None:
    relaxed = 2
    ((stream, mode),) = numbers(asked, "cuStreamBeginCapture")
    assert mode == relaxed
    begin, end = (next(k for k, line in enumerate(asked) if name in line) for name in ("Begin", "EndCapture"))
    within = [line for line in asked[begin + 1 : end] if not line.startswith("cuCtxSetCurrent")]
    names = ["cuStreamCreate", "cuMemAllocAsync", "cuStreamSynchronize", "cuMemFreeAsync"]
    assert [line.split()[0] for line in within] == names
    assert str(stream) not in [line.split()[-1] for line in within[1:]]
