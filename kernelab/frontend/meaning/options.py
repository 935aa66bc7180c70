"""The options of `@kernel(...)` and `@func(...)`.

Some speak of how another system builds or launches and change nothing: here every kernel is built alone.
"""

import difflib
from collections.abc import Mapping
from typing import Any

KERNEL = (
    *("enable_backward", "check", "module", "module_options", "launch_bounds", "grid_stride", "name"),
    *("cluster_dim", "cuda_max_registers", "enable_cuda_smem_spilling", "entry_point_abi"),
)
FUNC = ("name", "module", "inline")
CHECKS = ("full",)
"""What `check` can be, beside None (`kernelab.settings.Check`)."""

MODULE: Mapping[str, Any] = {
    "enable_backward": True,
    "max_unroll": 16,
    "fast_math": False,
    "fuse_fp": True,
    "lineinfo": False,
    "mode": None,
    "block_dim": 256,
    "cuda_output": None,
    "optimization_level": None,
    "cpu_compiler_flags": None,
    "compile_time_trace": False,
    "verify_fp": False,
    "strip_hash": False,
    "enable_mathdx_gemm": None,
    "enable_mathdx_solver": None,
    "enable_mathdx_fft": None,
    "extra_build_options": None,
    "deterministic": False,
    "deterministic_max_records": 0,
    "default_grid_stride": None,
}
"""The options of a module, and what they are unless set."""


def unknown(word: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """The error in the options of a decorator, with a hint; None if there is none."""
    names = KERNEL if word == "kernel" else FUNC
    for name in options:
        if name not in names:
            return f"{word} has no option {name}", _instead(name, names)
    if not is_check(options.get("check")):
        return f'check is "full" or None, not {options["check"]!r}', 'write check="full"'
    inside = options.get("module_options") or {}
    if not isinstance(inside, Mapping):
        return "module_options is a dictionary", 'write module_options={"enable_backward": False}'
    for name in inside:
        if name not in MODULE:
            return f"module_options has no option {name}", _instead(str(name), tuple(MODULE))
    return None


def _instead(name: str, names: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"there is {', '.join(names)}"


def is_check(wanted: object) -> bool:
    """Whether a value says what checked launches look for."""
    return wanted is None or (isinstance(wanted, str) and wanted in CHECKS)


def effective(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that mean something here, where they are said: a backward pass or none, and checks."""
    inside = options.get("module_options") or {}
    chosen = [stated.get("enable_backward") for stated in (options, inside)]
    said = [bool(backward) for backward in chosen if backward is not None]
    check = options.get("check")
    return ({"enable_backward": said[0]} if said else {}) | ({"check": check} if check else {})
