"""Gradients of Tier 2 against ball arithmetic; every term of their radii is needed and answers for its error.

A term is shown to be needed on a faulty machine: one operation errs by up to BIG instead of u (or what a term stands
for is changed by that much), and nothing else. With BIG in its term the enclosure holds, without the term it doesn't.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compute import row_sums, slices, tier2_backward, tier2_products
from compute.heads import split
from compute.spec import Spec
from compute.tier1_backward import backward
from compute.tier1_operands import Settings
from tests.compute.cases import exact_of, head_of, shares
from tests.compute.families import FAMILIES, Case, opposite_case, shapes, wild_case
from tests.compute.truth import excess

MATRICES = ("dq", "dk", "dv", "dbias")
BIG = 2.0**-30
Edit = tuple[str, str]


def judged(got: Any, exact: dict[str, Any], prec: int = 300) -> dict[str, float]:
    """The largest proved error over the radius of each gradient: above 1 is a violation."""
    worst = {}
    for name in (*MATRICES, "dscale", "dsink"):
        e = getattr(got, name)
        if e is None:
            continue
        if name in MATRICES:
            shares = [
                excess(exact[name][at], e.mid[at], e.rad[at], e.low[at], prec=prec) for at in np.ndindex(e.mid.shape)
            ]
        else:
            shares = [excess(exact[name], float(e.mid), float(e.rad), float(e.low), prec=prec)]
        worst[name] = max(shares, default=0.0)
    return worst


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_enclosed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    for tile in (1, 2, 128):
        monkeypatch.setattr(tier2_backward, "TILE", tile)
        monkeypatch.setattr(slices, "BLOCK", int(rng.choice([2, 8, 128])))
        n, m, d, d_v = shapes(rng)
        case = FAMILIES[name](rng, n, m, d, d_v)
        grad = rng.standard_normal((n, d_v)) * rng.choice([1.0, 1e-3, 1e3])
        _, got = tier2_backward.tight_backward(head_of(case), grad, want_bias=True)
        worst = judged(got, exact_of(case, grad, prec=300))
        assert max(worst.values()) <= 1, worst


@pytest.mark.parametrize("seed", range(4))
def test_numbers_anywhere_in_the_range_are_enclosed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(tier2_backward, "TILE", 1 + seed)
    for _ in range(60):
        case, grad = wild_case(rng)
        _, got = tier2_backward.tight_backward(head_of(case), grad, want_bias=True)
        worst = judged(got, exact_of(case, grad, prec=3000), prec=3000)
        assert max(worst.values()) <= 1, worst


@pytest.mark.parametrize("seed", range(3))
def test_sizes_that_cancel_are_enclosed_by_both_tiers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(slices, "BLOCK", 1 + seed)
    for _ in range(60):
        case, grad = opposite_case(rng)
        settings = Settings(block=1 + seed, tile=1 + seed, refine="all" if seed else None)
        for what, share in shares(case, grad, settings, prec=6000):
            assert share <= 1, what


@pytest.mark.parametrize("extras", [{}, {"softcap": 5.0}, {"sink": 1.0, "causal": "bottom-right"}])
def test_several_blocks_and_tiles_at_about_1e17(extras: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    monkeypatch.setattr(tier2_backward, "TILE", 16)
    q, k, v, grad = (rng.standard_normal(s) for s in ((40, 8), (300, 8), (300, 3), (40, 3)))
    case = q, k, v, extras
    _, got = tier2_backward.tight_backward(head_of(case), grad, want_bias=True)
    worst = judged(got, exact_of(case, grad, prec=300))
    assert max(worst.values()) <= 1, worst
    for name in MATRICES:
        e = getattr(got, name)
        assert e.rad.max() < 4e-17 * np.abs(e.mid).max(), name
    assert got.dscale.rad < 1e-15 * abs(got.dscale.mid)


def test_large_cases_agree_with_tier_one() -> None:
    rng = np.random.default_rng(2)
    q, k, v, grad = (rng.standard_normal(s) for s in ((301, 16), (710, 16), (710, 8), (301, 8)))
    head = split(q, k, v, Spec(causal="bottom-right", window=(400, 0))).items[0]
    _, coarse = backward(head, grad, Settings(), want_bias=True)
    _, fine = tier2_backward.tight_backward(head, grad, want_bias=True)
    for name in MATRICES:
        mid, rad, e = getattr(coarse, name), getattr(coarse, f"{name}_rad"), getattr(fine, name)
        assert (np.abs(mid - e.mid) <= rad + e.rad + np.abs(e.low)).all(), name
        assert e.rad.max() < 4e-17 * np.abs(e.mid).max(), name
    assert abs(coarse.dscale[0] - float(fine.dscale.mid)) <= coarse.dscale[1] + float(fine.dscale.rad)


def test_a_row_that_cannot_be_bounded_takes_the_sums_with_it() -> None:
    rng = np.random.default_rng(3)
    q, k, v, grad = (rng.standard_normal((3, 4)) for _ in range(4))
    q[1] *= 1e150
    _, got = tier2_backward.tight_backward(head_of((q, k * 1e150, v, {})), grad)
    assert np.isinf(got.dk.rad).all()
    assert np.isinf(got.dv.rad).all()
    assert np.isinf(got.dq.rad[1]).all()
    assert np.isinf(got.dscale.rad)


def changed(patch: pytest.MonkeyPatch, edits: list[Edit]) -> types.ModuleType:
    """compute.tier2_backward with pieces of its text, and of the modules it is made of, changed."""
    rest = list(edits)
    built: dict[str, types.ModuleType] = {}
    for module in (row_sums, tier2_products, tier2_backward):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for edit in list(rest):
            if edit[0] in source:
                assert source.count(edit[0]) == 1, edit[0]
                source = source.replace(*edit)
                rest.remove(edit)
        new = types.ModuleType(f"changed_{module.__name__.replace('.', '_')}")
        patch.setitem(sys.modules, new.__name__, new)
        new.__dict__.update(BIG=BIG, noise=noise, np=np, pattern=pattern, two_sum=tier2_backward.two_sum)
        exec(compile(source, new.__name__, "exec"), new.__dict__)
        built[module.__name__] = new
    assert not rest, rest
    whole = built["compute.tier2_backward"]
    whole.RowSums = built["compute.row_sums"].RowSums  # type: ignore[attr-defined]
    whole.Products = built["compute.tier2_products"].Products  # type: ignore[attr-defined]
    return whole


def noise(shape: tuple[int, ...]) -> np.ndarray:
    """Signs and sizes between 1/2 and 1."""
    rng = np.random.default_rng(int(np.prod(shape)))
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.0, shape)


def pattern(w: np.ndarray) -> np.ndarray:
    """+1 for the row's smallest positive weight, −1 for the others."""
    least = np.where(w > 0, w, np.inf).min(axis=1, keepdims=True)
    return np.where(w == least, 1.0, -1.0)


