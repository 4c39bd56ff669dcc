"""Files of arrays and JSON: the container, and objects as records in it."""
