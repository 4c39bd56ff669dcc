"""Data that no default was chosen on: drawn by a rule from packages that ship data, measured once."""
