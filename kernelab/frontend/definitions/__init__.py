"""Statements, and the defs of a cell: kernels, functions and custom derivatives."""
