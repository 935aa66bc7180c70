"""The language as data: types, operations, the IR, its builder, printer and verifier."""
