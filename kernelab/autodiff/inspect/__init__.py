"""Inspection of one element of a gradient or one thread of a launch."""
