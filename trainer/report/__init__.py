"""What a run leaves to look at: numbers while it goes on, curves and a page afterwards."""
