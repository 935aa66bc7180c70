"""Lowering of cells and of their defs: kernels, functions and custom derivatives."""
