"""Generated code: one emitter of C++ for every target, and the readable listing of a function."""
