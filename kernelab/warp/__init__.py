"""Names, settings and conventions for programs written for Warp: nothing else in kernelab knows of Warp."""
