"""Plays what happens to a federation over real API servers, and prints how it looks."""
