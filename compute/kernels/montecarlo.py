"""Monte Carlo on a GPU or in the emulator: the streams of `compute.streams`, drawn where they are used.

Guarantees: words and uniforms are the bits of `Stream(seed, experiment, replicate)` on any machine; normals in float64
are within 16 · 2^-53 · r of it, in float32 within 2^-21 · r, where r = sqrt(−2 ln u) ≤ 8.57 is their pair's radius.
Does not: draw a count that is not a multiple of 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compute.errors import InputError
from compute.kernels.attention import Backend
from compute.kernels.sources import FORMATS

STATISTICS = (
    "one_minus_max",
    "sum_squared_weights",
    "jacobian_frobenius_squared",
    "entropy",
    "log_sum_exp",
    "score_mean",
    "score_mean_square",
)


def words(backend: Backend, key: Sequence[int], replicate: int, count: int) -> Any:
    """`count` 64-bit words (a multiple of 4) of the stream with this 128-bit key."""
    return _draw(backend, "philox_words", key, replicate, count, np.uint64, 4)


def uniforms(backend: Backend, key: Sequence[int], replicate: int, count: int) -> Any:
    """`count` uniforms (a multiple of 4) on (0, 1)."""
    return _draw(backend, "philox_uniforms", key, replicate, count, np.float64, 4)


def normals(backend: Backend, key: Sequence[int], replicate: int, count: int, fmt: str = "float64") -> Any:
    """`count` standard normals (a multiple of 8), float64 or float32."""
    return _draw(backend, "philox_normals", key, replicate, count, FORMATS[fmt].dtype, 8, fmt)


def softmax_statistics(
    backend: Backend, key: Sequence[int], n: int, sigma: float, replicates: int, first: int = 0, fmt: str = "float32"
) -> Any:
    """Statistics of softmax(sigma · z) for n independent normals z: array (replicates, 7), columns STATISTICS.

    Row r is the row of stream replicate first + r. Raises InputError when n is not a multiple of 8, or no row is asked.
    """
    if n <= 0 or n % 8:
        raise InputError(f"n is {n}: the kernel draws eight normals at a time; expected a positive multiple of 8")
    if replicates < 1:
        raise InputError(f"replicates is {replicates}: expected at least 1")
    real = FORMATS[fmt].dtype
    out = backend.xp.full((replicates, len(STATISTICS)), np.nan, real)
    function = backend.function("montecarlo", fmt, "softmax_statistics", 64, 64, 0)
    arguments = (out, np.uint64(n), real.type(sigma), np.uint64(first), *map(np.uint64, key))
    function((replicates,), (256,), arguments)
    return out


def score_moments(backend: Backend, scores: Any, blocks: int = 264) -> Any:
    """Sums of s, s², s³, s⁴ over an array of scores, in float64 and in an order fixed by `blocks`: array (4,)."""
    scores = backend.xp.ascontiguousarray(scores)
    out = backend.xp.full((blocks, 4), np.nan)
    function = backend.function("montecarlo", scores.dtype.name, "score_moments", 64, 64, 0)
    function((blocks,), (256,), (scores, np.uint64(scores.size), out))
    return out.sum(axis=0)


def _draw(
    backend: Backend,
    name: str,
    key: Sequence[int],
    replicate: int,
    count: int,
    dtype: Any,
    multiple: int,
    fmt: str = "float64",
) -> Any:
    if count <= 0 or count % multiple:
        raise InputError(f"count is {count}: expected a positive multiple of {multiple}")
    out = backend.xp.empty(count, dtype)
    units = np.uint64(count if name == "philox_normals" else count // 4)
    function = backend.function("montecarlo", fmt, name, 64, 64, 0)
    threads = 128
    grid = min((count // multiple + threads - 1) // threads, 4096)
    function((grid,), (threads,), (out, units, np.uint64(replicate), *map(np.uint64, key)))
    return out
