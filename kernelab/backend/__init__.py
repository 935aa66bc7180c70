"""Everything that runs kernels: compilers, the cache of what they built, and the interpreter."""
