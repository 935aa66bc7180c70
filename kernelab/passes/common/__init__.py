"""Transformations of IR and facts on it that other passes share, and programs beside the primal."""
