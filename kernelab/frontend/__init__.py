"""Lowering of Python text to IR: names, types, promotion, control flow, and errors at their source positions.

Knows the language and the table of operations; must not know backends, arrays or notebooks.
"""
