"""Jacobians, dense and sparse: subjects, sparsity patterns, compressed columns and rows."""
