"""Branches and loops as regions of the IR."""
