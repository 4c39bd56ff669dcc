"""Pictures as objects, in the manner of scikit-learn: numbers as attributes, ``from_estimator`` and ``plot``."""
