"""Helpers around arrays and programs: ``kl.utils.array_sum(x)``, ``kl.utils.ScopedTimer("step")``."""

from kernelab.runtime.reductions import array_cast, array_inner, array_scan, array_sum
from kernelab.runtime.scoped import ScopedDevice, ScopedTimer

__all__ = ["ScopedDevice", "ScopedTimer", "array_cast", "array_inner", "array_scan", "array_sum"]
