"""``softmargin demo`` does what it says: figures as in a fit made here, a picture, and plain errors."""

import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from command import Run, run
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from softmargin import BayesianSVC, __version__
from softmargin.cli import app
from softmargin.cli import demo as demonstration

PICTURE = "softmargin-demo.png"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return run("demo", "--out", folder), folder


@pytest.fixture(scope="module")
def reference():
    """The same split and fit, made without the command line."""
    X, target = load_breast_cancer(return_X_y=True, as_frame=True)
    y = np.array(["malignant", "benign"])[target]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    return BayesianSVC(random_state=0).fit(X_train, y_train), X_test, y_test


def test_demo_writes_a_picture(demo):
    image = pytest.importorskip("matplotlib.image")
    result, folder = demo
    assert result.code == 0
    assert f"Picture: {folder / PICTURE}" in result.out
    assert [path.name for path in folder.iterdir()] == [PICTURE]
    pixels = image.imread(folder / PICTURE)[..., :3]
    height, width, _ = pixels.shape
    assert height > 300 and width > 900
    assert 0.5 < (pixels.min(axis=2) > 0.99).mean() < 0.99  # mostly background, but something is drawn
    assert len(np.unique((pixels * 255).astype(int).reshape(-1, 3), axis=0)) > 100
    third = width // 3
    assert all(pixels[:, k * third : (k + 1) * third].std() > 0.05 for k in range(3))


def test_demo_prints_the_coefficients_of_the_fit(demo, reference):
    model, *_ = reference
    table = model.summary().drop(index="Intercept")
    order = (table["mean"] / table["sd"]).abs().sort_values(ascending=False).index[:10]
    lines = demo[0].out.splitlines()
    first = next(k for k, line in enumerate(lines) if "P(> 0)" in line) + 1
    for name, line in zip(order, lines[first : first + 10], strict=True):
        assert line.startswith(name)
        printed = [float(word) for word in line[len(name) :].replace(" to ", " ").split()]
        expected = table.loc[name, ["mean", "sd", "lower", "upper", "prob_positive"]].to_numpy(float)
        np.testing.assert_allclose(printed, expected, rtol=1e-3, atol=6e-4)
    assert not lines[first + 10].strip()


def test_demo_prints_the_scores_of_the_fit(demo, reference):
    model, X_test, y_test = reference
    out = demo[0].out

    def numbers(start):
        line = next(line for line in out.splitlines() if line.startswith(start))
        return [float(word) for word in re.findall(r"(?<![\w.])\d+\.?\d*", line[len(start) :])]

    accuracy, loss, seconds = numbers("softmargin, nothing to tune")
    assert accuracy == pytest.approx(accuracy_score(y_test, model.predict(X_test)), abs=6e-5)
    assert loss == pytest.approx(log_loss(y_test, model.predict_proba(X_test)), abs=6e-5)
    assert 0 < seconds < 60
    peer_accuracy, peer_loss, peer_seconds = numbers("LinearSVC, C searched, calibrated")
    assert 0.9 < peer_accuracy <= 1 and 0 < peer_loss < 0.3 and peer_seconds > 0
    assert numbers("Learned prior scale")[0] == pytest.approx(model.scale_, abs=6e-5)
    assert numbers("Chosen learning rate")[0] == model.learning_rate_
    assert numbers("Leave-one-out log loss, error") == pytest.approx([model.loo_.score, model.loo_.error], abs=6e-5)


def test_peer_is_tuned_and_calibrated():
    X, y = demonstration._data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peer = demonstration._calibrated_svm(X[::2], y[::2])
    assert list(peer.classes_) == ["benign", "malignant"]
    assert len(peer.calibrated_classifiers_) == 5


def test_demo_without_matplotlib(tmp_path, monkeypatch, demo):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    result = run("demo", "--out", tmp_path)
    assert result.code == 0
    assert not list(tmp_path.iterdir())
    assert result.err.strip().count("\n") == 0
    assert "matplotlib" in result.err and "pip install" in result.err

    def figures(text):  # the same table, times apart
        return re.sub(r"\d+\.\d\d s", "", text.split("\n\nPicture")[0]).strip()

    assert figures(result.out) == figures(demo[0].out)


def test_unwritable_folder_is_one_sentence(tmp_path):
    (tmp_path / "taken").write_text("")
    result = run("demo", "--out", tmp_path / "taken")
    assert result.code == 1
    assert result.err.startswith(f"softmargin: error: cannot use {tmp_path / 'taken'}: ")
    assert result.err.count("\n") == 1
    assert not result.out


@pytest.mark.parametrize("argv", [["fly"], [], ["demo", "--colour"]])
def test_not_understood(argv):
    result = run(*argv)
    assert result.code == 2
    assert "Usage: softmargin" in result.err


def test_version_and_help():
    assert run("--version") == Run(0, f"softmargin {__version__}\n", "")
    text = run("--help")
    assert text.code == 0 and "demo" in text.out
    assert re.search(r"--out +DIR", run("demo", "--help").out)


def test_interruption(monkeypatch):
    def interrupted(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run_demo", interrupted)
    result = run("demo")
    assert (result.code, result.err) == (130, "softmargin: interrupted.\n")


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("fly", 2)])
def test_as_a_module(argument, code):
    done = subprocess.run(
        [sys.executable, "-m", "softmargin", argument], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == code
    assert ("softmargin" in done.stdout) == (code == 0)
