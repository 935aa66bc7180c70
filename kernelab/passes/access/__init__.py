"""Analyses of the array elements that a function reads and writes, and proofs from them."""
