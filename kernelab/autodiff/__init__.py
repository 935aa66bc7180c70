"""Derivatives across launches: tapes, what they must save, and checks of the result."""
