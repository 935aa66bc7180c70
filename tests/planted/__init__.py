"""Do the tests notice?  Faults are planted one at a time in a copy of the package, and the tests run."""
