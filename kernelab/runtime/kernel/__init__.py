"""Kernels: their programs and entries, derived and built on first use."""
