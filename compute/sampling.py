"""Monte Carlo of q·k: many scores from few vectors by one matrix product, with the error that this dependence gives.

Guarantees: estimates of the mean and of the variance are unbiased for independent components of any law here, and
the standard error comes from independent replicates, never from counting the n·m dependent entries of a block.
`block_relative_sd` states what one block is worth, exactly, for zero means.
Does not: assume that the law under test holds: the only thing an estimator takes from the law of the components is
a centring constant, which no estimate depends on.

Source: the dependence is that of a two-sample U-statistic (Hoeffding 1948); the formula is derived in
`block_relative_sd`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compute.accumulate import Moments
from compute.errors import InputError
from compute.streams import Stream

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Standard:
    """A law of mean 0 and variance 1: how to draw it, and its third and fourth moments."""

    draw: Callable[[Stream, tuple[int, ...]], Array]
    third: float
    fourth: float
    text: str


def _uniform(stream: Stream, shape: tuple[int, ...]) -> Array:
    return math.sqrt(12.0) * (stream.uniforms(shape) - 0.5)


def _exponential(stream: Stream, shape: tuple[int, ...]) -> Array:
    return -np.log(stream.uniforms(shape)) - 1.0


def _student9(stream: Stream, shape: tuple[int, ...]) -> Array:
    # t with 9 degrees of freedom: variance 9/7, kurtosis 3 + 6/5.
    parts = stream.normals((10, *shape))
    chi2 = (parts[1:] ** 2).sum(axis=0)
    return parts[0] * math.sqrt(7.0) / np.sqrt(chi2)


LAWS = {
    "normal": Standard(lambda s, shape: s.normals(shape), 0.0, 3.0, "standard normal"),
    "uniform": Standard(_uniform, 0.0, 1.8, "uniform on ±√3"),
    "rademacher": Standard(lambda s, shape: s.signs(shape), 0.0, 1.0, "±1 with equal probability"),
    "exponential": Standard(_exponential, 2.0, 9.0, "exponential less its mean"),
    "student9": Standard(_student9, 0.0, 4.2, "Student's t with 9 degrees of freedom, at unit variance"),
}


@dataclass(frozen=True)
class Components:
    """Independent, identically distributed components: mean + sd · (a law of mean 0 and variance 1).

    Raises InputError for an unknown law or an sd that is not positive.
    """

    law: str = "normal"
    mean: float = 0.0
    sd: float = 1.0

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise InputError(f"law is {self.law!r}: expected one of {', '.join(LAWS)}")
        if not (math.isfinite(self.mean) and math.isfinite(self.sd) and self.sd > 0):
            raise InputError(f"mean {self.mean}, sd {self.sd}: expected finite numbers, sd above 0")

    @property
    def standard(self) -> Standard:
        return LAWS[self.law]

    def draw(self, stream: Stream, shape: tuple[int, ...]) -> Array:
        drawn = self.standard.draw(stream, shape)
        if self.sd != 1.0:
            drawn = drawn * self.sd
        return drawn + self.mean if self.mean else drawn


def score_block(stream: Stream, n: int, m: int, d_k: int, q: Components, k: Components, scale: float = 1.0) -> Array:
    """An (n, m) block of scores scale·QKᵀ from n fresh queries and m fresh keys of d_k components."""
    if min(n, m, d_k) < 1:
        raise InputError(f"n={n}, m={m}, d_k={d_k}: expected each at least 1")
    queries = q.draw(stream, (n, d_k))
    keys = k.draw(stream, (m, d_k))
    scores: Array = queries @ keys.T
    return scores if scale == 1.0 else scores * scale


def unbiased_variance(scores: Array, centre: float = 0.0) -> float:
    """The variance of one score from an (n, m) block, n, m ≥ 2, unbiased whatever its rows and columns share.

    E s² is estimated by the mean square, and (E s)² by the mean product of two entries that share neither row nor
    column: (Σ)² less rows² less columns² plus squares, over n(n−1)m(m−1). centre is subtracted first, any constant.
    """
    n, m = scores.shape
    if min(n, m) < 2:
        raise InputError(f"a block of shape {scores.shape}: expected at least 2 queries and 2 keys")
    s = scores - centre if centre else scores
    squares = float((s * s).sum())
    rows, columns = s.sum(axis=1), s.sum(axis=0)
    apart = float(s.sum()) ** 2 - float(rows @ rows) - float(columns @ columns) + squares
    return squares / (n * m) - apart / (n * (n - 1) * m * (m - 1))


def block_relative_sd(n: int, m: int, d_k: int, q: Components, k: Components) -> float:
    """sd/mean of the mean square of one (n, m) block, for zero means: what a block of n·m scores is worth.

    With kurtosis κ (E x⁴/σ⁴), over σ_q⁴σ_k⁴: Var s² = 2d² + d(κ_qκ_k − 3); two scores that share their query have
    Cov(s², s'²) = d(κ_q − 1); that share their key, d(κ_k − 1). Each of the n·m entries has m − 1 of the first
    kind and n − 1 of the second. For normals and n = m = N: √(2/N² + 4/(dN) + 2/(dN²)).

    >>> round(block_relative_sd(512, 512, 64, Components(), Components()), 5)
    0.01139
    """
    if min(n, m, d_k) < 1:
        raise InputError(f"n={n}, m={m}, d_k={d_k}: expected each at least 1")
    if q.mean or k.mean:
        raise InputError("block_relative_sd holds for zero means; use the spread of replicates otherwise")
    kq, kk = q.standard.fourth, k.standard.fourth
    single = 2 * d_k**2 + d_k * (kq * kk - 3)
    shared = d_k * (kq - 1) * (m - 1) + d_k * (kk - 1) * (n - 1)
    return math.sqrt((single + shared) / (n * m)) / d_k


@dataclass(frozen=True)
class Estimate:
    """A number with the standard error of `replicates` independent blocks, and the blocks' own values."""

    value: float
    standard_error: float
    replicates: int
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: list[float]) -> Estimate:
        m = Moments.of(values)
        return cls(m.mean, m.standard_error, m.count, tuple(values))


