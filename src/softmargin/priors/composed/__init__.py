"""Priors that put others together: by column, by term, and for effects that are correlated."""
