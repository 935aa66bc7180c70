"""Memory of the host and of devices that arrays share."""
