"""Settings, the current recorder, hooks, and what messages need."""
