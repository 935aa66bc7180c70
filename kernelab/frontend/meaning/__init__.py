"""Meanings of names, values and annotations while a def is lowered."""
