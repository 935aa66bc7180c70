"""Copying, inlining and simplifying IR, and analyses shared by other passes."""
