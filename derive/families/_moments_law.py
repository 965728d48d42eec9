"""Claims about the exact law of a Gaussian score, and how far it is from a normal; checked by `score-law`."""

from __future__ import annotations

import sympy

from derive.assumptions import AtLeast
from derive.catalogue import Claim
from derive.distributions import GaussianScore, kolmogorov_constant, total_variation_constant, wasserstein_constant
from derive.families._moments import SCORE, SIGMA_K, SIGMA_Q, claim_of, d_k, products
from derive.language import scalar
from derive.moments.laws import gaussian
from derive.moments.nodes import (
    CharacteristicFunction,
    Density,
    Distribution,
    KolmogorovDistance,
    TotalVariationDistance,
    WassersteinDistance,
)
from derive.source import HERE


def law_claims() -> list[Claim]:
    z, t = scalar("z"), scalar("t")
    normal = products(gaussian(0, SIGMA_Q**2), gaussian(0, SIGMA_K**2))
    score = GaussianScore(d_k, SIGMA_Q, SIGMA_K)
    eight = GaussianScore(8, SIGMA_Q, SIGMA_K)
    note = {"en": "Symmetric variance-gamma law.", "ja": "対称な分散ガンマ分布。"}
    # The finite sum is a statement about one even d_k; its vectors have that many components.
    return [
        claim_of(
            "moments.characteristic_function",
            en="Characteristic function of a score, centred Gaussian components",
            ja="スコアの特性関数(平均 0 のガウス成分)",
            lhs=CharacteristicFunction(SCORE, t),
            rhs=score.characteristic_function(t),
            laws=(*normal, AtLeast(d_k, 1)),
            source=HERE,
            rule="score-law",
            data={"size": d_k},
        ),
        claim_of(
            "moments.density",
            en="Density of a score, centred Gaussian components",
            ja="スコアの確率密度(平均 0 のガウス成分)",
            lhs=Density(SCORE, z),
            rhs=score.density(z),
            laws=(*normal, AtLeast(d_k, 2)),
            source=HERE,
            rule="score-law",
            data={"size": d_k},
            note=note,
        ),
        claim_of(
            "moments.distribution",
            en="Distribution function of a score for d_k = 8, centred Gaussian components: a finite sum",
            ja="d_k = 8 のスコアの分布関数(平均 0 のガウス成分):有限和",
            lhs=Distribution(SCORE.xreplace({SCORE.limits[0][2]: sympy.Integer(7)}), z),
            rhs=eight.cdf(z),
            laws=normal,
            source=HERE,
            rule="score-law",
            data={"size": sympy.Integer(8)},
        ),
    ]


def distance_claims() -> list[Claim]:
    standard = products(gaussian(), gaussian())
    table = (
        ("kolmogorov_distance", KolmogorovDistance, kolmogorov_constant(), "Kolmogorov–Smirnov", "コルモゴロフ"),
        ("wasserstein_distance", WassersteinDistance, wasserstein_constant(), "Wasserstein-1", "ワッサースタイン"),
        ("total_variation_distance", TotalVariationDistance, total_variation_constant(), "total variation", "全変動"),
    )
    return [
        claim_of(
            f"moments.{name}",
            en=f"How far a scaled Gaussian score is from the normal: d_k times the {en} distance",
            ja=f"スケール後のガウススコアの正規分布からの{ja}距離の d_k 倍の極限",
            lhs=d_k * node(SCORE / sympy.sqrt(d_k)),
            rhs=constant,
            laws=(*standard, AtLeast(d_k, 1)),
            source=HERE,
            relation="limit",
            rule="score-law",
            data={"size": d_k},
        )
        for name, node, constant, en, ja in table
    ]
