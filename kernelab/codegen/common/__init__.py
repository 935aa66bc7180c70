"""What every target shares: the launch ABI, sums, and questions about a function."""
