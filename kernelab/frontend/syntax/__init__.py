"""The syntax tree of a cell, before any name has a meaning."""
