"""Models by name that tests fit once, without warnings."""

import functools
import warnings

SHORT = {"draws": 8, "warmup": 4, "chains": 2, "random_state": 0, "learning_rate": 0.5}
DRAWS = {**SHORT, "inference": "gibbs"}


def fitted_once(models):
    """A function of a name that makes the model of this name at its first call."""

    @functools.cache
    def model_of(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return models[name]()

    return model_of


def has_many_classes(name):
    """Whether the name of a model is that of one with more than two classes."""
    return any(word in name for word in ("pairs", "sum-to-zero", "crammer"))
