"""Views of checks and Jacobians."""
