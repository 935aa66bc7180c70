"""Jacobians: what they are of, their pattern, their columns or rows together."""
