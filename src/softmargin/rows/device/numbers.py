"""The numbers of a stream on a device: those that NumPy's generators give, made by all threads at once.

A block of threads makes the numbers of a cell. Philox gives word j of a stream without those before it. Uniform numbers
take a word each. Normal numbers are made by a ziggurat: nearly all take one word. The words that take more are marked
by all threads; then one thread goes through the marks, and says which words belong to a number before them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from softmargin.rows.block import CELL
from softmargin.rows.device.kernels import THREADS, Kernel, cuda
from softmargin.rows.device.libraries import HOST, Library
from softmargin.rows.loops import scalar

__all__ = ["CellNumbers", "DeviceNumbers", "numbers_at"]

_WORDS = CELL + 512  # of a cell of normal numbers: on average it takes 30 more than numbers, give or take 8
_MASKS = _WORDS // 32
_FAR = 2 * _WORDS  # length of what would end beyond these words
_U = np.uint64
_LOW, _HALF, _ONE, _EIGHT, _ELEVEN = _U(0xFFFFFFFF), _U(32), _U(1), _U(8), _U(11)
_M0, _M1 = _U(0xD2E7470EE14C6C93), _U(0xCA5A826395121157)  # multipliers of Philox, and what its keys grow by
_B0, _B1 = _U(0x9E3779B97F4A7C15), _U(0xBB67AE8584CAA73B)
_BYTE, _MANTISSA = _U(0xFF), _U(0x000FFFFFFFFFFFFF)
_UNIT = 2.0**-53
_EDGE = 3.6541528853610087963519472518  # where the ziggurat's tail begins
_LEVELS = 256
_device: Any = None  # numba-cuda, imported with the first kernel


@scalar
def _high(a: Any, b: Any) -> Any:
    """Upper half of the product of two words."""
    low, high = a & _LOW, a >> _HALF
    other, above = b & _LOW, b >> _HALF
    middle = high * other + ((low * other) >> _HALF)
    rest = low * above + (middle & _LOW)
    return high * above + (middle >> _HALF) + (rest >> _HALF)


@scalar
def _philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """The four words of a counter. Reference: Salmon et al. (2011), Parallel random numbers: as easy as 1, 2, 3."""
    for _ in range(10):
        above0, low0, above1, low1 = _high(_M0, c0), _M0 * c0, _high(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = above1 ^ c1 ^ k0, low1, above0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _B0, k1 + _B1
    return c0, c1, c2, c3


@scalar
def _uniform(word: Any) -> float:
    return float(word >> _ELEVEN) * _UNIT


@scalar
def _beyond(word: Any) -> float:
    """How far behind the edge a number of the tail would be."""
    return -math.log1p(-_uniform(word)) / _EDGE


@scalar
def _in_tail(word: Any, other: Any) -> bool:
    """Whether two words give a number of the tail."""
    drop, beyond = -math.log1p(-_uniform(other)), _beyond(word)
    return drop + drop > beyond * beyond


@scalar
def _in_wedge(x: float, above: float, below: float, word: Any) -> bool:
    """Whether a number is under the density, at a height between the two ends of its strip that a word says."""
    return (above - below) * _uniform(word) + below < math.exp(-0.5 * x * x)


def _normal_kernel() -> Kernel:
    """The kernel of normal numbers."""

    def kernel(k0, k1, c2, c3, first, size, at, widths, limits, heights, out):  # type: ignore[no-untyped-def]
        words = _device.shared.array(_WORDS, np.uint64)
        lengths = _device.shared.array(_WORDS, np.int32)  # of numbers that take several words; negative if rejected
        marks = _device.shared.array(_MASKS, np.uint32)  # words at which such a number may begin
        taken = _device.shared.array(_MASKS, np.uint32)  # words that give no number
        before = _device.shared.array(_MASKS, np.int32)  # how many of those there are before these 32
        cell, thread = _device.blockIdx.x, _device.threadIdx.x
        count, start = min(CELL, size - cell * CELL), at[cell]
        for m in range(thread, _MASKS, THREADS):
            marks[m], taken[m] = np.uint32(0), np.uint32(0)
        for quad in range(thread, _WORDS // 4 + 1, THREADS):
            four = _philox(_U(start // 4 + quad + 1), _U(first + cell), c2, c3, k0, k1)
            place = 4 * quad - start % 4
            if 0 <= place < _WORDS:
                words[place] = four[0]
            if 0 <= place + 1 < _WORDS:
                words[place + 1] = four[1]
            if 0 <= place + 2 < _WORDS:
                words[place + 2] = four[2]
            if 0 <= place + 3 < _WORDS:
                words[place + 3] = four[3]
        _device.syncthreads()
        for j in range(thread, _WORDS, THREADS):
            level, part = int(words[j] & _BYTE), ((words[j] >> _EIGHT) >> _ONE) & _MANTISSA
            if part >= limits[level]:
                length = _FAR
                if level > 0 and j + 1 < _WORDS:
                    x = float(part) * widths[level]
                    length = 2 if _in_wedge(x, heights[level - 1], heights[level], words[j + 1]) else -2
                if level == 0:
                    end = j + 2
                    while end < _WORDS and not _in_tail(words[end - 1], words[end]):
                        end += 2
                    length = end + 1 - j
                lengths[j] = length
                _device.atomic.or_(marks, j // 32, np.uint32(1 << (j % 32)))
        _device.syncthreads()
        if thread == 0:
            free, total = 0, 0
            for m in range(_MASKS):
                bits = int(marks[m])
                while bits != 0:
                    j = 32 * m + _device.ffs(bits) - 1
                    bits = bits & (bits - 1)
                    if j >= free:
                        length = lengths[j]
                        if length < 0:
                            length = -length
                            taken[m] = np.uint32(int(taken[m]) | (1 << (j % 32)))
                        free = j + length
                        for k in range(j + 1, min(free, _WORDS)):
                            taken[k // 32] = np.uint32(int(taken[k // 32]) | (1 << (k % 32)))
                before[m] = total
                total += _device.popc(int(taken[m]))
        _device.syncthreads()
        for j in range(thread, _WORDS, THREADS):
            mask, bit = int(taken[j // 32]), j % 32
            if (mask >> bit) & 1 == 0:
                place = j - before[j // 32] - _device.popc(mask & ((1 << bit) - 1))
                if place < count:
                    level, rest, length = int(words[j] & _BYTE), words[j] >> _EIGHT, 1
                    part, negative = (rest >> _ONE) & _MANTISSA, rest & _ONE == _ONE
                    x = float(part) * widths[level]
                    if part >= limits[level]:
                        length = lengths[j]
                        if level == 0:
                            x, negative = _EDGE + _beyond(words[j + length - 2]), (part >> _EIGHT) & _ONE == _ONE
                    out[cell * CELL + place] = -x if negative else x
                    if place == count - 1:
                        at[cell] = start + j + length

    kinds = ("u8", "u8", "u8", "u8", "i8", "i8", "i8*", "f8*", "u8*", "f8*", "f8*")
    return Kernel(kernel, kinds)


def _uniform_kernel() -> Kernel:
    """The kernel of uniform numbers."""

    def kernel(k0, k1, c2, c3, first, size, at, out):  # type: ignore[no-untyped-def]
        i = _device.grid(1)
        if i < size:
            cell = i // CELL
            j = at[cell] + i % CELL
            a, b, c, d = _philox(_U(j // 4 + 1), _U(first + cell), c2, c3, k0, k1)
            lane = j % 4
            word = a if lane == 0 else (b if lane == 1 else (c if lane == 2 else d))
            out[i] = _uniform(_U(word))

    return Kernel(kernel, ("u8", "u8", "u8", "u8", "i8", "i8", "i8*", "f8*"))


@cache
def _kernels() -> tuple[Kernel, Kernel]:
    global _device
    _device = cuda()
    return _normal_kernel(), _uniform_kernel()


def ziggurat() -> tuple[Any, Any, Any]:
    """Widths of the strips in units of 2^-52, the words that are inside them, and heights of the density there.

    Strips have the same area, that of the lowest with its tail. Reference: Marsaglia and Tsang (2000), The ziggurat
    method for generating random variables; in long doubles, so that tables are good to the last bit or nearly.
    """
    real, edge = np.longdouble, np.longdouble("3.6541528853610087963519472518")
    density = np.exp(-edge * edge / 2)
    area = edge * density + real(math.sqrt(0.5 * math.pi) * math.erfc(_EDGE / math.sqrt(2.0)))
    x, f = np.zeros(_LEVELS, dtype=real), np.ones(_LEVELS, dtype=real)
    x[-1], f[-1] = edge, density
    for k in range(_LEVELS - 2, 0, -1):
        f[k] = f[k + 1] + area / x[k + 1]
        x[k] = np.sqrt(-2 * np.log(f[k]))
    widths, inside = x.copy(), np.zeros(_LEVELS, dtype=real)
    widths[0] = area / density
    inside[0], inside[1:] = edge / widths[0], x[:-1] / x[1:]
    scale = real(2.0) ** 52
    return (widths / scale).astype(np.float64), (inside * scale).astype(np.uint64), f.astype(np.float64)


class DeviceNumbers:
    """Normal and uniform numbers of the cells of a device, each from its own address."""

    def __init__(self, library: Library, key: tuple[int, int], counter: tuple[int, int], first: int, size: int) -> None:
        self.library, self.first, self.size = library, first, size
        self.key = tuple(_U(each) for each in (*key, *counter))
        self.at = library.xp.zeros(-(-size // CELL), dtype=np.int64)  # words of each cell that were used
        self.counts = library.xp.full(len(self.at), CELL, dtype=np.int64)
        self.counts[-1:] = (size - 1) % CELL + 1
        self.tables = _tables(library)

    def standard_normal(self, size: int) -> Any:
        """Standard normal numbers, one per row."""
        out = self.library.xp.empty(self.size)
        given = (*self.key, np.int64(self.first), np.int64(self.size), self.at, *self.tables, out)
        self.library.launch(_kernels()[0], len(self.at), *given)
        return out

    def random(self, size: int) -> Any:
        """Uniform numbers, one per row."""
        out = self.library.xp.empty(self.size)
        given = (*self.key, np.int64(self.first), np.int64(self.size), self.at, out)
        self.library.launch(_kernels()[1], -(-self.size // THREADS), *given)
        self.at += self.counts
        return out


class CellNumbers:
    """The same numbers from NumPy's generators, one per cell, where there is no device."""

    def __init__(self, key: tuple[int, int], counter: tuple[int, int], first: int, size: int) -> None:
        places = [(0, cell, *counter) for cell in range(first, first + -(-size // CELL))]
        words = [np.array(place, dtype=_U) for place in places]
        whole = np.array(key, dtype=_U)
        self.generators = [np.random.Generator(np.random.Philox(counter=place, key=whole)) for place in words]
        self.sizes = [min(CELL, size - lo) for lo in range(0, size, CELL)]

    def standard_normal(self, size: int) -> Any:
        """Standard normal numbers, one per row."""
        return np.concatenate([one.standard_normal(n) for one, n in zip(self.generators, self.sizes, strict=True)])

    def random(self, size: int) -> Any:
        """Uniform numbers, one per row."""
        return np.concatenate([one.random(n) for one, n in zip(self.generators, self.sizes, strict=True)])


@cache
def _tables(library: Library) -> tuple[Any, Any, Any]:
    widths, limits, heights = ziggurat()
    xp = library.xp
    return xp.asarray(widths), xp.asarray(limits), xp.asarray(heights)


def numbers_at(library: Library, address: Any, first: int, size: int) -> Any:
    """The numbers of cells from ``first`` on at an address: its streams, purpose, chain and iteration."""
    key, counter = address.streams.key, (address.iteration, address.chain << 8 | int(address.purpose))
    if library is HOST:
        return CellNumbers(key, counter, first, size)
    return DeviceNumbers(library, key, counter, first, size)
