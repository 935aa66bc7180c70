"""CUDA devices: drivers, compilers, launches, streams and workspaces."""
