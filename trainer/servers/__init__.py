"""Training through parameter servers."""
