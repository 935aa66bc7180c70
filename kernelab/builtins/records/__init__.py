"""The `builtin` decorator, which makes records of operations, and words of the language without a record."""
