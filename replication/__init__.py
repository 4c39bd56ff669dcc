"""The figures and statements of the papers, recomputed and set beside what was printed."""
