"""What the families about random rows share: symbols, sources, claims of one step, grids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy

from derive.assumptions import Assumption
from derive.catalogue import Claim
from derive.power_sums import N, V
from derive.row_nodes import HeadMean, RowMean, SelfMean
from derive.source import HERE, Source
from derive.step import Relation, Step

DERRIDA = Source(
    "derrida1981",
    "Derrida",
    "Random-energy model: An exactly solvable model of disordered systems",
    1981,
    "Physical Review B 24, 2613",
)
STEIN = Source(
    "stein1981",
    "Stein",
    "Estimation of the mean of a multivariate normal distribution",
    1981,
    "The Annals of Statistics 9, 1135",
)
SYMBOLS = {
    "n": "number of keys in a row",
    "v": "variance of a row's scores (σ²)",
    "d_k": "number of components of a query or key",
    "d_model": "number of components of a token",
    "s": "scale, the factor on q·k",
    "epsilon": "threshold below which a row counts as saturated",
    "norm2_J": "squared Frobenius norm of J = diag(α) − ααᵀ",
    "norm2_Jz": "squared norm of J z, z the standardised scores",
    "tr_J": "trace of J, 1 − Σα²",
    "alpha_max": "largest weight of a row",
    "alpha_dot_x": "Σ_j α_j x_j, x the scores",
    "log_Z": "log-sum-exp of a row",
    "H": "entropy of a row",
    "p_2": "Σ_j α_j²",
    "p_3": "Σ_j α_j³",
    "p_4": "Σ_j α_j⁴",
    "alpha_z_squared": "square of α·z, z the standardised scores",
    "zJz": "zᵀJz, the variance of z under the weights",
    "norm_J": "Frobenius norm of J = diag(α) − ααᵀ",
    "alpha_j": "weight of one named key",
    "cos": "cosine of the angle between the two directions",
    "rho": "correlation, or cosine, of two rows or tokens",
    "c": "common cosine of two tokens",
    "x": "√v in units of √(2 log n)",
    "b": "spread of the scores in units of √(2 log n)",
    "g": "bound of the scores: every score lies in [−g, g]",
    "gamma": "scale of the scores in units of log n",
    "lambda": "deviation of the scores in units of the cap, or of 1",
    "T": "temperature, by which scores are divided",
    "phi": "density of the standard normal at z",
    "Phi": "distribution function of the standard normal at z",
    "E_sparsemax_norm2_J": "mean of ‖J‖_F² of sparsemax over a row",
    "P_one_key": "probability that sparsemax gives all the weight to one key",
}
GAUSSIAN_ROW = "scores of a row are i.i.d. N(0, v)"
INDEPENDENT = "entries of Q, K (and V, and the upstream gradient) are i.i.d. N(0, 1), independent of each other"
SELF = (
    "Q = X W^Q, K = X W^K, V = X W^V from one X with i.i.d. N(0, 1) entries, weights i.i.d. N(0, 1/d_model), upstream "
    "gradient i.i.d. N(0, 1)"
)

D = sympy.Symbol("d_k", positive=True)
WIDTH = sympy.Symbol("d_model", positive=True)
S = sympy.Symbol("s", positive=True)
SIGMA = sympy.sqrt(V)


def row(body: Any) -> Any:
    """Mean over a row of n i.i.d. N(0, v) scores."""
    return RowMean(body, N, V)


def head(body: Any) -> Any:
    """Mean over a row of scores s q·k of independent standard normal vectors."""
    return HeadMean(body, N, D, S)


def shared(body: Any) -> Any:
    """Mean over a row of self-attention from one X."""
    return SelfMean(body, N, D, S, WIDTH)


def points(**axes: Sequence[float]) -> tuple[dict[str, float], ...]:
    """The product grid of the axes, as {symbol name: number}."""
    grid: list[dict[str, float]] = [{}]
    for name, values in axes.items():
        grid = [{**point, name: float(value)} for point in grid for value in values]
    return tuple(grid)


def one_step(
    claim_id: str,
    en: str,
    ja: str,
    lhs: Any,
    rhs: Any,
    rule: str,
    *,
    relation: Relation = "=",
    given: Iterable[Assumption] = (GAUSSIAN_ROW,),
    source: Source = HERE,
    observable: str | None = None,
    premises: tuple[str, ...] = (),
    data: Mapping[str, Any] | None = None,
    note: Mapping[str, str] | None = None,
) -> Claim:
    """A claim whose one step is the statement itself."""
    conditions = tuple(given)
    step = Step(lhs, rhs, rule, relation, premises, conditions, {}, data or {})
    return chain(claim_id, en, ja, (step,), relation=relation, given=conditions, source=source, observable=observable,
                 note=note)  # fmt: skip


def chain(
    claim_id: str,
    en: str,
    ja: str,
    steps: tuple[Step, ...],
    *,
    relation: Relation = "=",
    given: Iterable[Assumption] = (GAUSSIAN_ROW,),
    source: Source = HERE,
    observable: str | None = None,
    note: Mapping[str, str] | None = None,
) -> Claim:
    """A claim from the left side of its first step to the right side of its last."""
    lhs, rhs = steps[0].lhs, steps[-1].rhs
    sides = [side for step in steps for side in (step.lhs, step.rhs)]
    names = {s.name for side in sides for s in side.atoms(sympy.Symbol)}
    return Claim(
        claim_id,
        {"en": en, "ja": ja},
        lhs,
        rhs,
        source,
        steps,
        relation,
        tuple(given),
        observable,
        {name: meaning for name, meaning in SYMBOLS.items() if name in names},
        note or {},
    )
