"""Per-pixel and per-number math, and the loops that run it: numpy and numba only."""
