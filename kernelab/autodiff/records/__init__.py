"""The records of tapes and transforms, and the backward pass over them: plan, check, sweep, publish."""
