"""One element of a gradient, or one thread of a launch, looked at."""
