"""Utilities for arrays and programs: ``kl.utils.array_sum(x)``, ``kl.utils.ScopedTimer("step")``."""

from kernelab.guidance.missing_names import face
from kernelab.runtime.launch.scoped import ScopedDevice, ScopedTimer
from kernelab.runtime.ops.reductions import array_cast, array_inner, array_scan, array_sum
from kernelab.runtime.ops.sorting import radix_sort_pairs, runlength_encode, segmented_sort_pairs

__all__ = [
    "ScopedDevice",
    "ScopedTimer",
    "array_cast",
    "array_inner",
    "array_scan",
    "array_sum",
    "radix_sort_pairs",
    "runlength_encode",
    "segmented_sort_pairs",
]

__getattr__, __dir__ = face(__name__, __all__)
