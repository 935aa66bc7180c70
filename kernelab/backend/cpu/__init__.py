"""The CPU: generated C++, built by the machine's compiler."""
