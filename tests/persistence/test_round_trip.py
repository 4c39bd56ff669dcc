"""A saved model is the same model: every kind, every answer, to the last bit, in a process of its own."""

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from saved_models import DATA, LABELS, MODELS, THREE, X, fitted, said

import softmargin
from softmargin import BayesianKernelClassifier

HERE = Path(__file__).parent
ELSEWHERE = f"""
import json, pickle, sys
sys.path.insert(0, {str(HERE)!r})
import softmargin
from saved_models import said
answers = {{}}
for path in sys.argv[1:]:
    with open(path + ".rows", "rb") as file:
        rows = pickle.load(file)
    answers[path] = said(softmargin.load(path), rows)
print(json.dumps(answers))
"""


def here_and_there(folder):
    """What every model says here, and what its file says in another process."""
    here = {}
    for number, name in enumerate(MODELS):
        model, rows = fitted(name)
        path = folder / f"{number}.softmargin"
        softmargin.save(model, path)
        Path(f"{path}.rows").write_bytes(pickle.dumps(rows))
        here[name] = str(path), said(model, rows)
    command = [sys.executable, "-c", ELSEWHERE, *(path for path, _ in here.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout.splitlines()[-1])
    return {name: (answers, there[path]) for name, (path, answers) in here.items()}


def test_a_loaded_model_says_the_same_to_the_last_bit_in_another_process(tmp_path):
    """All kinds of models in one test: the workers of a parallel run would otherwise each fit all of them."""
    answers = here_and_there(tmp_path)
    assert list(answers) == list(MODELS)
    for name, (here, there) in answers.items():
        assert here == there, name


@pytest.mark.parametrize("name", ["effects, vb", "kernel, active", "formula, functions"])
def test_pickle_and_joblib_go_on_working(name):
    model, rows = fitted(name)
    stream = io.BytesIO()
    joblib.dump(model, stream)
    stream.seek(0)
    assert said(pickle.loads(pickle.dumps(model)), rows) == said(joblib.load(stream), rows) == said(model, rows)


@pytest.mark.parametrize(
    "name", ["two classes, hmc", "pairs, gibbs", "missing, vb", "regression, vb", "kernel, active"]
)
def test_a_fitted_model_holds_no_state_of_an_engine(name):
    model, _ = fitted(name)
    for part in model._fitted.parts:
        assert part.fit.outcome.state is None and part.fit.vi is None and part.fit.unknowns == ()


def test_saving_twice_gives_the_same_bytes_and_a_loaded_model_the_same_file(tmp_path):
    model, _ = fitted("effects, gibbs")
    first, second, third = (tmp_path / name for name in "abc")
    softmargin.save(model, first)
    softmargin.save(model, second)
    softmargin.save(softmargin.load(first), third)
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()


def test_a_loaded_model_by_batches_goes_on_as_the_one_before(tmp_path):
    model, _ = fitted("kernel, batches")
    softmargin.save(model, tmp_path / "m")
    other = softmargin.load(tmp_path / "m")
    model.partial_fit(X[:20], LABELS[:20])
    other.partial_fit(X[:20], LABELS[:20])
    assert said(model, X) == said(other, X)


def test_a_loaded_formula_scores_rows_with_their_response(tmp_path):
    for name in ("formula", "formula, regression"):
        model, _ = fitted(name)
        softmargin.save(model, tmp_path / "m")
        other = softmargin.load(tmp_path / "m")
        assert other.score(DATA) == model.score(DATA)
        assert str(other.formula_) == str(model.formula_)


def test_a_loaded_model_can_be_fitted_again_and_cloned(tmp_path):
    from sklearn.base import clone

    model, _ = fitted("spike and slab")
    softmargin.save(model, tmp_path / "m")
    other = softmargin.load(tmp_path / "m")
    assert clone(other).get_params() == model.get_params()
    np.testing.assert_array_equal(other.fit(X, LABELS).predict_proba(X), model.predict_proba(X))


def test_labels_of_every_type_come_back(tmp_path):
    words = np.array(["a", "bb", "ccc"])[THREE]
    for labels in (THREE, THREE == 1, THREE + 1.0, words, words.astype(object)):
        model = BayesianKernelClassifier(basis="full", inference="map", length_scale=1.0).fit(X, labels)
        softmargin.save(model, tmp_path / "m")
        found = softmargin.load(tmp_path / "m").predict(X)
        assert found.dtype == model.predict(X).dtype
        np.testing.assert_array_equal(found, model.predict(X))
