"""Samplers of kernel expansions."""
