"""Errors and Ctrl-C in one of several pairs of classes."""

import threading

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianKernelClassifier, BayesianSVC
from softmargin.models.classes import pairwise
from softmargin.models.kernel import fit as kernel_fit

X, Y = load_iris(return_X_y=True)


def interrupting(name, module, pair, monkeypatch, at=3):
    """Ctrl-C in an iteration of the pair that is fitted as number ``pair``."""
    real, begun = getattr(module, name), []

    def fit(*args, callback, **options):
        begun.append(1)
        own = len(begun) - 1

        def stopping(iteration, info):
            if own == pair and iteration == at:
                raise KeyboardInterrupt
            return callback(iteration, info)

        return real(*args, callback=stopping, **options)

    monkeypatch.setattr(module, name, fit)
    return begun


def test_ctrl_c_in_the_last_pair_keeps_all_of_them(monkeypatch):
    interrupting("fit_two_classes", pairwise, 2, monkeypatch)
    with pytest.warns(ConvergenceWarning, match=r"after 3 iterations in 1 of 3 pairs; what was computed is kept"):
        model = BayesianSVC(learning_rate=0.5).fit(X, Y)
    assert not model.converged_ and [len(trace) for trace in model.trace_][2] == 3
    whole = BayesianSVC(learning_rate=0.5).fit(X, Y)
    np.testing.assert_array_equal(model.coef_[:2], whole.coef_[:2])
    assert model.score(X, Y) > 0.9


def test_ctrl_c_before_all_pairs_were_begun_says_why_nothing_is_kept(monkeypatch):
    begun = interrupting("fit_two_classes", pairwise, 1, monkeypatch)
    model = BayesianSVC(learning_rate=0.5)
    with pytest.raises(KeyboardInterrupt, match=r"2 of 3 pairs of classes had a model; .* so none is kept"):
        model.fit(X, Y)
    assert len(begun) == 2 and not hasattr(model, "coef_")


def test_ctrl_c_in_pairs_of_a_kernel_machine(monkeypatch):
    begun = interrupting("fit_kernel", kernel_fit, 0, monkeypatch, at=1)
    machine = BayesianKernelClassifier(learning_rate=0.5, length_scale=1.0)
    with pytest.raises(KeyboardInterrupt, match=r"1 of 3 pairs of classes had a model"):
        machine.fit(X[::3], Y[::3])
    assert len(begun) == 1


def test_ctrl_c_while_all_pairs_run_on_threads_keeps_what_each_has(monkeypatch):
    running, real = threading.Barrier(3), pairwise.fit_two_classes

    def fit(*args, callback, **options):
        def watched(iteration, info):
            if iteration == 5:
                running.wait(60.0)
            if iteration == 6 and threading.current_thread() is threads[0]:
                raise KeyboardInterrupt
            return callback(iteration, info)

        threads.append(threading.current_thread())
        return real(*args, callback=watched, **options)

    threads = []
    monkeypatch.setattr(pairwise, "fit_two_classes", fit)
    model = BayesianSVC(inference="gibbs", draws=10**6, warmup=0, chains=1, learning_rate=0.5, n_jobs=3)
    with pytest.warns(ConvergenceWarning, match=r"in 3 of 3 pairs; what was computed is kept"):
        model.fit(X, Y)
    assert all(posterior.draws.shape[1] < 10**6 for posterior in model.posterior_)
    assert np.isfinite(model.predict_proba(X)).all()


def test_no_pair_runs_on_after_an_error_in_another(monkeypatch):
    started, numbers = threading.Event(), iter(range(3))

    def fit(*_, callback, **__):
        if next(numbers) == 0:
            started.wait(30.0)
            raise ValueError("this pair cannot be fitted")
        started.set()
        for _ in range(300):
            if callback(1, None):
                raise KeyboardInterrupt
            threading.Event().wait(0.1)
        raise AssertionError("never told to end")

    monkeypatch.setattr(pairwise, "fit_two_classes", fit)
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="this pair cannot be fitted"):
        BayesianSVC(n_jobs=2).fit(X, Y)
    assert set(threading.enumerate()) <= before
