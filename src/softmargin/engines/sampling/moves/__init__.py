"""Moves of samplers, one kind per file."""
