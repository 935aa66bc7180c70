"""The class array: layout, views, copies, gradients, other libraries."""
