"""Saves values that adjoints need before they are overwritten."""
