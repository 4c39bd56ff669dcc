"""What is around the kernels for narrow rows: sizes of their launches, and where their results go."""

from types import SimpleNamespace

import numpy as np

from softmargin.rows.device._narrow import NarrowKernels

WIDTH = 64


class Simulated:
    """A kernel that is a function of the arguments of a launch."""

    def __init__(self, run):
        self.run = run

    def __call__(self, blocks, threads, given, shared_mem=0):
        assert max(threads) <= 1024 and shared_mem <= 4 * WIDTH * (WIDTH + 128)
        self.run(*given)


def fill_gram(Z, w, b, n, sums, products):
    A, tile = Z[:n].T @ (w[:n, None] * Z[:n]), 0
    for i in range(WIDTH // 8):
        for j in range(i + 1):  # tiles of 8 x 8 results on and below the diagonal
            sums[-1, :, tile] = A[8 * i : 8 * i + 8, 8 * j : 8 * j + 8].ravel()
            tile += 1
    products[0, 0] = Z.T @ b if np.ndim(b) else 0.0


def fill_moments(Z, right, n, triangular, f, v):
    product = Z @ right
    f[:n], v[:n] = product[:, -1], (product[:, :-1] ** 2).sum(axis=1)


def test_results_of_narrow_products_go_where_they_belong():
    kernels = {"narrow_gram": Simulated(fill_gram), "narrow_moments": Simulated(fill_moments)}
    device = SimpleNamespace(attributes={"MultiProcessorCount": 2})
    module = SimpleNamespace(get_function=kernels.__getitem__)
    xp = SimpleNamespace(
        zeros=np.zeros, empty=np.empty, asarray=np.asarray,
        RawModule=lambda code, options: module, cuda=SimpleNamespace(Device=lambda: device),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    Z, w, b, right = (rng.standard_normal(size) for size in ((30, WIDTH), 30, 30, (WIDTH, WIDTH)))
    narrow = NarrowKernels(xp, WIDTH)
    A, c = narrow.gram(Z, w, b)
    np.testing.assert_allclose(A, Z.T @ (w[:, None] * Z), atol=1e-12)
    np.testing.assert_allclose(c, Z.T @ b, atol=1e-12)
    assert not narrow.gram(Z, w, None)[1].any()
    f, v = narrow.moments(Z, right, False)
    np.testing.assert_allclose(f, Z @ right[:, -1], atol=1e-12)
    np.testing.assert_allclose(v, ((Z @ right[:, :-1]) ** 2).sum(axis=1), atol=1e-10)
