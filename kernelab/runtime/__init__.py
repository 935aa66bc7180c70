"""Arrays, devices, kernels and launches: what runs, without derivatives across launches."""
