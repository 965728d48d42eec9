"""The oracle for self-attention from one X: scores, weights and gradients at initialisation.

Setting: X is n × d_model with i.i.d. N(0, 1) entries, W^Q, W^K, W^V have i.i.d. N(0, 1/d_model) entries, scores are
scale * q_i·k_j, and the upstream gradient G is i.i.d. N(0, 1).

Guarantees: exact but for one approximation: the token's own key is treated as independent of the length of x_i, which
enters through ‖q_i‖. Its relative effect is of order 1/(n d_model).
Does not: simulate; treat inputs that aren't isotropic (`derive.families.saturation` has the law for given X).

Why. Given q_i, only u = W^K q_i/‖q_i‖ ~ N(0, I/D) enters the scores: they are scale ‖q_i‖ x_j·u, and

    ‖q_i‖² = (‖x_i‖²/D) χ²_{d_k},   σ² = scale² (‖x_i‖²/D) χ²_{d_k} ‖u‖²,   D ‖u‖² ~ χ²_D,

so a row is again a scale mixture of Gaussian rows, z_j = x_j·u/‖u‖. The other d_k - 1 columns of W^K and all of W^V
are independent of the row, and so are the parts of the x_j across u: Gram matrix XXᵀ = zzᵀ + B, B Wishart with
m = D - 1 degrees of freedom, E[BJB] = m(m+1) J + m tr(J) I. With J the Jacobian of the row,

    E tr(J XXᵀ J XXᵀ) = E[m(m+1) ‖J‖_F² + m (tr J)² + 2m ‖Jz‖² + (zᵀJz)²],
    E ‖dL/dq_i‖² = scale² d_v/D E[(d_k - 1)/D (the line above) + ‖u‖² ((zᵀJz)² + m ‖Jz‖²)],
    E ‖dL/dS_i‖² = d_v/D E[m ‖J‖_F² + ‖Jz‖²],   E ‖dL/dk‖² (a key) = d_v/D E[σ²/‖u‖² (m ‖J‖_F² + ‖Jz‖²)].

The terms of dL/dW^Q = Σ_i x_i (dL/dq_i)ᵀ have independent upstream gradients, so its squared norm is the sum of
‖x_i‖² ‖dL/dq_i‖²; likewise ‖dL/dW^K‖_F² is the sum of scale² ‖q_i‖² tr(J XXᵀ J XXᵀ) d_v/D.

As D → ∞ these are the laws for independent Q, K, V. The excess is of relative order d_k (tr J)²/(D d_k ‖J‖_F²): large,
because (tr J)² is near 1 where ‖J‖_F² is near 1/n.
"""

from __future__ import annotations

from derive import oracle_mixture as mixture
from derive.errors import StatementError
from derive.oracle import check_sizes, mixed


def point(observable: str, n: float, d: float, scale: float, width: float) -> tuple[float, float]:
    """(value, error) of one observable; gradients are per row (or key) and per unit of d_v."""
    check_sizes(n, d_k=d, scale=scale, d_model=width)
    if width < 2:
        raise StatementError(f"d_model must be at least 2, got {width}")
    m = width - 1
    quartic = ("jacobian", "trace_squared", "jacobian_direction", "direction_form_squared")

    def across(law: mixture.ScaleLaw) -> tuple[float, float]:
        return mixed(n, law, quartic, lambda v, s: m * (m + 1) * v[0] + m * v[1] + 2 * m * v[2] + v[3])

    if observable in ("gradient_q", "gradient_w_q"):
        row, factor = (2, width) if observable == "gradient_w_q" else (0, 1)
        first = across(scores(d, scale, width, row=row))
        second = mixed(n, scores(d, scale, width, along=2, row=row), quartic[2:], lambda v, s: v[1] + m * v[0])
        a, b = factor * scale**2 * (d - 1) / width**2, factor * scale**2 / width
        return a * first[0] + b * second[0], a * first[1] + b * second[1]
    if observable == "gradient_w_k":
        value, error = across(scores(d + 2, scale, width, row=2))
        factor = scale**2 * d / width
        return factor * value, factor * error
    if observable in ("gradient_scores", "gradient_k"):
        law, factor = scores(d, scale, width), 1 / width
        if observable == "gradient_k":  # weighed by scale² ‖q_i‖² = scale² χ²_d ‖x_i‖²/D, which tilts both
            law, factor = scores(d + 2, scale, width, row=2), scale**2 * d / width
        value, error = mixed(n, law, ("jacobian", "jacobian_direction"), lambda v, s: m * v[0] + v[1])
        return factor * value, factor * error
    name = "p2" if observable == "gradient_v" else observable
    return mixed(n, scores(d, scale, width), (name,), lambda v, s: v[0])


def row_mean(name: str, n: float, d_k: float, scale: float, d_model: float, along: float = 0, row: float = 0) -> float:
    """One row observable, with degrees of freedom added to D ‖u‖² (along) and to ‖x_i‖² (row)."""
    check_sizes(n, d_k=d_k, scale=scale, d_model=d_model)
    return mixed(n, scores(d_k, scale, d_model, along, row), (name,), lambda v, s: v[0])[0]


def scores(d: float, scale: float, width: float, along: float = 0, row: float = 0) -> mixture.ScaleLaw:
    """The law of σ = scale χ_d χ_D χ'_D / D; along, row: degrees of freedom added to D ‖u‖² and to ‖x_i‖².

    A mean weighed by χ²_D is D times the mean at two more degrees of freedom: E[χ²_D g(χ_D)] = D E g(χ_{D+2}).
    """
    step = mixture.step_for(d, width)
    law = mixture.chi(d, step).times(mixture.chi(width + along, step)).times(mixture.chi(width + row, step))
    return law.scaled(scale / width)
