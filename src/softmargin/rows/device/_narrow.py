"""Products of narrow rows in single precision: two kernels where a library's own routines read and write too much.

Matrix routines are made for many columns. With some hundred, most of their time goes into a weighted copy of the rows,
or into a product that is only summed. Both kernels keep tiles of 8 x 8 results in registers, make half of what is
symmetric or triangular, and read every row once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = ["LEAST", "MOST", "NarrowKernels"]

LEAST, MOST = 64, 128  # columns for which they are made: fewer leave threads idle, more have too many results
_CELL_ROWS = 512  # rows that are added up in single precision before the sum goes into one in double precision
_ROWS_AT_ONCE = 128  # of a block of the second kernel, the number MANY of its source
_BLOCKS = 5  # of the first kernel that a processor has registers for at once

_SOURCE = r"""
#define TILES (W / 8)
#define HALF (W / 2)
#define QUADS (W / 4)
#define ROWS 32

__device__ inline int place(int column) {  // the two halves of eight columns apart: threads then read side by side
    return ((column >> 2) & 1) * HALF + (column >> 3) * 4 + (column & 3);
}

extern "C" __global__ void narrow_gram(const float* Z, const double* w, const double* b, long long n, double* sums,
                                       double* products) {
    __shared__ __align__(16) float tile[ROWS * W];
    __shared__ float root[ROWS], linear[ROWS];
    const int t = threadIdx.x, count = TILES * (TILES + 1) / 2;
    int i = 0;
    while ((i + 1) * (i + 2) / 2 <= t) i++;
    const int ti = i, tj = t - i * (i + 1) / 2;
    const int lanes = (blockDim.x / QUADS) * QUADS, quad = t % QUADS, first = t / QUADS, step = blockDim.x / QUADS;
    for (long long cell = blockIdx.x; cell * CELL < n; cell += gridDim.x) {
        float acc[8][8];
        float4 own = make_float4(0.f, 0.f, 0.f, 0.f);
        #pragma unroll
        for (int p = 0; p < 8; p++)
            #pragma unroll
            for (int q = 0; q < 8; q++) acc[p][q] = 0.f;
        for (int start = 0; start < CELL; start += ROWS) {
            const long long base = cell * CELL + start;
            if (base >= n) break;
            __syncthreads();
            if (t < ROWS) {
                const bool inside = base + t < n;
                root[t] = inside ? sqrtf((float)w[base + t]) : 0.f;
                linear[t] = inside && b != 0 ? (float)b[base + t] : 0.f;
            }
            __syncthreads();
            if (t < lanes) {
                for (int r = first; r < ROWS; r += step) {
                    float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
                    if (base + r < n) x = *(const float4*)(Z + (base + r) * W + 4 * quad);
                    const float s = root[r], y = linear[r];
                    own.x += x.x * y; own.y += x.y * y; own.z += x.z * y; own.w += x.w * y;
                    *(float4*)(tile + r * W + place(4 * quad)) = make_float4(x.x * s, x.y * s, x.z * s, x.w * s);
                }
            }
            __syncthreads();
            if (t < count) {
                #pragma unroll 4
                for (int r = 0; r < ROWS; r++) {
                    const float* row = tile + r * W;
                    float u[8], v[8];
                    *(float4*)u = *(const float4*)(row + 4 * ti);
                    *(float4*)(u + 4) = *(const float4*)(row + HALF + 4 * ti);
                    *(float4*)v = *(const float4*)(row + 4 * tj);
                    *(float4*)(v + 4) = *(const float4*)(row + HALF + 4 * tj);
                    #pragma unroll
                    for (int p = 0; p < 8; p++)
                        #pragma unroll
                        for (int q = 0; q < 8; q++) acc[p][q] += u[p] * v[q];
                }
            }
        }
        if (t < count) {
            #pragma unroll
            for (int p = 0; p < 8; p++)
                #pragma unroll
                for (int q = 0; q < 8; q++) sums[((long long)blockIdx.x * 64 + 8 * p + q) * count + t] += acc[p][q];
        }
        if (t < lanes) {
            double* out = products + ((long long)blockIdx.x * step + first) * W + 4 * quad;
            out[0] += own.x; out[1] += own.y; out[2] += own.z; out[3] += own.w;
        }
    }
}

#define MANY 128
#define SIDE (MANY / 8)

