"""Random numbers that can be replayed: counter-based streams keyed by seed, experiment and replicate.

Guarantees: a stream is a function of (seed, experiment, replicate) alone, so replicates may run in any order or on
any worker; different replicates of an experiment read disjoint stretches of one Philox counter (2^192 apart), and
different experiments or seeds use different 128-bit keys (a hash of both). Normals come from uniforms on a grid by
Box and Muller, written out here, so that they do not change with NumPy's own choice of algorithm.
Does not: promise the last bit of a normal across machines (log, cos and sin may differ by an ulp there).

Source: Salmon, Moraes, Dror, Shaw (2011), Parallel random numbers: as easy as 1, 2, 3, SC11 (Philox4x64-10);
Box, Muller (1958), A note on the generation of random normal deviates.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from compute.errors import InputError

Array = npt.NDArray[np.float64]

# Small enough that one chunk and its logarithms stay in the second-level cache.
_CHUNK = 16384
_STEP = 2.0**-52


class Stream:
    """A stream of independent draws.

    seed: any integer; experiment: a name; replicate: 0 ≤ replicate < 2^64. Raises InputError otherwise.

    >>> a, b = Stream(7, "doc", 0), Stream(7, "doc", 0)
    >>> bool((a.normals((3, 2)) == b.normals((3, 2))).all())
    True
    """

    def __init__(self, seed: int, experiment: str, replicate: int = 0) -> None:
        if not 0 <= replicate < 1 << 64:
            raise InputError(f"replicate is {replicate}: expected 0 <= replicate < 2^64")
        digest = hashlib.blake2b(f"{int(seed)}\x1f{experiment}".encode(), digest_size=16).digest()
        key = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
        self._bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, replicate], dtype=np.uint64))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """`count` raw 64-bit words."""
        raw: Any = self._bits.random_raw(count)
        return np.asarray(raw, dtype=np.uint64)

    def uniforms(self, shape: tuple[int, ...]) -> Array:
        """Uniforms on the open interval (0, 1): odd multiples of 2^-53, never 0 and never 1."""
        unit: Array = _open_unit(self.words(math.prod(shape))).reshape(shape)
        return unit

    def normals(self, shape: tuple[int, ...]) -> Array:
        """Independent standard normals. The largest |z| that can appear is sqrt(2 ln 2^53) = 8.57."""
        count = math.prod(shape)
        out: Array = np.empty(count)
        for start in range(0, count, _CHUNK):
            part = min(_CHUNK, count - start)
            out[start : start + part] = _box_muller(self.words(part + part % 2))[:part]
        return out.reshape(shape)

    def signs(self, shape: tuple[int, ...]) -> Array:
        """Independent signs, +1 or −1, each with probability 1/2."""
        count = math.prod(shape)
        bits = np.unpackbits(self.words(-(-count // 64)).view(np.uint8))[:count]
        signs: Array = (2.0 * bits.astype(np.float64) - 1.0).reshape(shape)
        return signs

    def integers(self, bound: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Independent integers 0 … bound − 1, bound ≤ 2^32; the bias of the method is below bound/2^52."""
        if not 1 <= bound <= 1 << 32:
            raise InputError(f"bound is {bound}: expected 1 <= bound <= 2^32")
        return np.minimum(np.floor(self.uniforms(shape) * bound), bound - 1).astype(np.int64)


def _open_unit(words: npt.NDArray[np.uint64]) -> Array:
    # 52 bits and a half: every such number is a double, so none rounds to 1.
    unit: Array = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * _STEP
    return unit


def _box_muller(words: npt.NDArray[np.uint64]) -> Array:
    half = words.size // 2
    unit = _open_unit(words)
    radius = np.sqrt(-2.0 * np.log(unit[:half]))
    angle = (2.0 * math.pi) * unit[half:]
    out: Array = np.empty(words.size)
    np.multiply(radius, np.cos(angle), out=out[:half])
    np.multiply(radius, np.sin(angle), out=out[half:])
    return out
