"""Arrays, devices, kernels and launches; derivatives of a single launch only."""
