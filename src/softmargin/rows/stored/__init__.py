"""Rows that stay in files and are read block by block."""
