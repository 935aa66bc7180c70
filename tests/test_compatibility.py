"""Names of Warp's: those that mean little here run, those that are missing say why."""

import math
import re
from collections.abc import Callable
from ctypes import c_bool, c_double, c_uint16
from typing import Any

import pytest

import kernelab as kl


def test_devices_of_other_kinds_are_not_there() -> None:
    assert kl.get_cuda_device_count() == len(kl.get_cuda_devices())
    assert (kl.get_cuda_driver_version() is None) <= (kl.get_cuda_devices() == [])
    assert kl.is_device_available("cpu") and not kl.is_device_available("cuda:99")
    assert kl.get_device("cpu").sm_count == 0 and not kl.get_device("cpu").is_capturing
    assert kl.can_access("cpu", "cpu") and kl.can_access("cpu", kl.ones(2))
    assert not kl.is_mempool_supported("cpu") and not kl.get_device("cpu").is_mempool_supported
    assert not kl.get_device("cpu").is_mempool_enabled
    assert isinstance(None, kl.DeviceLike) and isinstance(kl.get_device("cpu"), kl.DeviceLike)
    kl.synchronize_device("cpu")
    with pytest.raises(kl.LaunchError, match="cuda:99"):
        kl.get_cuda_device(99)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stream", r"kl\.get_stream\(device\)"),
        ("set_stream", r"kl\.set_stream\(stream\)"),
        ("can_access", r"kl\.can_access\(device, other\)"),
        ("context_guard", "ScopedDevice"),
        ("is_ipc_supported", "cuDeviceGetAttribute"),
        ("max_shared_memory_per_block", "cuDeviceGetAttribute"),
        ("is_cud", "did you mean is_cuda"),
    ],
)
def test_what_a_device_does_not_say_is_answered_with_who_does(name: str, hint: str) -> None:
    with pytest.raises(kl.KernelAttributeError, match=rf"a device has no {name}\n  hint: .*{hint}"):
        getattr(kl.get_device("cpu"), name)
    assert not hasattr(kl.get_device("cpu"), name)


def test_modules_and_prepared_launches_answer_too() -> None:
    @kl.kernel
    def doubled(x: kl.array[float]):  # type: ignore[no-untyped-def]
        x[kl.tid()] = 2.0 * x[kl.tid()]

    command = kl.launch(doubled, 1, [kl.ones(1)], record_cmd=True)
    with pytest.raises(
        kl.KernelAttributeError, match=r"has no hash_module\n  hint: .*when it is first launched"
    ):
        doubled.module.hash_module()
    with pytest.raises(kl.KernelAttributeError, match=r"has no optons\n  hint: did you mean options"):
        _ = doubled.module.optons
    with pytest.raises(kl.KernelAttributeError, match=r"command\.set_param_by_name\(name, value\)"):
        command.set_param_by_name_from_ctype("x", None)
    with pytest.raises(kl.KernelAttributeError, match="did you mean set_dim"):
        command.set_dims(3)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cuda_profiler_start", "NVIDIA's profilers"),
        ("TIMING_ALL", r"kl\.ScopedTimer\("),
        ("print_memory_report", "tracemalloc"),
        ("ScopedMemoryTracker", "tracemalloc"),
        ("CaptureMode", r"kl\.ScopedCapture\(\)"),
        ("build_experimental", "when it is first launched"),
        ("MemoryKind", "left to the driver"),
        ("set_device_allocator", "left to the driver"),
        ("stream_from_torch", r"kl\.Stream\(cuda_stream="),
        ("stream_from_paddle", "kl.from_dlpack"),
        ("JaxCallableGraphMode", "kl.from_dlpack"),
        ("RegisteredGLBuffer", "as kernels"),
        ("render", "with Matplotlib"),
        ("HashGrid", "cKDTree"),
        ("hash_grid_query", "cKDTree"),
        ("transform_expand", r"kl\.transform\(\*t\)"),
        ("untile", "a loop over the elements"),
        ("breakpoint", r"kl\.trace\("),
    ],
)
def test_names_of_warp_that_are_not_there_say_what_to_do(name: str, hint: str) -> None:
    with pytest.raises(kl.KernelAttributeError, match=rf"(?s)kernelab has no {name}: .*{hint}"):
        getattr(kl, name)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: kl.ScopedCapture(apic=True), "leave it out: captured launches are not saved"),
        (lambda: kl.capture_begin(capture_mode=2), "leave it out: there is one way to capture"),
        (lambda: kl.from_torch(None, return_ctype=True), "leave it out: a launch takes the array"),
        (lambda: kl.Stream("cuda", -1), r"write kl\.Stream\(device\)"),
    ],
)
def test_options_of_warp_that_are_not_there_are_left_out(call: Callable[[], Any], hint: str) -> None:
    with pytest.raises(kl.KernelTypeError, match=f"hint: {hint}"):
        call()


def test_timers_can_be_silenced_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kl.ScopedTimer, "enabled", False)
    with kl.ScopedTimer("unseen") as timer:
        pass
    assert capsys.readouterr().out == "" and timer.elapsed == 0.0