def plain_case(extras: dict[str, Any] | None = None, n: int = 5) -> tuple[Case, np.ndarray]:
    rng = np.random.default_rng(7)
    q, k, v, grad = (rng.standard_normal(s) for s in ((n, 4), (9, 4), (9, 3), (n, 3)))
    return (q, k, v, {} if extras is None else extras), grad


def level_case() -> tuple[Case, np.ndarray]:
    """Equal weights, and values whose second slices are equal."""
    v = np.arange(8.0)[:, None] / 16 + 2.0**-28
    return (np.zeros((1, 1)), np.zeros((8, 1)), v, {}), np.ones((1, 1))


def same(term: str) -> Edit:
    """A term that holds what the fault was given already."""
    return term, term


KAPPA = "        kappa = t.phi"
WEIGHTS = (
    KAPPA,
    "        change = BIG * pattern(t.w[0, :, : head.m]) * t.w[0, :, : head.m]\n"
    "        t.w[1, :, : head.m] += change\n"
    "        t.total = two_sum(t.total[0], t.total[1] + change.sum(axis=1))\n"
    "        t.phi = t.phi + BIG * (1 + 2.0**-20)\n"
    "        t.least = t.least * (1 - BIG)\n" + KAPPA,
)
TOTAL = (
    KAPPA,
    "        t.total = two_sum(*(x * (1 + BIG / 2) for x in t.total))\n"
    "        t.sum_error = t.sum_error + BIG * t.total[0]\n"
    "        t.least = t.least * (1 - BIG)\n" + KAPPA,
)
PRODUCT = (
    "        xp.matmul(self.go_both[at], self.rest_v, out=b)\n",
    "        xp.matmul(self.go_both[at], self.rest_v, out=b)\n        b *= 1 + BIG * noise(b.shape)\n",
)
ONE_UP = "        extra = BIG * b * np.where(np.arange(8) == 0, 1.0, -1.0)\n        b += extra\n"
CENTRE = ("        c2 = (high - c1) + low\n", "        c2 = (high - c1) + low + BIG\n")
SECOND = ("        y2 += low\n        half", "        y2 += low\n        y2 *= 1 + BIG * noise(y2.shape)\n        half")
G_PRODUCT = "(2 * d_v + 3) * U * rest"
BOUNDED = [PRODUCT, (G_PRODUCT, "BIG * rest")]
Y_NORM = "7 * U * norm2 * UP"
Y_ENTRY = "7 * U * top2 * UP"
# the sum seen is 0: faults of weights and products then show in it as little as they move the centre
BLIND = ("        root = math", "        left = 0 * left\n        root = math")
SUMMED = "+ root * y.error + weights * g.error + t.phi * size"
ALONE = [BLIND, (SUMMED, "+ weights * g.error")]
ROUNDED = [SECOND, (Y_NORM, "BIG * norm2 * UP"), (Y_ENTRY, "BIG * top2 * UP")]
SINK = {"sink": 0.5}
SOFTCAP = {"softcap": 2.0}
MIDDLE = "        mid, low, e_div = quotient("
BIAS_QUOTIENT = (
    MIDDLE + "two_sum(y1, y2), total)\n",
    MIDDLE + "two_sum(y1, y2), total)\n"
    "        low, e_div = low + BIG * mid * noise(mid.shape), e_div + BIG * abs(mid)\n",
)
ROW_END = MIDDLE + "two_sum(n1, n2 + n1e), (t.total[0][:, None], t.total[1][:, None]))\n"
ROW_QUOTIENT = (
    ROW_END,
    ROW_END + "        low, e_div = low + BIG * mid * noise(mid.shape), e_div + BIG * abs(mid)\n",
)
SINK_END = MIDDLE + "two_sum(-p, -own), t.total)\n"
SINK_QUOTIENT = (SINK_END, SINK_END + "        low, e_div = low + BIG * mid / 2, e_div + BIG * abs(mid)\n")
N2 = "k.rest, 0, k.count) + block_product(y.y[1], k.whole, 0, k.count)\n"
ROW_PRODUCT = (N2, N2 + "        n2 *= 1 + BIG * noise(n2.shape)\n")
E_DOT = "e_dot = path(k) * second"
COLUMN = "(a1 @ rest + a2 @ head) + e"
WAY = "way * (self.cut[:, None] * self.cut_top + self.second * UP)"

