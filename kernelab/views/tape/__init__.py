"""Views of tapes, arrays and gradients."""
