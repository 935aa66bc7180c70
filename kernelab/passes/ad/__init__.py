"""Forward and reverse mode, from IR to IR."""
