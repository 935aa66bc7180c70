"""A function of the IR as text that reads like Python."""
