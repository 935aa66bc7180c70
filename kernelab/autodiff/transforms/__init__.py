"""Transforms of functions: forward and reverse mode, `vmap`, float64."""
