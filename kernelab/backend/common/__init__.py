"""What every backend offers: entries, errors, packing, printing, background builds and the cache."""
