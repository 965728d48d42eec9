"""Inputs that show a kernel at its worst: a search guided by where its declared algorithm rounds.

Guarantees: the error reported is proved (the exact value is enclosed by `compute.certify`); the search uses at most
about `budget` seconds beyond one kernel call.
Does not: find the largest error there is, or look at gradients. The guide is the rounding of the weights (Flash) or of
the stored scores (Eager): each key is moved by a few ulp until its local rounding error has the sign of its value, so
that all of them add up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from compute.bounds import tolerance
from compute.certificate import certify
from compute.errors import InputError
from compute.formats import round_to
from compute.heads import F64, Scale
from compute.roundings import Algorithm, Eager, Flash, limits
from compute.spec import Spec

Kernel = Callable[[Any, Any, Any], Any]
SPAN = 6  # ulp
# spread of the queries, and what the kernel's own exp and sums may move a weight by: float32's, or a rough exp's
ATTEMPTS = ((1.0, 2.0**-20), (1.0, 2.0**-14), (0.25, 2.0**-20))


@dataclass(frozen=True)
class WorstInput:
    """q (n, d), k (m, d), v (m, d_v) in float64, numbers of the input format; output: what the kernel made of them.

    error: proved lower bound of the largest |output − exact|; random_mean: mean error on random inputs of that
    shape, whose values are scaled to size 1; share: error over the worst-case bound of the declared algorithm at the
    same entry (None without one).
    """

    q: F64
    k: F64
    v: F64
    output: F64
    exact: F64
    radius: F64
    error: float
    at: tuple[int, int]
    random_mean: float
    random_largest: float
    share: float | None
    seconds: float

    @property
    def gain(self) -> float:
        """How many times the mean random error."""
        return self.error / self.random_mean if self.random_mean else float("inf")

    def text(self) -> str:
        """One paragraph for people."""
        bound = "" if self.share is None else f", {self.share:.0%} of the declared algorithm's worst-case bound"
        return (
            f"error {self.error:.3g} at row {self.at[0]}, channel {self.at[1]}: {self.gain:.0f} times the mean error "
            f"on random inputs ({self.random_mean:.2g}; largest {self.random_largest:.2g}){bound}; {self.seconds:.1f} s"
        )


def worst_inputs(
    kernel: Kernel,
    spec: Spec | None = None,
    formats: str = "float16",
    shape: tuple[int, int, int, int] = (1, 4096, 64, 1),
    budget: float = 5.0,
    *,
    algorithm: Algorithm | None = None,
    seed: int = 0,
) -> WorstInput:
    """Search for inputs on which a kernel errs most.

    kernel(q, k, v) takes float64 arrays (n, d), (m, d), (m, d_v) that hold numbers of the input format, and gives the
    output (n, d_v). spec: scale and softcap (masks and positions are not searched). formats: name of the input format.
    shape: (n, m, d, d_v). budget: seconds. algorithm: the declared one, for the guide and the share; None: both
    guides are tried, and the kernel decides.

    Raises InputError for a shape that is not four positive numbers, or a kernel whose output has another shape.
    """
    spec = Spec() if spec is None else spec
    n, m, d, d_v = _checked(shape)
    start = time.perf_counter()
    rng = np.random.default_rng(seed)
    mean, largest = _random_errors(kernel, spec, formats, (n, m, d, d_v), rng, budget / 5)
    wide = formats if limits(formats).unit > 2.0**-12 else "bfloat16"
    guides: list[Algorithm] = [algorithm] if algorithm is not None else [
        Flash(weights=wide, output=wide),
        Eager(weights=wide, output=wide, scores=wide),
    ]  # fmt: skip
    best: tuple[float, tuple[F64, F64, F64], F64] | None = None
    share_of_time = (budget - (time.perf_counter() - start)) * 0.7 / len(guides)
    for guide in guides:
        for size, noise in ATTEMPTS:
            found = _guided(spec, formats, (n, m, d, d_v), guide, rng, size, noise, share_of_time / len(ATTEMPTS))
            got = _run(kernel, *found)
            error = float(np.abs(got - _plain(spec, *found)).max())
            if best is None or error > best[0]:
                best = (error, found, got)
    assert best is not None
    return _proved(best[1], best[2], spec, algorithm, mean, largest, start)


def _checked(shape: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    if len(shape) != 4 or any(s < 1 for s in shape):
        raise InputError(f"shape is {shape}: expected (n, m, d, d_v), each at least 1")
    return shape


def _run(kernel: Kernel, q: F64, k: F64, v: F64) -> F64:
    got = np.asarray(kernel(q.copy(), k.copy(), v.copy()), dtype=np.float64)
    if got.shape != (len(q), v.shape[1]):
        raise InputError(f"the kernel gave shape {got.shape}: expected {(len(q), v.shape[1])}")
    return got


def _plain(spec: Spec, q: F64, k: F64, v: F64) -> F64:
    """Float64, good enough to compare candidates by."""
    s = (q @ k.T) * Scale.of(spec, q.shape[1]).value
    if spec.softcap is not None:
        s = spec.softcap * np.tanh(s / spec.softcap)
    w = np.exp(s - s.max(axis=1, keepdims=True))
    return np.asarray((w @ v) / w.sum(axis=1, keepdims=True))


def _draw(rng: np.random.Generator, fmt: str, *shape: int) -> F64:
    return np.asarray(round_to(rng.standard_normal(shape), fmt))


def _random_errors(
    kernel: Kernel, spec: Spec, fmt: str, shape: tuple[int, int, int, int], rng: np.random.Generator, seconds: float
) -> tuple[float, float]:
    """Mean and largest error on random inputs, relative to values of size 1."""
    n, m, d, d_v = shape
    errors, end = [], time.perf_counter() + seconds
    for _ in range(200):
        q, k = _draw(rng, fmt, n, d), _draw(rng, fmt, m, d)
        v = np.clip(_draw(rng, fmt, m, d_v), -2, 2)
        error = np.abs(_run(kernel, q, k, v) - _plain(spec, q, k, v))
        errors.append(error[np.isfinite(error)] / np.abs(v).max())
        if time.perf_counter() > end and len(errors) >= 8:
            break
    joined = np.concatenate(errors)
    return float(joined.mean()), float(joined.max())


def _moved(x: F64, fmt: str, steps: Any) -> F64:
    """Each number moved by a few ulp of the format (by its own size; no denormal care)."""
    exponent = np.frexp(x)[1]
    ulp = np.ldexp(2 * limits(fmt).unit, exponent - 1)
    return np.asarray(round_to(x + steps * ulp, fmt))


def _guided(
    spec: Spec,
    fmt: str,
    shape: tuple[int, int, int, int],
    guide: Algorithm,
    rng: np.random.Generator,
    size: float,
    noise: float,
    seconds: float,
) -> tuple[F64, F64, F64]:
    """Keys tuned so that the roundings of row 0 all push its output one way."""
    n, m, d, d_v = shape
    tau = Scale.of(spec, d).value
    q = round_to(rng.standard_normal((n, d)) * size, fmt)
    pool = _draw(rng, fmt, 3 * m, d)
    k = _low_in_binade(pool, q[0], tau, spec, m)
    sign = np.where(np.arange(m) % 2, 1.0, -1.0)[rng.permutation(m)]
    v = np.repeat(sign[:, None], d_v, axis=1)
    raw = (k @ q[0]) * tau
    peak = int(raw.argmax())
    top = float(_capped(raw, spec)[peak])
    gain = _local(_capped(raw, spec), top, sign, guide, noise)
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        some = rng.integers(0, d, 2 if d > 1 else 1)[: 1 if rng.random() < 0.5 else 2]
        some = np.unique(some)
        new = _moved(k[:, some], fmt, rng.integers(-SPAN, SPAN + 1, (m, len(some))))
        moved = raw + ((new - k[:, some]) @ q[0, some]) * tau
        s = _capped(moved, spec)
        if isinstance(guide, Eager):  # every weight changes with the normaliser
            gain = _local(_capped(raw, spec), top, sign, guide, noise)
        local = np.where(s < top, _local(s, top, sign, guide, noise), -np.inf)
        better = local > gain
        better[peak] = False
        rows = np.flatnonzero(better)
        k[np.ix_(rows, some)], raw[rows], gain[rows] = new[rows], moved[rows], local[rows]
    return np.asarray(q), k, v


def _capped(raw: F64, spec: Spec) -> F64:
    return raw if spec.softcap is None else spec.softcap * np.tanh(raw / spec.softcap)


def _scores(q: F64, k: F64, tau: float, spec: Spec) -> F64:
    return _capped((k @ q) * tau, spec)


def _low_in_binade(pool: F64, q: F64, tau: float, spec: Spec, m: int) -> F64:
    """The m keys whose weights lie lowest in their binade, where half an ulp is relatively largest."""
    s = _scores(q, pool, tau, spec)
    mantissa = np.frexp(np.exp(s - s.max()))[0]
    chosen = np.argsort(mantissa)[: m - 1] if m > 1 else np.empty(0, np.intp)
    chosen = np.setdiff1d(chosen, [int(s.argmax())])
    rest = np.setdiff1d(np.arange(len(pool)), np.append(chosen, s.argmax()))
    chosen = np.concatenate([[int(s.argmax())], chosen, rest])[:m]
    return pool[chosen]


def _local(s: F64, top: float, sign: F64, guide: Algorithm, noise: float) -> F64:
    """Signed local error of each key's weight under the guide's rounding, relative to the largest weight.

    The smaller of two, a little below and above: an error that a tie could turn round is worth nothing.
    """
    low, high = (_error(s, top, sign, guide, 1 + e) for e in (-noise, noise))
    return np.minimum(low, high)


def _error(s: F64, top: float, sign: F64, guide: Algorithm, factor: float) -> F64:
    w = np.exp(s - top)
    if isinstance(guide, Flash):
        x = w * factor
        return np.asarray((round_to(x, guide.weights) - x) * sign)
    stored = s if guide.scores is None else round_to(s * factor, guide.scores) / factor
    norm = w.sum()
    x = np.exp(stored - top) * factor / norm
    return np.asarray((round_to(x, guide.weights) * norm / factor - w) * sign)


def _proved(
    inputs: tuple[F64, F64, F64],
    got: F64,
    spec: Spec,
    algorithm: Algorithm | None,
    mean: float,
    largest: float,
    start: float,
) -> WorstInput:
    q, k, v = inputs
    found = certify(q, k, v, spec, tier="abs").output
    error = np.maximum(np.abs(got - found.mid) * (1 - 2.0**-50) - found.rad, 0.0)
    error = np.where(np.isfinite(got), error, np.inf)
    at = np.unravel_index(int(np.argmax(error)), error.shape)
    share = None
    if algorithm is not None:
        bound = float(tolerance(q, k, v, spec, algorithm).total[at])
        share = float(error[at]) / bound
    return WorstInput(
        q, k, v, got, found.mid, found.rad, float(error[at]), (int(at[0]), int(at[1])), mean, largest, share,
        time.perf_counter() - start,
    )  # fmt: skip
