"""The language as data: types, operations, the intermediate representation, its builder, printer and verifier."""
