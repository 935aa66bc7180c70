"""Kernels: programs derived and entries built when they are first needed."""
