"""Engines: where the row messages and the prior precision come from. Each is an (init, step) pair."""
