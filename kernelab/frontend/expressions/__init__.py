"""Expressions: from the syntax tree to values."""
