"""Checks of single derivative rules, of users and of builtins, against differences of what they are for."""
