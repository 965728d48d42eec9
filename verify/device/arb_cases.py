"""Calls whose exact values are carried along (arb_values.json), and how a certificate is compared with them.

Guarantees: the inputs are the same bits on every machine (integers of Philox, and single IEEE operations on them),
and are checked against the hash beside their values; a comparison is in rational arithmetic, without a rounding.
Does not: compute the values; `benchmarks/device_values.py` makes them with Arb at 400 bits.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from compute.enclosure import Enclosure
from compute.spec import Spec

FILE = Path(__file__).with_name("arb_values.json")
KEY = (0x61747470726F6F66, 0x6465766963650001)


@dataclass(frozen=True)
class Case:
    """One call: arguments of compute.certify on the host."""

    name: str
    q: Any
    k: Any
    v: Any
    grad: Any
    spec: Spec = field(default_factory=Spec)
    given: dict[str, Any] = field(default_factory=dict)  # mask, bias, sink
    left_out: tuple[str, ...] = ()  # results whose values are not carried, for their size

    def arrays(self) -> Iterator[Any]:
        yield from (self.q, self.k, self.v, self.grad)
        yield from (self.given[name] for name in sorted(self.given))

    def digest(self) -> str:
        """SHA-256 of the shapes, dtypes and bytes of all inputs."""
        whole = hashlib.sha256()
        for a in self.arrays():
            whole.update(f"{a.shape}{a.dtype.str}".encode())
            whole.update(np.ascontiguousarray(a).tobytes())
        return whole.hexdigest()


class _Draws:
    """Numbers of one case: exact functions of 64-bit words."""

    def __init__(self, number: int) -> None:
        self.bits = np.random.Philox(key=np.array(KEY, np.uint64), counter=np.array([0, 0, 0, number], np.uint64))

    def words(self, shape: tuple[int, ...]) -> Any:
        raw: Any = self.bits.random_raw(math.prod(shape))
        return np.asarray(raw, np.uint64).reshape(shape)

    def full(self, *shape: int, size: float = 1.0) -> Any:
        """Multiples of 2^-52 in [-1, 1), times a power of two."""
        return ((self.words(shape) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0) * size

    def coarse(self, *shape: int, unit: float = 2.0**-8) -> Any:
        """11-bit integers with sign times a power of two: float16 holds them."""
        return ((self.words(shape) >> np.uint64(53)).astype(np.float64) - 1024.0) * unit

    def coins(self, *shape: int) -> Any:
        """True with probability 3/4."""
        return (self.words(shape) & np.uint64(3)) != np.uint64(0)


@cache
def cases() -> tuple[Case, ...]:
    """The calls, each of another kind."""
    made: list[Case] = []

    def case(
        name: str,
        sizes: tuple[int, int, int, int] = (6, 9, 4, 3),
        size: float = 2.0,
        spec: Spec | None = None,
        heads: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    ) -> tuple[_Draws, Case]:
        draws, (n, m, d, d_v) = _Draws(len(made)), sizes
        q = draws.full(*heads[0], n, d, size=size)
        k = draws.full(*heads[1], m, d, size=size)
        v, grad = draws.full(*heads[1], m, d_v), draws.full(*heads[0], n, d_v)
        made.append(Case(name, q, k, v, grad, spec or Spec()))
        return draws, made[-1]

    case("plain")
    case("causal", spec=Spec(causal="bottom-right", scale=0.625))
    draws, c = case("mask with an empty row")
    c.given["mask"] = draws.coins(6, 9)
    c.given["mask"][2] = False
    draws, c = case("bias, base 2", spec=Spec(lse_base=2.0))
    c.given["bias"] = draws.full(6, 9, size=4.0)
    case("softcap", spec=Spec(softcap=1.5, scale=Fraction(1, 3)))
    draws, c = case("sink")
    c.given["sink"] = np.array(0.75)
    case("groups", sizes=(5, 7, 4, 2), heads=((2,), (1,)))
    case("large logits", sizes=(6, 9, 16, 3), size=32.0)
    draws, c = case("saturated")
    c.q[...] = np.abs(c.q) + 4.0
    c.k[...] -= 8.0
    c.k[3] += 16.0
    draws, c = case("cancelling values", sizes=(6, 10, 4, 3))
    c.k[1::2] = c.k[::2]
    c.k[1::2, 0] += 2.0**-10
    c.v[::2] *= 2.0**20
    c.v[1::2] = -c.v[::2]
    draws = _Draws(len(made))
    q, k, v = (draws.coarse(r, w).astype(np.float16) for r, w in ((6, 16), (9, 16), (9, 3)))
    made.append(Case("float16 inputs, exact scores", q, k, v, draws.full(6, 3)))
    case("many keys", sizes=(4, 150, 4, 2))
    _, c = case("more keys than a device's block", sizes=(5, 1100, 4, 2))
    made[-1] = replace(c, left_out=("dk", "dv"))
    return tuple(made)


@dataclass(frozen=True)
class Exact:
    """|exact − (hi + lo)| ≤ radius, entry by entry."""

    hi: Any
    lo: Any
    radius: float


@cache
def values() -> dict[str, dict[str, Exact]]:
    """Case and result names to exact values. Raises ValueError where they belong to other inputs than `cases`."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    found = {}
    for c in cases():
        kept = document["cases"][c.name]
        if kept["inputs"] != c.digest():
            raise ValueError(
                f"the values carried for {c.name!r} belong to other inputs: python benchmarks/device_values.py"
            )
        found[c.name] = {name: _read(entry) for name, entry in kept["values"].items()}
    return found


def _read(entry: dict[str, Any]) -> Exact:
    def numbers(text: str) -> Any:
        return np.array([float.fromhex(x) for x in text.split()]).reshape(entry["shape"])

    return Exact(numbers(entry["hi"]), numbers(entry["lo"]), float.fromhex(entry["radius"]))


@dataclass
class Met:
    """How enclosures met exact values."""

    entries: int = 0
    excluded: int = 0
    worst: float = 0.0  # largest |centre - exact| / radius where the radius is finite and not 0

    def add(self, got: Enclosure, exact: Exact, shift: float = 0.0) -> Met:
        """Compare host arrays. shift: move the exact values by this many radii of the enclosure (a control)."""
        mid, rad = np.asarray(got.mid, np.float64), np.broadcast_to(got.rad, got.mid.shape)
        low = np.zeros_like(mid) if got.low is None else np.asarray(got.low)
        if mid.shape != exact.hi.shape:
            self.entries, self.excluded = self.entries + exact.hi.size, self.excluded + exact.hi.size
            return self
        columns = (a.ravel().tolist() for a in (mid, low, rad, exact.hi, exact.lo))
        for m, l, r, hi, lo in zip(*columns, strict=True):
            self.entries += 1
            if not math.isfinite(m) or not math.isfinite(hi):
                self.excluded += not (m == hi and r == 0)  # a log-sum-exp of minus infinity
                continue
            if not math.isfinite(r) or r < 0:
                self.excluded += r != math.inf
                continue
            gap = abs(Fraction(hi) + Fraction(lo) + Fraction(shift) * Fraction(r) - Fraction(m) - Fraction(l))
            self.excluded += gap > Fraction(r) + Fraction(exact.radius)
            if r:
                self.worst = max(self.worst, float(gap / Fraction(r)))
        return self
