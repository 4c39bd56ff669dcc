"""Where rows live and how work on them runs: cells, blocks, threads and random streams."""