extern "C" __global__ void narrow_moments(const float* Z, const float* R, long long n, int triangular, double* f,
                                          double* v) {
    extern __shared__ __align__(16) float memory[];
    float* right = memory;           // W x W, columns in places
    float* left = memory + W * W;    // W x MANY: rows in places, turned
    const int t = threadIdx.x, mine = t % SIDE, group = t / SIDE;
    for (int at = t; at < W * W; at += blockDim.x) right[(at / W) * W + place(at % W)] = R[at];
    const int end = triangular && group < TILES - 1 ? 8 * (group + 1) : W;
    for (long long base = (long long)blockIdx.x * MANY; base < n; base += (long long)gridDim.x * MANY) {
        __syncthreads();
        for (int at = t; at < MANY * QUADS; at += blockDim.x) {
            const int row = at % MANY, quad = at / MANY;
            const int to = ((row >> 2) & 1) * (MANY / 2) + (row >> 3) * 4 + (row & 3);
            float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
            if (base + row < n) x = *(const float4*)(Z + (base + row) * W + 4 * quad);
            left[(4 * quad) * MANY + to] = x.x;
            left[(4 * quad + 1) * MANY + to] = x.y;
            left[(4 * quad + 2) * MANY + to] = x.z;
            left[(4 * quad + 3) * MANY + to] = x.w;
        }
        __syncthreads();
        float acc[8][8];
        #pragma unroll
        for (int p = 0; p < 8; p++)
            #pragma unroll
            for (int q = 0; q < 8; q++) acc[p][q] = 0.f;
        #pragma unroll 4
        for (int k = 0; k < end; k++) {
            float a[8], b[8];
            *(float4*)a = *(const float4*)(left + k * MANY + 4 * mine);
            *(float4*)(a + 4) = *(const float4*)(left + k * MANY + MANY / 2 + 4 * mine);
            *(float4*)b = *(const float4*)(right + k * W + 4 * group);
            *(float4*)(b + 4) = *(const float4*)(right + k * W + HALF + 4 * group);
            #pragma unroll
            for (int p = 0; p < 8; p++)
                #pragma unroll
                for (int q = 0; q < 8; q++) acc[p][q] += a[p] * b[q];
        }
        __syncthreads();  // the turned rows are used up: their place is taken by the sums of squares
        const bool last = group == TILES - 1;
        #pragma unroll
        for (int p = 0; p < 8; p++) {
            float total = last ? 0.f : acc[p][7] * acc[p][7];
            #pragma unroll
            for (int q = 0; q < 7; q++) total += acc[p][q] * acc[p][q];
            left[group * MANY + 8 * mine + p] = total;
            const long long row = base + 8 * mine + p;
            if (last && row < n) f[row] = acc[p][7];
        }
        __syncthreads();
        for (int row = t; row < MANY; row += blockDim.x) {
            double total = 0.0;
            for (int g = 0; g < TILES; g++) total += left[g * MANY + row];
            if (base + row < n) v[base + row] = total;
        }
    }
}
"""


def _tiles(width: int) -> int:
    """Tiles of 8 x 8 results on and below the diagonal."""
    count = width // 8
    return count * (count + 1) // 2


@cache
def _tile_places(width: int) -> tuple[Any, Any]:
    """Rows and columns of the results of all tiles: arrays (64, tiles)."""
    pairs = [(i, j) for i in range(width // 8) for j in range(i + 1)]
    inner = np.arange(64)
    rows = 8 * np.array([i for i, _ in pairs]) + (inner // 8)[:, None]
    columns = 8 * np.array([j for _, j in pairs]) + (inner % 8)[:, None]
    return rows, columns


class NarrowKernels:
    """Both kernels for rows of one width, with the library ``xp`` that holds them."""

    def __init__(self, xp: Any, width: int) -> None:
        self.xp, self.width, self.shared = xp, width, 4 * width * (width + _ROWS_AT_ONCE)
        options = (f"-DW={width}", f"-DCELL={_CELL_ROWS}", "--std=c++14")
        module = xp.RawModule(code=_SOURCE, options=options)
        self._gram, self._moments = module.get_function("narrow_gram"), module.get_function("narrow_moments")
        self._moments.max_dynamic_shared_size_bytes = self.shared
        self.processors = xp.cuda.Device().attributes["MultiProcessorCount"]

    def gram(self, Z: Any, w: Any, b: Any) -> tuple[Any, Any]:
        """``Z' diag(w) Z`` and ``Z' b``, in double precision."""
        xp, width, count = self.xp, self.width, _tiles(self.width)
        threads, blocks = -(-count // 32) * 32, _BLOCKS * self.processors
        sums = xp.zeros((blocks, 64, count))
        products = xp.zeros((blocks, threads // (width // 4), width))
        self._gram((blocks,), (threads,), (Z, w, np.uintp(0) if b is None else b, np.int64(len(Z)), sums, products))
        A, total = xp.empty((width, width)), sums.sum(axis=0)
        rows, columns = (xp.asarray(each) for each in _tile_places(width))
        A[rows, columns], A[columns, rows] = total, total
        return A, products.sum(axis=(0, 1))

    def moments(self, Z: Any, right: Any, triangular: bool) -> tuple[Any, Any]:
        """The last column of ``Z right``, and the sums of squares of its other columns, in double precision."""
        f, v = self.xp.empty(len(Z)), self.xp.empty(len(Z))
        threads = (self.width // 8) * (_ROWS_AT_ONCE // 8)
        given = (Z, right, np.int64(len(Z)), np.int32(triangular), f, v)
        self._moments((2 * self.processors,), (threads,), given, shared_mem=self.shared)
        return f, v
