"""Constructors and functions for host code: arrays, structs, functions of the language."""
