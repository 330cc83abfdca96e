"""Checks of what a user passes, and what is said of a mistake."""
