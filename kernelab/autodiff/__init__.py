"""Derivatives across launches: tapes, transforms, Jacobians, and checks of gradients."""