def test_options_of_a_module_are_those_of_its_kernels() -> None:
    kl.set_module_options({"enable_backward": False, "max_unroll": 4})
    try:
        found = kl.get_module_options()
        assert (found["enable_backward"], found["max_unroll"], found["fast_math"]) == (False, 4, False)

        @kl.kernel
        def copied(x: kl.array[float]):  # type: ignore[no-untyped-def]
            x[kl.tid()] = 2.0 * x[kl.tid()]

        assert copied.definition.options == {"enable_backward": False}
    finally:
        del globals()["__kernelab_options__"]
    assert kl.get_module_options()["enable_backward"]
    module = kl.get_module(__name__)
    try:
        module.options["enable_backward"] = False
        assert not kl.get_module_options()["enable_backward"]
        module.load("cpu", block_dim=256)
        module.unload()
    finally:
        del globals()["__kernelab_options__"]
    with pytest.raises(kl.KernelValueError, match="did you mean max_unroll"):
        kl.set_module_options({"max_unrol": 4})
    with pytest.raises(kl.KernelValueError, match="there is no module 'nowhere'"):
        kl.get_module_options("nowhere")


def test_a_module_can_be_loaded_and_unloaded_to_no_effect() -> None:
    @kl.kernel(cluster_dim=2, cuda_max_registers=64)
    def doubled(x: kl.array[float]):  # type: ignore[no-untyped-def]
        x[kl.tid()] = 2.0 * x[kl.tid()]

    doubled.module.load("cpu", block_dim=256)
    found = kl.get_module(__name__)
    found.unload()
    with pytest.warns(kl.KernelWarning, match="kernels keep the values that they captured"):
        found.mark_modified()
    x = kl.ones(1)
    kl.launch(doubled, 1, [x])
    assert x.list() == [2.0]


def test_the_module_of_a_kernel_knows_every_option_and_passes_on_what_is_set_in_it() -> None:
    def defined() -> kl.Kernel:
        @kl.kernel
        def doubled(x: kl.array[float]):  # type: ignore[no-untyped-def]
            x[kl.tid()] = 2.0 * x[kl.tid()]

        return doubled

    @kl.kernel(module="unique", module_options={"mode": "debug"})
    def own(x: kl.array[float]):  # type: ignore[no-untyped-def]
        x[kl.tid()] = 2.0 * x[kl.tid()]

    module = defined().module
    assert module.options["enable_backward"] and not module.options["fast_math"]
    assert (own.module.options["mode"], own.module.options["fast_math"]) == ("debug", False)
    try:
        kl.set_module_options({"enable_backward": False}, module)
        assert not kl.get_module_options(module)["enable_backward"]
        assert not defined().options["enable_backward"]
    finally:
        del globals()["__kernelab_options__"]
    with pytest.raises(KeyError, match="fast_mth"):
        module.options["fast_mth"]


@pytest.mark.parametrize("given", [kl.get_module, str])
def test_a_kernel_takes_the_options_of_the_module_that_it_is_given(given: Callable[[str], Any]) -> None:
    name = "no such module of Python"
    kl.get_module(name).options["enable_backward"] = False

    @kl.kernel(module=given(name))
    def doubled(x: kl.array[float]):  # type: ignore[no-untyped-def]
        x[kl.tid()] = 2.0 * x[kl.tid()]

    assert not doubled.options["enable_backward"]


def test_the_options_and_the_file_of_a_kernel_are_known_whatever_its_text() -> None:
    @kl.kernel(enable_backward=False)
    def mistaken(x: kl.array[float]):  # type: ignore[no-untyped-def]
        x[kl.tid()] = no_such_name  # type: ignore[name-defined]  # noqa: F821

    assert mistaken.options == {"enable_backward": False}
    assert mistaken.module.options["enable_backward"]
    assert mistaken.module.name == "test_compatibility.py"
    with pytest.raises(kl.KernelNameError, match="no_such_name"):
        kl.launch(mistaken, 1, [kl.ones(1)])


def test_modules_handles_and_the_order_of_sums_can_be_named() -> None:
    @kl.struct
    class Body:
        shape: kl.handle
        mass: float

    @kl.kernel(module=kl.Module("bodies"), module_options={"deterministic": kl.DeterministicMode.RUN_TO_RUN})
    def fallen(body: Body, y: kl.array[float]):  # type: ignore[no-untyped-def]
        y[0] = body.mass + float(body.shape)

    y = kl.zeros(1)
    kl.launch(fallen, 1, [Body(shape=7, mass=0.5), y])
    assert y.list() == [7.5]
    try:
        kl.config.deterministic = kl.DeterministicMode.GPU_TO_GPU
        assert kl.config.deterministic is True
        kl.config.deterministic = kl.DeterministicMode.NOT_GUARANTEED
        assert kl.config.deterministic is False
    finally:
        kl.config.deterministic = False


