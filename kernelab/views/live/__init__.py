"""Views that update while a cell runs."""
