"""Views of kernels: source, adjoint, generated code, machine code."""
