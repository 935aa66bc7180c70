"""Checks of single derivative rules, of users and of builtins, against differences of their functions."""
