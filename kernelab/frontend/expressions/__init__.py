"""Expressions, the places that they read or assign, and branches: from the syntax tree to IR."""
