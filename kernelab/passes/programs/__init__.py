"""Programs beside the primal: batches, NaN provenance, race marks, dependencies."""
