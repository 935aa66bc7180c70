"""Code shared by all targets: the launch ABI, print formats, and queries about a function."""
