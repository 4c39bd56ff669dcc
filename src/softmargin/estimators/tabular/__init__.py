"""Models of tables whose columns may hold labels."""
