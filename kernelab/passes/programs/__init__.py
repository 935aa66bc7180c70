"""Programs derived from the primal: batching, NaN provenance, race detection, dependencies."""
