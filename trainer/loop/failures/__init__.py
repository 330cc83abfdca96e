"""How a rank's end, a signal or a silence becomes the end of all, with its reason."""
