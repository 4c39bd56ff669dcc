"""Parameters of estimators: those of their parts, and keywords that users of others bring."""
