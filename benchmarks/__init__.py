"""Measurements: `python -m benchmarks.FOLDER.NAME` from the root of a checkout."""
