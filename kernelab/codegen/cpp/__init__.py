"""The emitter of C++ and CUDA."""
