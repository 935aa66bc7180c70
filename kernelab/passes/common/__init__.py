"""Copying, inlining and simplifying IR, and facts that every other pass asks for."""
