"""Warp settings that kernelab accepts and ignores, by the reason."""

_BY_REASON: dict[str, dict[str, object]] = {
    "indices are always checked": {"mode": "release"},
    "ask a tape: tape.backward(check_finite=True)": {"verify_fp": False},
    "what goes wrong on a device is told where the host next waits": {"verify_cuda": False},
    "loops are differentiated as loops, whether they are unrolled or not": {"max_unroll": 16},
    "each kernel is built by itself, when it is first launched": {
        "optimization_level": None, "compile_time_trace": False, "legacy_cpu_linker": False,
        "cpu_compiler_flags": None, "load_module_max_workers": 0,
    },
    "it is always so here": {
        "cache_kernels": True, "enable_vector_component_overwrites": True, "lineinfo": False,
        "line_directives": True, "default_grid_stride": True, "enable_mempools_at_init": True,
    },
    "kernelab writes no log: it speaks by errors and warnings": {
        "verbose": False, "verbose_warnings": False, "quiet": False, "log_level": 20,
    },
    "components of values on the host are NumPy's numbers": {"legacy_scalar_return_types": False},
    "generated text includes no header": {"use_precompiled_headers": True},
    "threads of the CPU run one after another": {"enable_cpu_blocks": False},
    "results are the same with every compiler": {"fast_math": False},
    "a kernel is built for the GPU that it is launched on": {
        "cuda_output": None, "ptx_target_arch": None, "cuda_arch_suffix": None,
    },
    "NVRTC builds kernels for CUDA devices": {"llvm_cuda": False},
    "there are no tiles": {
        "enable_mathdx_gemm": True, "enable_mathdx_solver": True, "enable_mathdx_fft": True,
        "enable_tiles_in_stack_memory": True,
    },
    "what is captured has been built before": {"enable_graph_capture_module_load_by_default": True},
    "memory is freed with its last array": {"track_memory": False},
    "nothing is recorded for it": {"deterministic_max_records": 0, "deterministic_debug": False},
    "tapes know from a kernel what it reads": {"launch_array_access_mode": None},
}  # fmt: skip

DEFAULTS = {name: value for settings in _BY_REASON.values() for name, value in settings.items()}
"""What each of them is until it is set."""

UNUSED = {name: reason for reason, settings in _BY_REASON.items() for name in settings}
"""Why each of them changes nothing."""

OPTIONS = {"fast_math": "--fast-math", "max_unroll": "--max-unroll"}
"""Those that are options of ``%%kernel``, too, which says that they change nothing."""
