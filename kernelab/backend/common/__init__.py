"""Code shared by all backends: entries, errors, packing, printing, background builds and the cache."""
