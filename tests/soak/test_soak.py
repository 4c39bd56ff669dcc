"""Random problems of every estimator, prior and inference end in finite answers or in one clear sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHUNKS, SIZE = 12, 25


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems_are_solved_or_refused_in_one_sentence(chunk):
    command = [sys.executable, Path(__file__).parent, "--first", str(chunk * SIZE), "--problems", str(SIZE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