def test_every_error_of_a_kernel_or_a_launch_is_a_runtime_error() -> None:
    @kl.kernel
    def doubled(x: kl.array[float]):  # type: ignore[no-untyped-def]
        x[kl.tid()] = 2.0 * x[kl.tid()]

    with pytest.raises(RuntimeError, match="expects"):
        kl.launch(doubled, 1, [1.0])
    with pytest.raises(RuntimeError, match="out of bounds"):
        kl.launch(doubled, 2, [kl.ones(1)])
    with pytest.raises(RuntimeError, match="nothing"):
        kl.compile("def f(x: array[float]):\n    x[0] = nothing")


def test_errors_can_be_caught_by_warps_names() -> None:
    with pytest.raises(kl.WarpCodegenError):
        kl.compile("def f(x: array[float]):\n    x[0] = nothing")
    assert kl.WarpCodegenTypeError is kl.KernelTypeError


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Mesh", "meshes and spatial queries"),
        ("tile_load", "tiles"),
        ("ScopedMempool", "memory pools"),
        ("timing_begin", "what a device does"),
        ("capture_save", "CUDA graphs in files"),
        ("address_of", "hand the array and the index over"),
        ("from_jax", "kl.from_dlpack"),
        ("volume_sample", "sparse volumes"),
        ("Texture2D", "textures"),
        ("fem", "not part of kernelab"),
        ("print_diagnostics", "kernelab doctor"),
        ("fixedarray", "local to a kernel"),
        ("batched_matmul", "linear algebra of whole arrays"),
        ("MarchingCubes", "surfaces are not part of the language"),
        ("context", "how Warp builds and runs modules"),
        ("tensor", "kl.array"),
        ("dense_solve", "write it as a kernel"),
        ("linspace", "np.linspace"),
        ("mean", "x.mean()"),
        ("vmap", "kl.func.vmap"),
        ("gradcheck", "kl.autograd.gradcheck"),
        ("no_grad", "only what a Tape records"),
    ],
)
def test_a_name_that_is_missing_says_why(name: str, why: str) -> None:
    with pytest.raises(AttributeError, match=f"(?s)kernelab has no {name}: .*{re.escape(why)}"):
        getattr(kl, name)


def test_a_kernel_that_names_what_is_missing_hears_why() -> None:
    with pytest.raises(kl.KernelNameError, match="wp has no mesh_query_point: meshes"):
        kl.compile("def f(x: array[float]):\n    x[0] = wp.mesh_query_point(1)")


def test_constants_are_numbers_on_the_host_and_in_kernels() -> None:
    text = (
        "def f(x: array[float64]):\n    x[0] = pi\n    x[1] = wp.half_pi\n    x[2] = kl.PHI\n    x[3] = inf"
    )
    x = kl.zeros(4, dtype=kl.float64)
    kl.launch(kl.compile(text)["f"], 1, inputs=[x])
    assert x.list() == [math.pi, math.pi / 2, (1 + math.sqrt(5)) / 2, math.inf]
    assert (kl.pi, kl.HALF_PI, kl.inf) == (math.pi, math.pi / 2, math.inf)


def test_the_letter_e_alone_is_a_variable_that_is_missing() -> None:
    with pytest.raises(kl.KernelNameError, match="the name e is not known"):
        kl.compile("def f(x: array[float]):\n    x[0] = e")


def test_types_of_values_answer_to_the_names_that_programs_for_warp_ask_by() -> None:
    mat23d = kl.types.matrix((2, 3), kl.float64)
    assert (kl.vec3._shape_, kl.vec3._length_, kl.vec3._wp_scalar_type_) == ((3,), 3, kl.float32)
    assert (mat23d._shape_, mat23d._length_, mat23d._wp_scalar_type_) == ((2, 3), 6, kl.float64)
    assert (kl.quath._length_, kl.transform._shape_) == (4, (7,))


def test_programs_may_import_the_package_for_warp_by_its_own_name() -> None:
    import kernelab.warp as wp

    text = "@wp.kernel\ndef k(x: wp.array(dtype=wp.vec3)):\n    x[wp.tid()] = wp.vec3(1.0)"
    kernels = kl.compile(text, {"wp": wp})
    x = wp.zeros(2, dtype=wp.vec3)
    wp.init()
    wp.launch(kernels["k"], dim=2, inputs=[x])
    assert x.numpy().tolist() == [[1.0] * 3] * 2
    assert wp.synchronize_device is kl.synchronize_device and wp.Tape is kl.Tape
    assert (wp.vec3._shape_, wp.mat22._length_, wp.vec3._wp_scalar_type_) == ((3,), 4, wp.float32)
    with pytest.raises(AttributeError, match="tiles are not part of the language"):
        wp.tile_load  # noqa: B018


def test_types_tell_what_programs_for_warp_read_of_them() -> None:
    assert kl.int8._type_(200).value == -56
    assert [one._type_ for one in (kl.vec3d, kl.float16, kl.bool)] == [c_double, c_uint16, c_bool]
    assert (kl.mat22._shape_, kl.mat22._length_, kl.mat22._wp_scalar_type_) == ((2, 2), 4, kl.float32)
