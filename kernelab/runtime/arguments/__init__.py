"""Argument handling of a launch: checks, conversion, flattening of structs, packing."""
