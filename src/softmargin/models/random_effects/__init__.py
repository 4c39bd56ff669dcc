"""Effects of groups and smooth functions."""
