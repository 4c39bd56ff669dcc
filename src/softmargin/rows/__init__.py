"""Where the rows are: cells, sums over them, random streams and compiled loops."""