# name: (case, the fault with BIG in the term that answers for it, the term's text, what is left without it, where)
TERMS: dict[str, tuple[tuple[Case, np.ndarray], list[Edit], Edit, str]] = {
    "J2, product": (plain_case(), [PRODUCT], (G_PRODUCT, "BIG * rest"), "dbias"),
    "J2, sum": (
        plain_case(),
        [("        a += b\n", "        a += b\n        a *= 1 + BIG * noise(a.shape)\n")],
        ("4 * U * (rest + abs(c2) + low_top)", "BIG * (rest + abs(c2) + low_top)"),
        "dbias",
    ),
    "J3, norm": (plain_case(), [*ALONE, SECOND, (Y_ENTRY, "BIG * top2 * UP")], (Y_NORM, "BIG * norm2 * UP"), "dq"),
    "J3, entry": (plain_case(), [*ALONE, SECOND, (Y_NORM, "BIG * norm2 * UP")], (Y_ENTRY, "BIG * top2 * UP"), "dk"),
    "J4, weights": (plain_case(n=1), [WEIGHTS], same("pi = (t.phi + kappa)"), "dv"),
    "J4, weights in the sum": (plain_case(n=1), [WEIGHTS], same("t.phi * (1 + t.sum_error / t.least)"), "dv"),
    "J4, sum": (plain_case(), [TOTAL], same("t.lost + t.sum_error / t.least"), "dv"),
    "J5, slope": (
        plain_case(SOFTCAP),
        [("(slope[0] - s1) + slope[1]", "(slope[0] - s1) + slope[1] + BIG * noise(s1.shape)")],
        ("* UP + 2.0**-98", "* UP + BIG"),
        "dq",
    ),
    "J5, scores": (
        plain_case(SOFTCAP),
        [
            ("(slope[0] - s1) + slope[1]", "(slope[0] - s1) + slope[1] + BIG * noise(s1.shape)"),
            ("* UP + 2.0**-98", "* UP + BIG"),
        ],
        same("(1 + pi) * g.top * e_slope * (1 + 2.0**-20)"),
        "dk",
    ),
    "J6, first": (
        plain_case(),
        [(COLUMN, "(a1 @ (rest * (1 + BIG * noise(rest.shape))) + a2 @ head) + e")],
        (WAY, "(BIG * self.cut[:, None] * self.cut_top + way * self.second * UP)"),
        "dk",
    ),
    "J6, second": (
        plain_case(),
        [(COLUMN, "(a1 @ rest + a2 @ (head * (1 + BIG * noise(head.shape)))) + e")],
        (WAY, "(way * self.cut[:, None] * self.cut_top + BIG * self.second * UP)"),
        "dv",
    ),
    "J6, rounded off": (
        plain_case(n=9),
        [(COLUMN, "(a1 @ rest + a2 @ head)")],
        ("4 * self.count * self.count * U * U", "self.count * U"),
        "dv",
    ),
    "J6, factor": (
        plain_case(),
        [("        head, tail = x\n", "        head, tail = x[0], x[1] + BIG * x[0] * noise(x[0].shape)\n")],
        ("2.0**-97", "BIG"),
        "dk",
    ),
    "J7, centre": (plain_case(), [CENTRE], same("(g.error + shift) * UP"), "dbias"),
    "J7, sum seen": (plain_case(), [CENTRE], same("abs(left) * (1 + 4 * U)"), "dbias"),
    "J7, weights": (
        plain_case(),
        [BLIND, (CENTRE[0], CENTRE[0][:-1] + " + 2.0**-40\n")],
        ("t.phi * size", "BIG * size"),
        "dbias",
    ),
    "J7, products": (
        plain_case(),
        [BLIND, (CENTRE[0], CENTRE[0][:-1] + " + 2.0**-40\n")],
        ("+ root * y.error", "+ root * BIG"),
        "dbias",
    ),
    "J7, product": (
        level_case(),
        [
            (PRODUCT[0], PRODUCT[0] + ONE_UP),
            ("        c2 = (high - c1) + low\n", "        c2 = (high - c1) + low + extra.mean(axis=1)\n"),
            (G_PRODUCT, "BIG * rest"),
        ],
        same("+ root * y.error + weights * g.error + t.phi"),
        "dbias",
    ),
    "J7, rounding of the sum": (
        plain_case(),
        [
            ("        c2 = (high - c1) + low\n", "        c2 = (high - c1) + low + 2.0**-58\n"),
            ("        root = math", "        left = 0 * left\n        root = math"),
        ],
        ("path(self.keys) * root", "BIG * root"),
        "dbias",
    ),
    "J8, weights": (plain_case(), [WEIGHTS], same("pi[:, None] * (abs(y1) + abs(y2))"), "dbias"),
    "J8, differences": (plain_case(), BOUNDED, same("(c2 * UP)[:, None] * weight"), "dbias"),
    "J8, products": (plain_case(), ROUNDED, same("2 * y.entry[:, None]"), "dbias"),
    "J8, quotient": (
        plain_case(),
        [BIAS_QUOTIENT],
        same("* UP + e_div * (1 + 2.0**-40)) * UP\n        unit = xp.broad"),
        "dbias",
    ),
    "J9, weights": (plain_case(), [*ALONE, WEIGHTS], same("pi[:, None] * (first"), "dq"),
    "J9, differences": (plain_case(), BOUNDED, same("c2[:, None] * whole"), "dq"),
    "J9, products": (plain_case(), [*ALONE, *ROUNDED], same("rad + y.error[:, None] * k.norm"), "dq"),
    "J9, rounding": (plain_case(), [ROW_PRODUCT], (E_DOT, "e_dot = BIG * second"), "dq"),
    "J9, quotient": (plain_case(), [ROW_QUOTIENT], same("t.least[:, None] * UP + e_div"), "dq"),
    "J9, scale": (
        plain_case(),
        [("(mid * tail + low * high)\n", "(mid * tail + low * high) + BIG * mid * noise(mid.shape)\n")],
        ("2.0**-100 * abs(mid)", "BIG * abs(mid)"),
        "dq",
    ),
    "J9, scale's gradient": (plain_case(), [ROW_QUOTIENT], same("abs(q) * (rad + own)"), "dscale"),
    "J10, weights": (plain_case(n=1), [*ALONE, WEIGHTS], same("(self.score, top[0]), "), "dk"),
    "J10, differences": (plain_case(), BOUNDED, same("(self.weight, top[1])]"), "dk"),
    "J10, products": (plain_case(), [*ALONE, *ROUNDED], same("(2 * y.entry * inverse + lost)"), "dk"),
    "J11, weights": (plain_case(n=1), [WEIGHTS], same("[(self.weight, top[3])]"), "dv"),
    "J12, weights": (plain_case(SINK), [TOTAL], same("(pi * weight + nu) * size"), "dsink"),
    "J12, centre": (plain_case(SINK), [CENTRE], same("((1 + pi) * weight + nu) * shift"), "dsink"),
    "J12, quotient": (plain_case(SINK), [SINK_QUOTIENT], same("e / t.least + e_div"), "dsink"),
}
GONE = {
    "[(self.weight, top[3])]": "[]",
    "(self.score, top[0]), ": "",
    "(self.weight, top[1])]": "]",
    "pi = (t.phi + kappa)": "pi = 0 * (t.phi + kappa)",
    "(g.error + shift) * UP": "g.error * UP",
    "t.lost + t.sum_error / t.least": "t.lost",
    "e_dot = path(k) * second": "e_dot = 0 * second",
    "rad + y.error[:, None] * k.norm": "rad",
    "t.least[:, None] * UP + e_div": "t.least[:, None] * UP + 0 * e_div",
    "e / t.least + e_div": "e / t.least + 0 * e_div",
    "* UP + e_div * (1 + 2.0**-40)) * UP\n        unit = xp.broad": "* UP) * UP\n        unit = xp.broad",
    "* UP + 2.0**-98": "* UP",
    "+ root * y.error + weights * g.error + t.phi": "+ root * y.error + t.phi",
    "abs(q) * (rad + own)": "abs(q) * own",
    "+ root * y.error": "",
    WAY: "(way * self.second * UP)",
}


