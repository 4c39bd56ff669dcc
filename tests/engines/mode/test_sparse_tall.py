"""Many sparse rows: the mode from the rows near the margin is that of the interior point on all of them."""

import numpy as np
import pytest
import scipy.sparse as sp
from engine_problems import build, penalty_of

from softmargin.engines.mode import screening as reduced
from softmargin.engines.mode.interior import exact_mode, path
from softmargin.engines.mode.newton import Newton
from softmargin.engines.mode.smoothed_start import many_rows
from softmargin.priors import Ridge


def counts(n=9000, p=20, seed=0):
    """Rows with a third of their entries, and noisy signs."""
    rng = np.random.default_rng(seed)
    X = sp.csr_matrix(np.where(rng.random((n, p)) < 0.33, rng.normal(1.0, 0.3, (n, p)), 0.0))
    f = X @ rng.normal(size=p)
    return X, np.where(f - np.median(f) + rng.normal(size=n) > 0.0, 1.0, -1.0)


@pytest.mark.parametrize("scale", [0.05, 1.0])
@pytest.mark.parametrize("standardized", [False, True])
def test_the_mode_of_sparse_rows(monkeypatch, scale, standardized):
    X, y = counts()
    c = np.random.default_rng(1).uniform(0.2, 2.0, len(y))
    model = build(X, y, c=c, prior=Ridge(scale=scale), standardized=standardized)
    dense = build(X.toarray(), y, c=c, prior=Ridge(scale=scale), standardized=standardized)
    penalty, sizes = penalty_of(model), []
    whole = exact_mode(dense, penalty, 1e-9)

    def counted(part, *arguments):
        sizes.append(len(part.y))
        return path(part, *arguments)

    monkeypatch.setattr(reduced, "path", counted)
    point = Newton().at(model, penalty)
    assert 0 < max(sizes) < len(y)  # few rows were enough
    assert abs(point.certificate.gap) <= 1e-9
    assert point.certificate.objective == pytest.approx(whole.certificate.objective, rel=2e-9)
    np.testing.assert_allclose(point.beta, whole.beta, atol=1e-4 * np.abs(whole.beta).max())
    assert not many_rows(model)
