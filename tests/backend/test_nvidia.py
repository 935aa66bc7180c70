"""What can be known of the real driver without a GPU: its words, and machine code for devices of its kind."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from cuda.bindings import driver

from kernelab.backend.cuda import nvidia, nvrtc
from kernelab.backend.cuda.faults import FAULTS, LOST, LostError, fault
from kernelab.codegen.cpp.cuda_target import Cuda
from kernelab.codegen.cpp.emitter import emit
from kernelab.errors import BuildError, KernelMemoryError, LaunchError
from kernelab.passes.ad.vjp import vjp
from kernelab.passes.common.scalarise import scalarise
from tests.codegen import kernels
from tests.support.lowering import lowered
from tests.support.zoo import ZOO

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")


def test_every_function_of_the_driver_that_is_called_is_one_of_cuda_pythons() -> None:
    text = Path(nvidia.__file__).read_text()
    called = set(re.findall(r"(?:_api|api\(\))\.(\w+)", text))
    assert len(called) > 20
    assert not [name for name in called if not hasattr(driver, name)]
    for name in re.findall(r"CU_MEMPOOL_ATTR_\w+", text):
        assert hasattr(driver.CUmemPool_attribute, name)
    for name in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT"):
        assert hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")


def test_without_cuda_python_or_a_driver_the_reason_and_a_way_out_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: str) -> object:
        raise ImportError

    def broken(_: int) -> object:
        raise RuntimeError("no library")

    for found, reason in (
        (missing, "cuda-python is not installed"),
        (lambda _: SimpleNamespace(cuInit=broken), "no CUDA driver that can be loaded"),
    ):
        nvidia.api.cache_clear()
        monkeypatch.setattr(nvidia, "import_module", found)
        with pytest.raises(LaunchError, match=f"there is no device 'cuda:0': .*{reason}") as caught:
            nvidia.open_driver(0)
        assert 'use device="cpu"' in str(caught.value)
        assert (nvidia.count_devices(), nvidia.version()) == (0, None)
    nvidia.api.cache_clear()


def test_what_the_driver_reports_says_what_to_do() -> None:
    full = fault("CUDA_ERROR_OUT_OF_MEMORY", "allocating 5 bytes", "cuda:0")
    assert isinstance(full, KernelMemoryError) and "there is no memory left on the device" in str(full)
    lost = fault("CUDA_ERROR_ILLEGAL_ADDRESS", "running a kernel", "cuda:0")
    assert "everything on the device is lost" in str(lost) and "restart the notebook's kernel" in str(lost)
    old = fault("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "loading a kernel", "cuda:0")
    assert isinstance(old, BuildError) and "the driver is older than NVRTC" in str(old)
    for code in LOST:
        assert isinstance(fault(code, "running a kernel", "cuda:0"), LostError)
        assert "everything on the device is lost" in str(fault(code, "copying", "cuda:0"))
    assert not [code for code in (*FAULTS, *LOST) if not hasattr(driver.CUresult, code)]
    forked = fault("CUDA_ERROR_NOT_INITIALIZED", "entering the device", "cuda:0")
    assert "forked" in str(forked) and 'get_context("spawn")' in str(forked)
    assert "CUDA_ERROR_UNKNOWN" in str(fault("CUDA_ERROR_UNKNOWN", "copying", "cuda:0"))


@pytest.mark.nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_zoo_becomes_machine_code(architecture: str) -> None:
    programs = [lowered(animal.text, animal.name) for animal in ZOO[:4]]
    programs += [vjp(programs[0], ZOO[0].differentiable).adjoint, kernels.saving().function]
    text = emit([scalarise(program) for program in programs], Cuda()).text
    code = nvrtc.compile_to_cubin(text, architecture)
    assert code.startswith(b"\x7fELF")
    assert all(f"{program.name}_entry".encode() in code for program in programs)


@pytest.mark.nvrtc
def test_an_architecture_that_nvrtc_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(BuildError, match=r"NVRTC \d+\.\d+ does not compile for sm_999") as caught:
        nvrtc.compile_to_cubin("", "sm_999")
    assert "it knows sm_" in str(caught.value)


@pytest.mark.nvrtc
def test_a_device_that_is_newer_than_nvrtc_gets_ptx_for_the_newest_that_it_knows() -> None:
    text = emit([scalarise(kernels.saxpy().function)], Cuda()).text
    code = nvrtc.compile_for(text, "sm_999")
    assert code.endswith(b"\0") and f".target {nvrtc.architectures()[-1]}".encode() in code
    assert nvrtc.compile_for(text, "sm_90").startswith(b"\x7fELF")


@pytest.mark.nvrtc
def test_a_device_that_nvrtc_passed_over_gets_ptx_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "architectures", lambda: ("sm_75", "sm_90", "sm_100"))
    text = emit([scalarise(kernels.saxpy().function)], Cuda()).text
    assert b".target sm_75" in nvrtc.compile_for(text, "sm_86")
    with pytest.raises(BuildError, match="does not compile for sm_70"):
        nvrtc.compile_for(text, "sm_70")
