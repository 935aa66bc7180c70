"""Defs and cells: kernels, functions and the derivatives that users write."""
