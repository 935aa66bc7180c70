"""Statements: from the syntax tree to IR."""
