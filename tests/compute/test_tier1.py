"""Tier 1 against ball arithmetic: a short run over every family, and every term shown to be needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import compute.tier1
from compute.outward import U, blocked, exp_up, expm1_up, norm_up, up32
from compute.tier1 import forward
from compute.tier1_backward import backward
from compute.tier1_operands import Settings
from tests.compute.cases import exact_of, head_of, shares
from tests.compute.families import FAMILIES, Case, shapes, wild_case
from tests.compute.truth import excess

FORWARD = frozenset({"A1", "S2", "S4", "S5", "S6", "N1", "N2", "Z1", "U1"})
BACKWARD = frozenset({"G2", "G3", "G4", "G5", "G7", "G8", "G9"})


def worst_forward(case: Case, settings: Settings) -> float:
    """Largest proved excess of the output and the log-sum-exp: above 1 is a violation."""
    out, exact, worst = forward(head_of(case), settings), exact_of(case), 0.0
    for i in exact["rows"]:
        worst = max(worst, excess(exact["lse"][i], out.lse[i], out.lse_rad[i]))
        for c in range(out.z.shape[1]):
            worst = max(worst, excess(exact["z"][i, c], out.z[i, c], out.z_rad[i, c]))
    return worst


def worst_backward(case: Case, grad: np.ndarray, settings: Settings) -> dict[str, float]:
    _, got = backward(head_of(case), grad, settings, want_bias=True)
    exact, worst = exact_of(case, grad), {}
    for name in ("dq", "dk", "dv", "dbias"):
        mid, rad = getattr(got, name), getattr(got, f"{name}_rad")
        worst[name] = max(
            (excess(exact[name][i, j], mid[i, j], rad[i, j]) for i, j in np.ndindex(mid.shape)), default=0.0
        )
    worst["dscale"] = excess(exact["dscale"], *got.dscale)
    if got.dsink is not None:
        worst["dsink"] = excess(exact["dsink"], *got.dsink)
    return worst


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_enclosed(name: str) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    for _ in range(3):
        n, m, d, d_v = shapes(rng)
        case = FAMILIES[name](rng, n, m, d, d_v)
        settings = Settings(block=int(rng.choice([2, 8, 128])), tile=int(rng.choice([1, 128])), refine="all")
        assert worst_forward(case, settings) <= 1
        grad = rng.standard_normal((n, d_v)) * rng.choice([1.0, 1e-3, 1e3])
        worst = worst_backward(case, grad, settings)
        assert max(worst.values()) <= 1, worst


@pytest.mark.parametrize("seed", range(4))
def test_numbers_anywhere_in_the_range_are_enclosed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        case, grad = wild_case(rng)
        settings = Settings(block=int(rng.choice([1, 2, 128])), tile=int(rng.choice([1, 128])), refine="all")
        for what, share in shares(case, grad, settings, prec=3000):
            assert share <= 1, what


@pytest.mark.parametrize("refine", [None, "all"])
@pytest.mark.parametrize("softcap", [None, 0.002869618673958767])
def test_sizes_of_keys_and_values_never_vanish_in_a_product(softcap: float | None, refine: str | None) -> None:
    # |k||v| is far below the least float, and the output nearly cancels: only the sizes themselves bound its error
    q, k = np.array([[8.0821828810772764e71, 0.0]]), np.array([[2.0e-303, -6.6e-304], [-2.8e-303, -4.2e-304]])
    v = np.array([[2.7475127531923331e-136], [-1.2970019277941592e-136]])
    for scale in (1.0, 1e71, 1e230, 1e232):
        extras = {"bias": np.array([[-0.75, 0.0]]), "softcap": softcap, "scale": scale}
        case = q, k, v, {name: x for name, x in extras.items() if x is not None}
        assert worst_forward(case, Settings(refine=refine)) <= 1


def test_scores_that_overflow_leave_the_hull() -> None:
    q, k, v = np.full((1, 4), 1e200), np.array([[1e200] * 4, [-1e200] * 4]), np.array([[1.0], [3.0]])
    out = forward(head_of((q, k, v, {})), Settings())
    assert out.lse_rad[0] == np.inf
    assert abs(out.z[0, 0] - 1.0) <= out.z_rad[0, 0] <= 2


def loud(size: float) -> Callable[..., np.ndarray]:
    def exp(x, out=None):
        got = np.exp(x) * (1 + size * 2.0**-52 * np.where(np.asarray(x) < -0.5, 0.99, 0.0))
        if out is None:
            return got
        out[...] = got
        return out

    return exp


def only(term: str) -> tuple[Case, Settings]:
    """An input on which the error that a forward term stands for is the only one that matters."""
    one = np.ones((1, 1))
    settings = Settings(block=128)
    if term == "A1":
        case = one, np.array([[0.0], [-1.0]]), np.array([[1.0], [-1.0]]), {"scale": 1.0}
        return case, Settings(exp_ulp=1000.0, exp=loud(1000.0))
    if term == "S2":
        rng = np.random.default_rng(1)
        q = np.repeat(1e5 * rng.standard_normal((1, 32)), 2, axis=0).reshape(1, 64)
        half = rng.standard_normal((5, 32)) * 1e5
        return (q, np.hstack([half, -half * (1 + 1e-12)]), rng.standard_normal((5, 1)), {}), settings
    if term == "S4":
        k = np.array([[0.375], [0.25], [0.125]])
        return (one, k, np.array([[1.0], [-1.0], [3.0]]), {"scale": 1.0, "softcap": 4096.0}), settings
    if term == "S5":
        big = one * 1024
        case = big, np.full((3, 1), 1024.0), np.array([[1.0], [-1.0], [5.0]]), {"scale": 1.0}
        return (*case[:3], {"scale": 1.0, "bias": np.array([[0.1, 0.2, 0.3]])}), settings
    if term == "S6":
        k = np.array([[64.5], [-12.681885138599021]])
        return (one, k, np.array([[0.0], [np.exp(77.2)]]), {"scale": 1.0}), settings
    if term == "N1":
        rng = np.random.default_rng(2)
        half = rng.standard_normal((64, 1)) * 10.0 ** rng.integers(0, 8, (64, 1))
        v = np.vstack([half, -half])[rng.permutation(128)]
        return (np.zeros((1, 4)), np.zeros((128, 4)), v, {}), settings
    if term == "N2":
        k, v = np.full((128, 1), -36.7), np.zeros((128, 1))
        k[0], v[0] = 0, 1
        return (one, k, v, {"scale": 1.0}), settings
    if term == "Z1":
        return (np.zeros((1, 4)), np.zeros((3, 4)), np.array([[1.0], [0.0], [0.0]]), {}), settings
    assert term == "U1"
    return (one, np.array([[0.0], [-744.7]]), np.array([[0.0], [1e300]]), {"scale": 1.0}), settings


@pytest.mark.parametrize("term", sorted(FORWARD))
def test_every_forward_term_is_needed_and_answers_for_its_error(term: str) -> None:
    case, settings = only(term)
    assert worst_forward(case, settings) <= 1
    assert worst_forward(case, replace(settings, drop=FORWARD)) > 1
    exact, out = exact_of(case), forward(head_of(case), replace(settings, drop=FORWARD - {term}))
    worst = max(excess(exact["z"][i, 0], out.z[i, 0], out.z_rad[i, 0]) for i in exact["rows"])
    assert worst <= 1


def only_backward(term: str) -> tuple[Case, np.ndarray, str]:
    """The same for a term of the gradients, and the gradient in which it shows."""
    rng = np.random.default_rng(4)
    if term == "G2":
        q, k = rng.standard_normal((2, 16)) * 1e3, rng.standard_normal((5, 16))
        return (q, k, rng.standard_normal((5, 2)), {}), rng.standard_normal((2, 2)), "dv"
    if term == "G3":
        # the third value is the output itself: its gradient is nothing but the output's error
        middle = (1 - np.exp(-1.0)) / (1 + np.exp(-1.0))
        v = np.array([[1.0], [-1.0], [middle]])
        return (np.ones((1, 1)), np.array([[0.0], [-1.0], [-2.0]]), v, {"scale": 1.0}), np.ones((1, 1)), "dbias"
    if term == "G4":
        v = 1e8 * (1 + 1e-3 * rng.standard_normal((4, 1))) * np.array([[1.0], [-1.0], [1.0], [-1.0]])
        v = np.repeat(v, 64, axis=1) * (1 + 1e-9 * rng.standard_normal((4, 64)))
        return (np.zeros((1, 4)), np.zeros((4, 4)), v, {}), np.tile([1.0, -1.0], 32)[None, :], "dbias"
    if term in ("G5", "G9"):
        n = 128
        grad = np.full((n, 1), 0.9 * U)
        grad[0] = 1.0
        q = np.zeros((n, 4))
        if term == "G9":
            grad, q[:, 0] = np.ones((n, 1)), 0.9 * U
            q[0, 0] = 1.0
        return (q, np.zeros((2, 4)), np.array([[1.0], [-1.0]]), {}), grad, "dv" if term == "G5" else "dk"
    if term == "G7":
        q, half = np.repeat(1e4 * rng.standard_normal((1, 8)), 2, axis=0).reshape(1, 16), rng.standard_normal((4, 8))
        k = np.hstack([half, -half * (1 + 1e-7)])
        return (q, k, rng.standard_normal((4, 1)), {"softcap": 1e-3}), np.ones((1, 1)), "dk"
    assert term == "G8"
    # 64 large products, one in each lane of any kernel, then thousands that are each lost beside them
    m = 4096
    k, v = np.full((m, 4), 0.4 * 63 * U), np.ones((m, 1))
    k[:64], v[:64] = 1.0, -63.0
    return (np.zeros((1, 4)), k, v, {}), np.ones((1, 1)), "dq"


@pytest.mark.parametrize("term", sorted(BACKWARD))
def test_every_backward_term_is_needed(term: str) -> None:
    case, grad, where = only_backward(term)
    settings = Settings(block=4096 if term == "G8" else 128)
    if term == "G3":
        settings = Settings(exp_ulp=1000.0, exp=loud(1000.0))
    others = BACKWARD - {term} if term != "G3" else frozenset()
    assert max(worst_backward(case, grad, settings).values()) <= 1
    assert worst_backward(case, grad, replace(settings, drop=others | {term}))[where] > 1
    assert worst_backward(case, grad, replace(settings, drop=others))[where] <= 1


def test_shift_by_the_maximum_is_not_exact_although_scores_are() -> None:
    # the keys lie on different grids: exact scores don't make exact differences
    case, _ = only("S6")
    assert worst_forward(case, Settings(block=1, refine="all")) <= 1
    assert worst_forward(case, Settings(block=1, refine="all", drop=frozenset({"S6"}))) > 1


def test_norms_neither_vanish_nor_overflow() -> None:
    for size in (5e-324, 1e-200, 1e-160, 1.0, 1e160, 1e300):
        x = np.full((3, 4), size)
        assert (norm_up(x, 1) >= 2 * size).all()
        assert (norm_up(x, 0) >= np.sqrt(3) * size).all()


def test_a_blocked_sum_can_come_close_to_its_bound() -> None:
    # one large term, then terms that are each lost
    for length in (8, 64):
        x = np.full(length, 0.99 * U)
        x[0] = 1.0
        total = 0.0
        for e in x:
            total += e
        lost = abs(total - (1 + 0.99 * U * (length - 1))) / x.sum()
        assert 0.8 * blocked(length, 0) < 0.99 * U * (length - 1) <= blocked(length, 0)
        assert lost <= blocked(length, 0)


def test_outward_functions_are_outward() -> None:
    from flint import arb

    for x in (0.0, 1e-300, 1e-16, 1e-3, 0.999, 1.0, 5.0, 699.0):
        assert arb(float(exp_up(np.array(x)))) >= arb(x).exp()
        assert arb(float(expm1_up(np.array(x)))) >= arb(x).expm1()
    x = np.array([0.1, 1e-40, 1.0, 3e38])
    assert (up32(x).astype(np.float64) > x).all()


def test_labels_of_text_and_code_are_the_same() -> None:
    home = Path(compute.tier1.__file__).parent
    text = (home / "enclosure.md").read_text(encoding="utf-8")
    tier2 = ("tier2", "tier2_scores", "tier2_backward", "tier2_products", "slices", "row_sums")
    names = ("tier1", "tier1_operands", "tier1_backward", *tier2, "table_exp", "outward", "enclosure")
    code = "".join((home / f"{name}.py").read_text(encoding="utf-8") for name in names)
    found = set(re.findall(r"\(([A-Z]\d+)\)|term\(\"([A-Z]\d+)\"", code))
    in_code = {a or b for a, b in found}
    in_text = set(re.findall(r"\*\*\(([A-Z]\d+)\)", text))
    assert in_text == in_code


def test_the_sink_takes_part_in_the_error_of_the_mean_gradient() -> None:
    # all of the error is the sink's weight; the second value is the output, so that its gradient is that error alone
    w, s = np.exp(-0.25), np.exp(-1.0)
    middle = 1 / (1 + s)  # solves z = (1 + w z)/(1 + w + s)
    case = np.ones((1, 1)), np.array([[0.0], [-0.25]]), np.array([[1.0], [middle]]), {"scale": 1.0, "sink": -1.0}
    assert abs((1 + w * middle) / (1 + w + s) - middle) < 1e-15
    settings = Settings(exp_ulp=1000.0, exp=loud(1000.0))
    worst = worst_backward(case, np.ones((1, 1)), settings)
    assert 0.05 < worst["dbias"] <= 1
