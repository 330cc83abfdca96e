"""Optimizers and learning rates from a run's config."""
