"""The tape: the plan of a backward pass, the sweep, publication, and broken chains."""
