"""The CPU: generated C++, and the interpreter, which runs the IR with NumPy."""
