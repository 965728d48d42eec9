"""The oracle for self-attention from one X: scores, weights and gradients at initialisation.

Setting: X is n × d_model with i.i.d. N(0, 1) entries, W^Q, W^K, W^V have i.i.d. N(0, 1/d_model) entries, scores are
scale * q_i·k_j, and the upstream gradient G is i.i.d. N(0, 1). Below D is d_model.

Guarantees: exact when a row's keys are of other tokens (`own_key=False`). With the token's own key among the n, which
shares ‖x_i‖ with the query, the effect of order 1/(nD) is included and the next order, 1/(nD²), is part of the error.
Does not: simulate; treat inputs that aren't isotropic.

Why. Given q_i, only u = W^K q_i/‖q_i‖ ~ N(0, I/D) enters the scores: they are scale ‖q_i‖ x_j·u, and

    ‖q_i‖² = (‖x_i‖²/D) χ²_{d_k},   σ² = scale² (‖x_i‖²/D) χ²_{d_k} ‖u‖²,   D ‖u‖² ~ χ²_D,

so a row is again a scale mixture of Gaussian rows, z_j = x_j·u/‖u‖. The other d_k - 1 columns of W^K and all of W^V
are independent of the row, and so are the parts of the x_j across u: Gram matrix XXᵀ = zzᵀ + B, B Wishart with
m = D - 1 degrees of freedom, E[BJB] = m(m+1) J + m tr(J) I. With J the Jacobian of the row,

    T = E tr(J XXᵀ J XXᵀ) = E[m(m+1) ‖J‖_F² + m (tr J)² + 2m ‖Jz‖² + (zᵀJz)²],
    E ‖dL/dq_i‖² = scale² d_v/D E[(d_k - 1)/D T + ‖u‖² ((zᵀJz)² + m ‖Jz‖²)],
    E ‖dL/dS_i‖² = d_v/D E[m ‖J‖_F² + ‖Jz‖²],   E ‖dL/dk‖² (a key) = d_v/D E[σ²/‖u‖² (m ‖J‖_F² + ‖Jz‖²)].

The terms of dL/dW^Q = Σ_i x_i (dL/dq_i)ᵀ have independent upstream gradients, so its squared norm is the sum of
‖x_i‖² ‖dL/dq_i‖²; likewise ‖dL/dW^K‖_F² is the sum of scale² ‖q_i‖² tr(J XXᵀ J XXᵀ) d_v/D, and E ‖dL/dW^V‖_F² that
of d_v αᵀXXᵀα = d_v (m Σα² + (α·z)²).

As D → ∞ these are the laws for independent Q, K, V. The excess is of relative order d_k (tr J)²/(D d_k ‖J‖_F²): large,
because (tr J)² is near 1 where ‖J‖_F² is near 1/n.

The own key. ‖x_i‖² = z_i² + ‖x_i across u‖² scales the whole row. To first order in 1/D its covariance with the own
key's z_i and B_ii adds, for a mean M of a quantity of degree 2a in the tokens, weighed by ‖x_i‖^(2w),

    (2/(nD)) (∂ + w)(∂ + a) M,   ∂ = d/d log σ²

(E[(z² - 1) f] = E f'' for normal z, E[(χ²_m - m) f] = 2 E[χ²_m f'], and exchangeable keys; a is 0 for Σα², 1 for
tr(J XXᵀ J), 2 for tr(J XXᵀ J XXᵀ)). And ∂ E g(χ²_k) = (k/2)(E g(χ²_{k+2}) - E g(χ²_k)), so ∂ is exact too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from derive import oracle_mixture as mixture
from derive.errors import StatementError
from derive.oracle_points import check_sizes, check_spread, check_tail, mixed

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """factor * E[‖u‖^along ‖x_i‖^(2 weight)/D^weight Σ coefficient * observable], along 0 or 2, weight 0 or 1.

    query: degrees of freedom added to ‖q_i‖². degree: a of the module's last formula.
    """

    factor: float
    sums: tuple[tuple[str, float], ...]
    degree: int
    along: int = 0
    weight: int = 0
    query: int = 0


def point(observable: str, n: float, d: float, scale: float, width: float, own_key: bool = True) -> tuple[float, float]:
    """(value, error) of one observable; gradients are per row (or key) and per unit of d_v."""
    check_sizes(n, d_k=d, scale=scale, d_model=width)
    if width < 2:
        raise StatementError(f"d_model must be at least 2, got {width}")
    check_spread(observable, scale * math.sqrt(d))  # the terms hold scale²
    parts = terms(observable, d, scale, width)
    names = tuple(dict.fromkeys(name for term in parts for name, _ in term.sums))
    for name in names:
        check_spread(name, scale * math.sqrt(d))
        check_tail(name, min(d, width), scale * math.sqrt(d))
    # Row by row of the mixture: the plain mean of each term, and the degrees of freedom that ∂ asks for.
    laws = {
        key: scores(d + key[1], scale, width, key[2], key[0])
        for term in parts
        for key in ((row, term.query, term.along) for row in ((0, 2, 4) if own_key else (2 * term.weight,)))
    }
    sums = np.array([[dict(term.sums).get(name, 0.0) for name in names] for term in parts])
    means, slips = mixed(n, tuple(laws.values()), names, lambda v, s: sums @ v)
    place = {key: k for k, key in enumerate(laws)}

    def mean(term: Term, row: int, of: Array = means) -> float:
        return float(of[place[row, term.query, term.along], parts.index(term)])

    value = sum(term.factor * mean(term, 2 * term.weight) for term in parts)
    error = sum(abs(term.factor) * mean(term, 2 * term.weight, slips) for term in parts)
    if not own_key:
        return value, error
    correction = sum(term.factor * 2 / (n * width) * _second_order(width, term, mean) for term in parts)
    # The next order is about 1/D of this one; twice that is what simulations at D = 4 leave room for.
    return value + correction, error + abs(correction) * 2 / width


def terms(observable: str, d: float, scale: float, width: float) -> tuple[Term, ...]:
    """The sums above, one for each law of σ that they need."""
    m = width - 1
    quartic = (
        ("jacobian", m * (m + 1)),
        ("trace_squared", m),
        ("jacobian_direction", 2 * m),
        ("direction_form_squared", 1.0),
    )
    along = (("direction_form_squared", 1.0), ("jacobian_direction", m))
    square = (("jacobian", m), ("jacobian_direction", 1.0))
    a, b = scale**2 * (d - 1) / width**2, scale**2 / width
    if observable == "gradient_q":
        return Term(a, quartic, 2), Term(b, along, 2, along=2)
    if observable == "gradient_w_q":
        return Term(a * width, quartic, 2, weight=1), Term(b * width, along, 2, along=2, weight=1)
    if observable == "gradient_w_k":
        return (Term(b * d, quartic, 2, weight=1, query=2),)
    if observable == "gradient_k":
        return (Term(b * d, square, 1, weight=1, query=2),)
    if observable == "gradient_scores":
        return (Term(1 / width, square, 1),)
    name = "p2" if observable == "gradient_v" else observable
    if observable == "gradient_w_v":
        return (Term(1.0, (("p2", m), ("mean_squared", 1.0)), 1),)
    degree = {"mean_squared": 1, "jacobian_direction": 1, "direction_form": 1, "direction_form_squared": 2}.get(name, 0)
    return (Term(1.0, ((name, 1.0),), degree),)


def _second_order(width: float, term: Term, mean: Callable[[Term, int], float]) -> float:
    """(∂ + w)(∂ + a) M, M the mean without the weight, by the χ² identity on the degrees of freedom of ‖x_i‖²."""
    m0, m2, m4 = (mean(term, row) for row in (0, 2, 4))
    first, next_first = width / 2 * (m2 - m0), (width + 2) / 2 * (m4 - m2)
    second = width / 2 * (next_first - first)
    return second + (term.weight + term.degree) * first + term.weight * term.degree * m0


def row_mean(name: str, n: float, d_k: float, scale: float, d_model: float, along: float = 0, row: float = 0) -> float:
    """One row observable for keys of other tokens, with degrees of freedom added to D ‖u‖² and to ‖x_i‖²."""
    check_sizes(n, d_k=d_k, scale=scale, d_model=d_model)
    return float(mixed(n, (scores(d_k, scale, d_model, along, row),), (name,))[0][0, 0])


def scores(d: float, scale: float, width: float, along: float = 0, row: float = 0) -> mixture.ScaleLaw:
    """The law of σ = scale χ_d χ_D χ'_D / D; along, row: degrees of freedom added to D ‖u‖² and to ‖x_i‖².

    A mean weighed by χ²_D is D times the mean at two more degrees of freedom: E[χ²_D g(χ_D)] = D E g(χ_{D+2}).
    """
    step = mixture.step_for(d, width)
    law = mixture.chi(d, step).times(mixture.chi(width + along, step)).times(mixture.chi(width + row, step))
    return law.scaled(scale / width)
