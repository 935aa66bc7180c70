"""The tape: what starts a backward pass, checkpoints, norms, values that are not finite."""
