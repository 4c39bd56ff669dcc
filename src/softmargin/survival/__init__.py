"""Long runs: time limits, checkpoints, and chains that go on."""
