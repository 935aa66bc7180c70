"""Checks of derivatives against differences."""
