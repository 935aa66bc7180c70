"""Transforms of functions: derivatives in both modes, many lanes, float64."""
