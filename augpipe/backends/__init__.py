"""Where batches are made: one module a backend."""