@pytest.mark.parametrize("name", TERMS)
def test_every_term_is_needed_and_answers_for_its_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (case, grad), fault, term, where = TERMS[name]
    gone = (term[0], GONE.get(term[0], "0 * " + term[0]))
    if name == "J6, second":
        gone = (WAY, "(way * self.cut[:, None] * self.cut_top)")
    exact, head = exact_of(case, grad, prec=300), head_of(case)
    found = []
    for edit in (term, gone):
        module = changed(monkeypatch, [*fault, edit] if edit[0] != edit[1] else fault)
        module.TILE = 2  # type: ignore[attr-defined]
        found.append(judged(module.tight_backward(head, grad, want_bias=True)[1], exact))
    assert max(found[0].values()) <= 1, found
    assert found[1][where] > 1, found


# what is claimed to be exact, or is a low part that must not be lost
STEPS: dict[str, tuple[Edit, str]] = {
    "slices of go and V too long": (("total = 52 - bits_of(max(d_v, 1))", "total = 58"), "dbias"),
    "centre off the grid": (("split_at(high, 2 - self.bits_g)", "split_at(high, -self.bits_g)"), "dbias"),
    "first word of g too long": (("own = 52 - self.bits\n        grid", "own = 60 - self.bits\n        grid"), "dbias"),
    "first word of y too long": (("exponent - bits)[:, None]", "exponent - bits - 8)[:, None]"), "dk"),
    "first word of x too long": (("own = 52 - self.bits - bits_of(r)", "own = 58 - self.bits"), "dv"),
    "second word of g lost": (("        a += b\n", ""), "dbias"),
    "low part of the centre lost": (("        b -= c2[:, None]\n", ""), "refused"),
    "second word of the weights lost": (("        low += first\n", ""), "dq"),
    "second word of y lost": (("block_product(y.y[1], k.whole, 0, k.count)", "0"), "dq"),
    "second slice of k lost": (("block_product(y.y[0], k.rest, 0, k.count)", "0"), "dq"),
    "low part of the scale lost": (("mid * tail + low * high", "low * high"), "dq"),
    "low part before the scale lost": (("mid * tail + low * high", "mid * tail"), "dq"),
    "product with q rounded": (("p, pe + q * low, abs", "p, q * low, abs"), "dscale"),
    "low part of x lost": (("(head - first) + tail", "head - first"), "dk"),
    "second slice of x lost": (("a1 @ rest + a2 @ head", "a2 @ head"), "dk"),
    "second word of a lost": (("a1 @ rest + a2 @ head", "a1 @ rest"), "dv"),
    "sums' low parts lost": (("two_sum(rows.high, rows.low)", "two_sum(rows.high, 0 * rows.low)"), "dv"),
    "low part of the slope lost": (("(slope[0] - s1) + slope[1]", "(slope[0] - s1)"), "dk"),
    "second slice of the slope lost": (("xp.multiply(y1, s2, out=low)", "low[...] = 0"), "dk"),
    "second word of y without the slope": (("low += y2 * slope[0]", "low += y2"), "dk"),
    "sink left out of the sum": (("two_sum(y.y[0].sum(axis=1), -p)", "two_sum(y.y[0].sum(axis=1), 0 * p)"), "refused"),
    "sink's low part lost": (("two_sum(-p, -own)", "two_sum(-p, 0 * own)"), "dsink"),
    "sink's sign": (("two_sum(-p, -own)", "two_sum(p, own)"), "dsink"),
}


@pytest.mark.parametrize("name", STEPS)
def test_mutants_of_the_steps_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edit, where = STEPS[name]
    worst: dict[str, float] = {}
    module = changed(monkeypatch, [edit])
    module.TILE = 2  # type: ignore[attr-defined]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        d_v = 1 if seed else 3
        q, k, v, grad = (rng.standard_normal(s) for s in ((5, 6), (150, 6), (150, d_v), (5, d_v)))
        k = 3 * k
        if seed == 2:  # a centre that fills its row's power of two
            v, grad = np.where(v > 1.5, 0.9, -0.9) + 0.05 * v / np.abs(v).max(), np.full((5, 1), 1.9)
        extras = {"softcap": 3.0} if "slope" in name else {"sink": 0.5} if "sink" in name else {}
        case = q, k, v, extras
        _, got = module.tight_backward(head_of(case), grad, want_bias=True)
        for what, share in judged(got, exact_of(case, grad, prec=300)).items():
            worst[what] = max(worst.get(what, 0.0), share)
        if where == "refused":  # an honest radius, but a wide one
            worst[where] = max(worst.get(where, 0.0), float(got.dq.rad.max() / np.abs(got.dq.mid).max()) / 1e-15)
    assert worst[where] > 1, worst