def replicates_for(
    d_k: int, q: Components, k: Components, relative: float, *, block: int = 256, seed: int = 0, least: int = 24
) -> int:
    """How many blocks bring the relative standard error of the variance to `relative`.

    For zero means the figure is exact (`block_relative_sd`); otherwise a pilot of 24 blocks, whose draws no estimate
    uses, says what a block is worth.
    """
    if q.mean or k.mean:
        pilot = score_variance(d_k, q, k, block=block, replicates=24, seed=seed, experiment="pilot")
        one = pilot.standard_error * math.sqrt(pilot.replicates) / pilot.value
    else:
        one = block_relative_sd(block, block, d_k, q, k)
    return max(least, math.ceil((one / relative) ** 2))


def score_variance(
    d_k: int,
    q: Components | None = None,
    k: Components | None = None,
    *,
    scale: float = 1.0,
    block: int = 256,
    replicates: int = 32,
    seed: int = 0,
    experiment: str = "score_variance",
) -> Estimate:
    """Var(scale·q·k) from `replicates` independent (block, block) products.

    The standard error is that of the replicates: sd of the blocks' estimates over √replicates. Raises InputError
    for fewer than 2 replicates or a block below 2.
    """
    q, k = q or Components(), k or Components()
    if replicates < 2:
        raise InputError(f"replicates is {replicates}: expected at least 2, a standard error needs them")
    centre = scale * d_k * q.mean * k.mean
    values = []
    for index in range(replicates):
        stream = Stream(seed, f"{experiment}/{q}/{k}/d_k={d_k}", index)
        values.append(unbiased_variance(score_block(stream, block, block, d_k, q, k, scale), centre))
    return Estimate.of(values)


def gaussian_rows(stream: Stream, rows: int, n: int, d_k: int, scale: float) -> Array:
    """Rows of n scores scale·q·k_j for standard normal q and k_j, exact in law at n + d_k draws a row.

    Given q the scores are independent normals of standard deviation scale·‖q‖, and ‖q‖² is χ² with d_k degrees of
    freedom; so scale·χ·z has the law of the product without forming it.
    """
    if min(rows, n, d_k) < 1:
        raise InputError(f"rows={rows}, n={n}, d_k={d_k}: expected each at least 1")
    norm = np.empty(rows)
    step = max(1, 1_000_000 // d_k)
    for start in range(0, rows, step):
        part = stream.normals((min(step, rows - start), d_k))
        norm[start : start + step] = np.sqrt((part * part).sum(axis=1))
    return (scale * norm)[:, None] * stream.normals((rows, n))
