"""Memory that arrays share, on the host and on devices."""
