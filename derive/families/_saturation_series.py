"""Claims of the family `saturation` that expand a mean: in the variance at every n, and in 1/n at every variance."""

from __future__ import annotations

from typing import Any

import sympy

from derive.catalogue import Claim
from derive.families._rows import one_step, points, row
from derive.power_sums import N, V
from derive.row_nodes import J2, H, LargeN, Taylor, p

E = sympy.exp


def claims() -> list[Claim]:
    return [*_small(), *_many()]


def _small() -> list[Claim]:
    n, v = N, V
    given = ("scores of a row are i.i.d. N(0, v)", "v → 0 at any n: remainder at most C v^(order+1), C in the verdict")
    grid = points(n=(2, 3, 4, 5, 6, 8, 12, 20, 64, 512, 1e6), v=(0.02, 0.05, 0.1, 0.2))

    def to_order(order: int, error: Any) -> dict[str, Any]:
        return {"error": error * v ** (order + 1), "grid": grid}

    return [
        one_step(
            "saturation.p2_small_sigma",
            "E Σα² for scores of small variance, at every n",
            "スコアの分散が小さいときの E Σα²(任意の n)",
            Taylor(row(p(2)), v, 4),
            1 / n
            + (n - 1) / n**2 * v
            + (n - 1) * (n - 6) / (2 * n**3) * v**2
            + (n - 1) * (n**2 - 30 * n + 90) / (6 * n**4) * v**3
            + (n - 1) * (n**3 - 114 * n**2 + 1236 * n - 2520) / (24 * n**5) * v**4,
            "heat-series",
            given=given,
            data=to_order(4, sympy.Rational(14, 5)),
            observable="participation",
        ),
        one_step(
            "saturation.jacobian_small_sigma",
            "E ‖J‖² for scores of small variance, at every n",
            "スコアの分散が小さいときの E ‖J‖²(任意の n)",
            Taylor(row(J2), v, 3),
            (n - 1) / n**2
            + (n - 1) * (n - 4) / n**3 * v
            + (n - 1) * (n**2 - 20 * n + 50) / (2 * n**4) * v**2
            + (n - 1) * (n**3 - 76 * n**2 + 684 * n - 1260) / (6 * n**5) * v**3,
            "heat-series",
            given=given,
            data=to_order(3, sympy.Rational(21, 2)),
            observable="jacobian_norm",
        ),
        one_step(
            "saturation.entropy_small_sigma",
            "Mean entropy for scores of small variance, at every n",
            "スコアの分散が小さいときのエントロピーの平均(任意の n)",
            Taylor(row(H), v, 4),
            sympy.log(n)
            - (n - 1) / (2 * n) * v
            + 3 * (n - 1) / (4 * n**2) * v**2
            + 5 * (n - 1) * (n - 6) / (12 * n**3) * v**3
            + 7 * (n - 1) * (n**2 - 30 * n + 90) / (48 * n**4) * v**4,
            "heat-series",
            given=given,
            data=to_order(4, sympy.Rational(9, 10)),
            observable="entropy",
        ),
        one_step(
            "saturation.jacobian_rise",
            "Growing scores first raise the mean squared Jacobian, exactly when n > 4",
            "スコアが大きくなると、まず平均二乗ヤコビアンは増える(n > 4 のときに限る)",
            Taylor(row(J2), v, 1),
            (n - 1) / n**2 * (1 + (n - 4) / n * v),
            "heat-series",
            given=given,
            data=to_order(1, sympy.Rational(9, 5)),
            observable="jacobian_norm",
            note={
                "en": "The usual sentence, that large scores make the gradient vanish, is false of the mean square at "
                "first: the slope at v = 0 has the sign of n - 4.",
                "ja": "「スコアが大きいと勾配が消える」は平均二乗では最初は誤り:v = 0 での傾きは n − 4 と同符号。",
            },
        ),
    ]


def _many() -> list[Claim]:
    n, v = N, V
    given = ("scores of a row are i.i.d. N(0, v)", "n → ∞ at fixed v: usable while e^(2v) is well below n")
    grid = points(n=(512, 4096, 1e5), v=(0.0625, 0.25, 1.0)) + points(n=(1e6,), v=(2.25,))
    second = (E(v) - 1) / n**2
    return [
        one_step(
            "saturation.p2_large_n",
            "E Σα² for many keys: e^v/n and its first correction",
            "鍵が多いときの E Σα²:e^v/n とその第一補正",
            LargeN(row(p(2)), n, 1),
            E(v) / n * (1 - (2 * E(v) - 1) * (E(v) - 1) / n),
            "many-keys",
            given=given,
            observable="participation",
            data={"error": sympy.Rational(33, 10) * (E(v) - 1) * second * E(4 * v), "grid": grid},
            note={
                "en": "n E Σα² → e^v. For the mean this fails before the freezing point: only for v < (2 log n)/3.",
                "ja": "n E Σα² → e^v。平均については凍結点より前、v < (2 log n)/3 まで。",
            },
        ),
        one_step(
            "saturation.jacobian_large_n",
            "E ‖J‖² for many keys",
            "鍵が多いときの E ‖J‖²",
            LargeN(row(J2), n, 1),
            E(v) / n * (1 - (2 * E(v) - 1) * (E(v) - 1) / n)
            - 2 * E(3 * v) / n**2 * (1 - 3 * (E(3 * v) - 2 * E(v) + 1) / n)
            + E(2 * v) / n**2 * (1 + (E(4 * v) - 8 * E(2 * v) + 10 * E(v) - 3) / n),
            "many-keys",
            given=given,
            observable="jacobian_norm",
            data={"error": sympy.Rational(11, 10) * second * E(5 * v), "grid": grid},
        ),
        one_step(
            "saturation.entropy_large_n",
            "Mean entropy for many keys",
            "鍵が多いときのエントロピーの平均",
            LargeN(row(H), n, 1),
            sympy.log(n) - v / 2 + (v * E(v) - (E(v) - 1) / 2) / n - v * E(v) * (2 * E(v) - 1) * (E(v) - 1) / n**2,
            "many-keys",
            given=given,
            observable="entropy",
            data={
                "error": (E(v) - 1) * second * E(4 * v) / 4 / (sympy.log(n) - v / 2),
                "grid": grid,
            },
        ),
    ]
