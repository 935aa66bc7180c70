"""Helpers around arrays and programs: ``kl.utils.array_sum(x)``, ``kl.utils.ScopedTimer("step")``."""

from kernelab.runtime.reductions import array_cast, array_inner, array_scan, array_sum

__all__ = ["array_cast", "array_inner", "array_scan", "array_sum"]
