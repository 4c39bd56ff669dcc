"""Processes that are killed at random moments, and fits that go on as if they had not been."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

PROGRAM = """
import sys
import warnings
import numpy as np
from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR
from softmargin.survival import checkpoints

warnings.simplefilter("ignore")
name, folder, out = sys.argv[1:]
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 5))
f = X[:, 0] - 0.5 * X[:, 1]
y, r = f + rng.logistic(size=400) > 0, f + 0.4 * rng.normal(size=400)
own = {"random_state": 1}
if folder != "-":
    own |= {"checkpoint": folder, "checkpoint_every": 0.05, "resume": True}
draws = {"draws": 400, "warmup": 100, "chains": 2}
three = (y + (f > 0.8)).astype(int)
model, response = {
    "vb": (BayesianSVC(tol=1e-13, **own), y),
    "gibbs": (BayesianSVC("lasso", "gibbs", **draws, **own), y),
    "hmc": (BayesianSVC(inference="hmc", **draws, **own), y),
    "pairs": (BayesianSVC(inference="gibbs", n_jobs=2, **(draws | {"draws": 150}), **own), three),
    "noise": (BayesianSVR(inference="gibbs", **draws, **own), r),
    "svi": (BayesianSVC(inference="svi", engine_options={"batch": 16, "epochs": 12}, **own), y),
    "active": (BayesianKernelClassifier(basis="active", inference="gibbs", **(draws | {"draws": 40}), **own), y),
}[name]
rows = X[:60] if name == "active" else X
response = response[:60] if name == "active" else response
print("begin", flush=True)
model.fit(rows, response)
said = model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)
np.save(out, np.concatenate([np.ravel(said), np.ravel(model.n_iter_)]))
"""
NAMES = ("vb", "gibbs", "hmc", "pairs", "noise", "svi", "active")
KILLS = 8  # of each fit
LONGEST = 300.0  # seconds that a process may take before it is called stuck


def started(name, folder, out):
    own = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, name, folder, out], stdout=subprocess.PIPE, env=own)


def finished(name, folder, out):
    process = started(name, folder, out)
    assert process.wait(timeout=LONGEST) == 0
    return np.load(out)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_killed_processes_lose_nothing_and_leave_no_wrong_result(name, tmp_path):
    """Eight kills for each of seven fits."""
    rng, kills, turn = random.Random(name), 0, 0
    finished(name, "-", str(tmp_path / "warm.npy"))  # compiled
    begun = time.monotonic()
    whole = finished(name, "-", str(tmp_path / "whole.npy"))
    seconds = time.monotonic() - begun
    while kills < KILLS:
        folder, out, turn = tmp_path / f"fit-{turn}", tmp_path / f"out-{turn}.npy", turn + 1
        for _ in range(6):  # killed again and again until one gets through
            process = started(name, str(folder), str(out))
            assert process.stdout.readline() == b"begin\n"
            time.sleep(rng.uniform(0.0, 0.6) * seconds)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            process.wait(timeout=LONGEST)
            before = {path.name: path.stat().st_size for path in folder.glob("*.checkpoint")}
            if out.exists():
                break
        np.testing.assert_array_equal(finished(name, str(folder), str(out)), whole)
        assert set(before) <= {path.name for path in folder.glob("*.checkpoint")}  # what was written stays
