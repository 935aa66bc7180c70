"""The interpreter: IR run with NumPy."""
