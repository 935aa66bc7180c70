"""Which elements of its arrays a function touches."""
