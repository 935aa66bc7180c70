"""Syntax trees, and the meanings of names, values and annotations while a def is lowered."""
