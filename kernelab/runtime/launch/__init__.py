"""Launches: grids, arguments, races, residuals, capture."""
