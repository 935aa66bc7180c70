"""Launches: grids, prepared launches, data races, residuals, graph capture."""
