"""Views that follow what they are of while a cell runs."""
