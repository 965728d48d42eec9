"""Higher moments of attention scores at symbolic sizes, and the exact law of a Gaussian score.

Guarantees: moments are checked by `moment-routes` for all sizes; density, CDF and characteristic function by
`score-law` on a grid; distances to the normal are limits, checked against exact distances.
Does not: hold variances and covariances; those are the family `variance`.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.assumptions import AtLeast, RandomEntries
from derive.catalogue import Claim
from derive.families._moments import (
    RHO,
    SCORE,
    SIGMA_K,
    SIGMA_Q,
    SIGMA_X,
    UNIT,
    G,
    S,
    claim_of,
    d_k,
    d_model,
    fixed_tokens,
    i,
    j,
    k,
    l,
    products,
    q,
    random_tokens,
    rows,
    squares_in_common,
)
from derive.families._moments_law import distance_claims, law_claims
from derive.language import scalar
from derive.moments.laws import gaussian, laplace, rademacher, shaped, shifted_exponential, student, uniform
from derive.moments.model import GaussianPair
from derive.moments.nodes import Cumulant, ExcessKurtosis, Expect
from derive.source import HERE

E_Q, E_K = scalar("e_q"), scalar("e_k")
NORMAL = products(gaussian(0, SIGMA_Q**2), gaussian(0, SIGMA_K**2))


def claims() -> list[Claim]:
    return [
        *_gaussian_powers(),
        *_any_components(),
        *_special_laws(),
        *_self_attention(),
        *_limits(),
        *law_claims(),
        *distance_claims(),
    ]


def rising(size: Any, count: int) -> Any:
    """size (size + 2) (size + 4) …, count factors: E R^(2·count) for R² ~ χ² with `size` degrees of freedom."""
    return sympy.Mul(*(size + 2 * r for r in range(count)))


def _gaussian_powers() -> list[Claim]:
    names = {4: ("fourth", "Fourth", "4"), 6: ("sixth", "Sixth", "6"), 8: ("eighth", "Eighth", "8")}
    powers = [
        claim_of(
            f"moments.{name}",
            en=f"{title} moment of a score, centred Gaussian components",
            ja=f"スコアの {order} 次モーメント(平均 0 のガウス成分)",
            lhs=Expect(SCORE**p),
            rhs=sympy.factorial2(p - 1) * rising(d_k, p // 2) * (SIGMA_Q * SIGMA_K) ** p,
            laws=NORMAL,
            source=HERE,
        )
        for p, (name, title, order) in names.items()
    ]
    cumulants = [
        claim_of(
            f"moments.{name}_cumulant",
            en=f"Cumulant of order {r} of a score, centred Gaussian components",
            ja=f"スコアの {r} 次キュムラント(平均 0 のガウス成分)",
            lhs=Cumulant(SCORE, r),
            rhs=d_k * sympy.factorial(r - 1) * (SIGMA_Q * SIGMA_K) ** r,
            laws=NORMAL,
            source=HERE,
        )
        for r, name in ((4, "fourth"), (6, "sixth"))
    ]
    return powers + cumulants


def _any_components() -> list[Claim]:
    pair = RandomEntries((q, k), GaussianPair((sympy.S.Zero, sympy.S.Zero), (SIGMA_Q, SIGMA_K), RHO))
    return [
        claim_of(
            "moments.fourth_any",
            en="Fourth moment of a score, centred components of any kurtosis",
            ja="スコアの 4 次モーメント(平均 0、尖度は任意)",
            lhs=Expect(SCORE**4),
            rhs=d_k * ((E_Q + 3) * (E_K + 3) + 3 * (d_k - 1)) * UNIT**2,
            laws=products(shaped(0, SIGMA_Q**2, 0, E_Q), shaped(0, SIGMA_K**2, 0, E_K)),
            source=HERE,
        ),
        claim_of(
            "moments.fourth_correlated",
            en="Fourth moment of a score, q and k centred Gaussian with correlation ρ",
            ja="スコアの 4 次モーメント(平均 0、相関 ρ のガウス)",
            lhs=Expect(SCORE**4),
            rhs=UNIT**2
            * (
                RHO**4 * d_k**4
                + 6 * RHO**2 * (1 + RHO**2) * d_k**3
                + (3 * (1 + RHO**2) ** 2 + 8 * RHO**2 * (3 + RHO**2)) * d_k**2
                + 6 * (1 + 6 * RHO**2 + RHO**4) * d_k
            ),
            laws=(pair,),
            source=HERE,
        ),
    ]


def _special_laws() -> list[Claim]:
    r = sympy.Rational

    def fourth(name: str, en: str, ja: str, law: Any, second: Any, own: Any) -> Claim:
        # d E(qk)⁴ + 3 d (d−1) (E(qk)²)².
        return claim_of(
            f"moments.fourth_{name}",
            en=f"Fourth moment of a score, {en}",
            ja=f"スコアの 4 次モーメント({ja})",
            lhs=Expect(SCORE**4),
            rhs=d_k * own + 3 * d_k * (d_k - 1) * second**2,
            laws=products(law, law),
            source=HERE,
        )

    return [
        fourth("signs", "components ±1", "成分が ±1", rademacher(), sympy.S.One, sympy.S.One),
        fourth("uniform", "components uniform on [−1, 1]", "[−1, 1] の一様成分", uniform(), r(1, 9), r(1, 25)),
        fourth(
            "laplace",
            "Laplace components of scale 1",
            "尺度 1 のラプラス成分",
            laplace(),
            sympy.Integer(4),
            sympy.Integer(576),
        ),
        fourth(
            "exponential",
            "exponential components shifted to mean 0",
            "平均 0 にずらした指数分布の成分",
            shifted_exponential(1, -1),
            sympy.S.One,
            sympy.Integer(81),
        ),
        fourth(
            "student",
            "Student components with 9 degrees of freedom",
            "自由度 9 の t 分布の成分",
            student(9),
            r(81, 49),
            r(243, 35) ** 2,
        ),
    ]


def _self_attention() -> list[Claim]:
    weights = (gaussian(0, SIGMA_Q**2), gaussian(0, SIGMA_K**2))
    fixed = (*fixed_tokens(*weights), *rows(i, j))
    random = random_tokens(gaussian(0, SIGMA_X**2), *weights)
    any_weights = fixed_tokens(shaped(0, SIGMA_Q**2, 0, E_Q), shaped(0, SIGMA_K**2, 0, E_K))
    unit4 = UNIT**2 * SIGMA_X**8

    def own(e: Any, row: Any) -> Any:
        # E (Σ_a x_a w_a)⁴ / σ⁴ for weights of excess kurtosis e.
        return e * squares_in_common(row, row) + 3 * G[row, row] ** 2

    return [
        *(
            claim_of(
                f"moments.self_attention_{name}_fixed",
                en=f"Moment of order {p} of a self-attention score, tokens fixed, Gaussian weights",
                ja=f"自己注意スコアの {p} 次モーメント(トークン固定、ガウス重み)",
                lhs=Expect(S[i, j] ** p),
                rhs=sympy.factorial2(p - 1)
                * rising(d_k, p // 2)
                * (SIGMA_Q * SIGMA_K) ** p
                * (G[i, i] * G[j, j]) ** (p // 2),
                laws=fixed,
                source=HERE,
            )
            for p, name in ((4, "fourth"), (6, "sixth"), (8, "eighth"))
        ),
        claim_of(
            "moments.self_attention_row_squares_fixed",
            en="Mean product of two squared scores of one row, tokens fixed, Gaussian weights",
            ja="同じ行のスコアの二乗の積の平均(トークン固定、ガウス重み)",
            lhs=Expect(S[i, j] ** 2 * S[i, l] ** 2),
            rhs=d_k * (d_k + 2) * UNIT**2 * G[i, i] ** 2 * (G[j, j] * G[l, l] + 2 * G[j, l] ** 2),
            laws=(*fixed_tokens(*weights), *rows(i, j, l)),
            source=HERE,
        ),
        claim_of(
            "moments.self_attention_fourth_any",
            en="Fourth moment of a self-attention score, tokens fixed, weights of any kurtosis",
            ja="自己注意スコアの 4 次モーメント(トークン固定、重みの尖度は任意)",
            lhs=Expect(S[i, j] ** 4),
            rhs=d_k * UNIT**2 * (own(E_Q, i) * own(E_K, j) + 3 * (d_k - 1) * G[i, i] ** 2 * G[j, j] ** 2),
            laws=(*any_weights, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "moments.self_attention_fourth_offdiagonal",
            en="Fourth moment of a self-attention score off the diagonal, all Gaussian",
            ja="自己注意スコアの 4 次モーメント(非対角、すべてガウス)",
            lhs=Expect(S[i, j] ** 4),
            rhs=3 * rising(d_model, 2) ** 2 * rising(d_k, 2) * unit4,
            laws=(*random, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "moments.self_attention_fourth_diagonal",
            en="Fourth moment of a self-attention score on the diagonal, all Gaussian",
            ja="自己注意スコアの 4 次モーメント(対角、すべてガウス)",
            lhs=Expect(S[i, i] ** 4),
            rhs=3 * rising(d_model, 4) * rising(d_k, 2) * unit4,
            laws=(*random, *rows(i)),
            source=HERE,
        ),
        claim_of(
            "moments.self_attention_kurtosis",
            en="Excess kurtosis of a self-attention score off the diagonal, all Gaussian",
            ja="自己注意スコアの過剰尖度(非対角、すべてガウス)",
            lhs=ExcessKurtosis(S[i, j]),
            rhs=3 * (1 + 2 / d_model) ** 2 * (1 + 2 / d_k) - 3,
            laws=(*random, *rows(i, j), AtLeast(d_k, 1), AtLeast(d_model, 1)),
            source=HERE,
        ),
        claim_of(
            "moments.tied_third",
            en="Third cumulant of a score with tied Gaussian weights, tokens fixed",
            ja="重み共有(ガウス)のスコアの 3 次キュムラント(トークン固定)",
            lhs=Cumulant(S[i, j], 3),
            rhs=d_k * SIGMA_Q**6 * (2 * G[i, j] ** 3 + 6 * G[i, j] * G[i, i] * G[j, j]),
            laws=(*fixed_tokens(weights[0]), *rows(i, j)),
            source=HERE,
        ),
    ]


def _limits() -> list[Claim]:
    """What is left of the shape of scores for large d_k."""
    weights = (gaussian(0, SIGMA_Q**2), gaussian(0, SIGMA_K**2))
    loose = products(shaped(0, SIGMA_Q**2, 0, E_Q), shaped(0, SIGMA_K**2, 0, E_K))
    random = random_tokens(gaussian(0, SIGMA_X**2), *weights)
    return [
        claim_of(
            "moments.limit_fourth",
            en="Fourth moment of a scaled score for large d_k: that of a normal, whatever the kurtosis",
            ja="d_k が大きいときのスケール後スコアの 4 次モーメント:尖度によらず正規分布と同じ",
            lhs=Expect((SCORE / sympy.sqrt(d_k)) ** 4),
            rhs=3 * UNIT**2,
            laws=(*loose, AtLeast(d_k, 1)),
            source=HERE,
            relation="limit",
            rule="moment-limit",
            data={"size": d_k},
        ),
        claim_of(
            "moments.limit_sixth",
            en="Sixth moment of a scaled Gaussian score for large d_k: that of a normal",
            ja="d_k が大きいときのスケール後ガウススコアの 6 次モーメント:正規分布と同じ",
            lhs=Expect((SCORE / sympy.sqrt(d_k)) ** 6),
            rhs=15 * UNIT**3,
            laws=(*NORMAL, AtLeast(d_k, 1)),
            source=HERE,
            relation="limit",
            rule="moment-limit",
            data={"size": d_k},
        ),
        claim_of(
            "moments.limit_self_attention",
            en="Excess kurtosis of a self-attention score for large d_k: it does not become normal",
            ja="d_k が大きいときの自己注意スコアの過剰尖度:正規分布にはならない",
            lhs=ExcessKurtosis(S[i, j]),
            rhs=12 / d_model + 12 / d_model**2,
            laws=(*random, *rows(i, j), AtLeast(d_k, 1), AtLeast(d_model, 1)),
            source=HERE,
            relation="limit",
            rule="moment-limit",
            data={"size": d_k},
            note={
                "en": "The lengths of the two tokens stay random; only a large d_model makes them alike.",
                "ja": "2 つのトークンの長さはランダムなままで、d_model が大きいときだけ揃う。",
            },
        ),
    ]
