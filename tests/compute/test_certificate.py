"""`certify` as a whole: every argument of attention, targets, ties, empty rows, text, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import compute
from compute import canaries, climb
from compute.certificate import certify
from compute.errors import CanaryFailed, InputError
from compute.spec import Rope, Spec
from tests.compute.truth import array, excess, truth


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def test_heads_groups_bias_sink_and_causal_together() -> None:
    rng = np.random.default_rng(0)
    q, go = draw(rng, 2, 4, 5, 8), draw(rng, 2, 4, 5, 3)
    k, v = draw(rng, 2, 2, 7, 8), draw(rng, 2, 2, 7, 3)
    bias, sink = draw(rng, 4, 5, 7), draw(rng, 4)
    spec = Spec(causal="bottom-right", softcap=8.0)
    got = certify(q, k, v, spec, bias=bias, sink=sink, grad_output=go)
    dk, dv = np.zeros(k.shape), np.zeros(v.shape)
    dbias, dsink, dscale = np.zeros(bias.shape), np.zeros(4), 0.0
    keep = np.arange(7)[None] <= np.arange(5)[:, None] + 2
    for b in range(2):
        for h in range(4):
            exact = truth(
                q[b, h], k[b, h // 2], v[b, h // 2], keep=keep, biases=(bias[h],), softcap=8.0, sink=float(sink[h]),
                grad_output=go[b, h],
            )  # fmt: skip
            for i in range(5):
                assert excess(exact["lse"][i], got.lse.mid[b, h, i], got.lse.rad[b, h, i]) <= 1
            for name, found in (("z", got.output), ("dq", got.dq)):
                assert found is not None
                for at in np.ndindex(found.mid[b, h].shape):
                    assert excess(exact[name][at], found.mid[b, h][at], found.rad[b, h][at]) <= 1
            dk[b, h // 2] += array(exact["dk"])
            dv[b, h // 2] += array(exact["dv"])
            dbias[h] += array(exact["dbias"])
            dsink[h] += float(exact["dsink"].mid())
            dscale += float(exact["dscale"].mid())
    for right, found in ((dk, got.dk), (dv, got.dv), (dbias, got.dbias), (dsink, got.dsink), (dscale, got.dscale)):
        assert found is not None
        assert found.shape == np.shape(right)
        # the sums of float64 midpoints above err by a few ulp of their own
        assert (np.abs(right - found.mid) <= found.rad + 2.0**-48 * np.abs(right).max()).all()
        assert np.max(found.rad) < 1e-9


@pytest.mark.parametrize("spec", [Spec(window=(2, 1)), Spec(scale=0.3), Spec(lse_base=2.0), Spec(causal=True, past=2)])
def test_other_meanings_agree_with_attention(spec: Spec) -> None:
    rng = np.random.default_rng(1)
    q, k, v = draw(rng, 3, 6, 4), draw(rng, 3, 6, 4), draw(rng, 3, 6, 5)
    got = certify(q, k, v, spec, alibi_slopes=np.array([0.5, 0.25, 0.1]))
    z, lse = compute.attention(q, k, v, spec, alibi_slopes=np.array([0.5, 0.25, 0.1]), return_lse=True)
    assert np.abs(z - got.output.mid).max() < 1e-14
    assert np.abs(lse - got.lse.mid).max() < 1e-14
    assert got.output.rad.max() < 1e-12


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_narrow_inputs_are_taken_exactly(dtype: type) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (draw(rng, 4, 16).astype(dtype) for _ in range(3))
    got = certify(q, k, v)
    wide = certify(*(x.astype(np.float64) for x in (q, k, v)))
    np.testing.assert_array_equal(got.output.mid, wide.output.mid)
    np.testing.assert_array_equal(got.output.rad, wide.output.rad)


def test_float32_target_is_met_on_random_inputs_and_is_right() -> None:
    rng = np.random.default_rng(3)
    q, k, v = draw(rng, 12, 8), draw(rng, 200, 8), draw(rng, 200, 3)
    got = certify(q, k, v, target="f32")
    assert got.undecided == 0
    value, undecided = got.output.rounded("float32")
    assert not undecided.any()
    exact = truth(q, k, v)["z"]
    assert (value == array(exact).astype(np.float32)).all()


def test_float64_target_climbs_to_tier_two() -> None:
    rng = np.random.default_rng(4)
    q, k, v = draw(rng, 6, 16), draw(rng, 50, 16), draw(rng, 50, 3)
    got = certify(q, k, v, target="f64")
    assert got.undecided == 0
    assert any("Tier 2" in s for s in got.steps)
    exact = truth(q, k, v)["z"]
    value, _ = got.output.rounded("float64")
    assert (value == array(exact)).all()


def test_a_relative_target_is_met() -> None:
    rng = np.random.default_rng(5)
    q, k, v = draw(rng, 6, 16), draw(rng, 300, 16), draw(rng, 300, 3)
    for target in (1e-12, 1e-17):
        got = certify(q, k, v, target=target)
        assert got.undecided == 0
        assert got.output.rad.max() <= target * np.abs(got.output.mid).max()


@pytest.mark.parametrize(
    ("v", "right"),
    [
        ([[1.0], [-1.0]], 0.0),
        ([[1.0], [1 + 2.0**-23]], 1 + 2.0**-24),
    ],
)
def test_equal_scores_are_decided_by_a_rule(
    v: list[list[float]], right: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climb.arb, "available", lambda: False)  # the rule alone must do
    values = np.array(v)
    q, k = np.array([[1.5, 0.1]]), np.repeat([[0.3, -0.7]], len(values), axis=0)
    got = certify(q, k, values, target="f32")
    assert got.undecided == 0
    assert got.output.rounded("float32")[0][0, 0] == np.float32(right)
    assert any("exactly equal scores" in s for s in got.steps)


def test_pairs_of_equal_keys_that_cancel_are_zero_whatever_the_weights() -> None:
    rng = np.random.default_rng(6)
    k = np.repeat(draw(rng, 4, 3), 2, axis=0)
    v = np.tile([[1.0], [-1.0]], (4, 1))
    got = certify(draw(rng, 2, 3), k, v, target="f32", sink=np.array([0.5]))
    assert got.undecided == 0
    assert (got.output.rounded("float32")[0] == 0).all()


def test_empty_rows_are_what_the_spec_says() -> None:
    q = k = v = np.arange(6.0).reshape(3, 2)
    mask = np.array([[True] * 3, [False] * 3, [True, False, False]])
    zero = certify(q, k, v, mask=mask)
    assert (zero.output.mid[1] == 0).all()
    assert (zero.output.rad[1] == 0).all()
    assert zero.lse.mid[1] == -np.inf
    assert np.isnan(certify(q, k, v, Spec(empty_row="nan"), mask=mask).output.mid[1]).all()
    mean = certify(q, k, v, Spec(empty_row="mean"), mask=mask, grad_output=np.ones((3, 2)))
    assert mean.output.contains(np.array([[0, 0], [2, 3], [0, 1]]))[1].all()
    assert mean.dq is not None
    assert (mean.dq.mid[1] == 0).all()
    assert mean.dv is not None
    assert mean.dv.mid[1, 0] > 0.3
    with pytest.raises(InputError, match="row 1"):
        certify(q, k, v, Spec(empty_row="error"), mask=mask)


def test_what_is_behind_the_mask_is_inert() -> None:
    rng = np.random.default_rng(7)
    q, k, v = draw(rng, 2, 4), draw(rng, 5, 4), draw(rng, 5, 3)
    mask = np.array([[True, True, True, False, False]] * 2)
    clean = certify(q, k[:3], v[:3])
    k[3], v[3], k[4], v[4] = np.nan, np.inf, 1e300, -1e300
    got = certify(q, k, v, mask=mask)
    assert (np.abs(got.output.mid - clean.output.mid) <= got.output.rad + clean.output.rad).all()
    assert got.output.rad.max() < 1e-13


def test_zero_sizes() -> None:
    assert certify(np.ones((0, 2)), np.ones((3, 2)), np.ones((3, 2))).output.shape == (0, 2)
    empty = certify(np.ones((2, 2)), np.ones((0, 2)), np.ones((0, 3)))
    assert (empty.output.mid == 0).all()
    assert empty.output.shape == (2, 3)


def test_ball_arithmetic_agrees_and_is_narrow() -> None:
    rng = np.random.default_rng(8)
    q, k, v, go = draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2), draw(rng, 3, 2)
    bias, sink = draw(rng, 3, 5), np.array([0.3])
    near = certify(q, k, v, Spec(softcap=3.0), bias=bias, sink=sink, grad_output=go)
    balls = certify(q, k, v, Spec(softcap=3.0), bias=bias, sink=sink, grad_output=go, tier="arb")
    for name, e in balls.enclosures().items():
        other = near.enclosures()[name]
        assert (np.abs(e.mid - other.mid) <= e.rad + other.rad).all(), name
        assert e.rad.max() <= 1e-28, name


def test_the_table_exp_needs_no_library() -> None:
    rng = np.random.default_rng(9)
    q, k, v = draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2)
    got = certify(q, k, v, Spec(softcap=3.0), exp="table")
    exact = truth(q, k, v, softcap=3.0)["z"]
    assert max(excess(exact[at], got.output.mid[at], got.output.rad[at]) for at in np.ndindex(3, 2)) <= 1
    assert "table exp" in got.text()


def test_text_and_plain_data() -> None:
    rng = np.random.default_rng(10)
    got = certify(draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2), target=1e-10)
    text = got.text()
    for word in ("A1", "A2", "A3", "A4", "1/√4", "NumPy", "radius ≤ 1e-10", "Tier 1"):
        assert word in text
    data = got.to_json()
    assert data["undecided"] == 0
    assert data["widths"]["output"]["radius"] == got.output.rad.max()


def test_a_failed_canary_certifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries, "_passed", set())
    monkeypatch.setattr(canaries, "failures", lambda _: ["exp: off"])
    with pytest.raises(CanaryFailed):
        certify(np.eye(2), np.eye(2), np.eye(2))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"tier": "best"}, "tier"),
        ({"target": "f16"}, "target"),
        ({"target": 2.0}, "target"),
        ({"exp": "mine"}, "exp"),
        ({"spec": Spec(rope=Rope())}, "rope"),
        ({"grad_output": np.ones((1, 1))}, "grad_output has shape"),
        ({"q": np.array([[np.nan, 0], [0, 0]])}, "q has NaN"),
        ({"v": [[1, 2], [3, 4]]}, "list"),
        ({"k": np.ones((2, 3))}, "last axis"),
    ],
)
def test_refusals_say_what_was_expected(change: dict[str, object], match: str) -> None:
    call = {"q": np.eye(2), "k": np.eye(2), "v": np.eye(2), **change}
    with pytest.raises(InputError, match=match):
        certify(**call)  # type: ignore[arg-type]


def test_tier_two_alone_trusts_no_library_function() -> None:
    rng = np.random.default_rng(11)
    q, k, v = draw(rng, 4, 8), draw(rng, 30, 8), draw(rng, 30, 2)
    got = certify(q, k, v, Spec(causal="bottom-right"), tier="tight")
    assert not any(a.startswith("A1") for a in got.assumptions)
    keep = np.arange(30)[None] <= np.arange(4)[:, None] + 26
    exact = truth(q, k, v, keep=keep, prec=300)
    assert got.output.low is not None
    for i, c in np.ndindex(4, 2):
        mid, rad, low = (float(x[i, c]) for x in (got.output.mid, got.output.rad, got.output.low))
        assert excess(exact["z"][i, c], mid, rad, low, prec=300) <= 1
        assert rad < 1e-18
    assert max(excess(exact["lse"][i], got.lse.mid[i], got.lse.rad[i]) for i in range(4)) <= 1


@pytest.mark.parametrize(
    "spec",
    [
        Spec(),
        Spec(causal="top-left"),
        Spec(causal="bottom-right", window=(150, 0)),
        Spec(window=(40, 170), past=90),
        Spec(causal=True, past=300, softcap=6.0),
    ],
)
def test_many_blocks_and_tiles_agree_with_attention_and_between_tiers(spec: Spec) -> None:
    rng = np.random.default_rng(12)
    q, k, v, go = draw(rng, 301, 16), draw(rng, 710, 16), draw(rng, 710, 8), draw(rng, 301, 8)
    got = certify(q, k, v, spec, grad_output=go)
    z = compute.attention(q, k, v, spec, algorithm="plain")
    assert (np.abs(z - got.output.mid) <= got.output.rad + 1e-14).all()
    assert got.output.rad.max() < 1e-12
    grads = compute.attention_backward(go, q, k, v, spec)
    for name in ("dq", "dk", "dv"):
        e = getattr(got, name)
        assert (np.abs(getattr(grads, name) - e.mid) <= e.rad + 1e-13).all(), name
        assert e.rad.max() < 1e-10
    if spec.softcap is None:
        tight = certify(q, k, v, spec, tier="tight")
        assert (np.abs(tight.output.mid - got.output.mid) <= tight.output.rad + got.output.rad).all()
        seen = ~np.isneginf(got.lse.mid)
        assert (np.abs(tight.lse.mid - got.lse.mid)[seen] <= (tight.lse.rad + got.lse.rad)[seen]).all()


def test_names_of_formats_and_a_short_repr() -> None:
    x = np.eye(3)
    for long, short in (("float32", "f32"), ("fp32", "f32"), ("float64", "f64"), ("fp64", "f64")):
        assert certify(x, x, x, target=long).target == short  # type: ignore[arg-type]
    shown = repr(certify(x, x, x, target="f32"))
    assert shown.startswith("Certificate(output within ")
    assert "0 entries miss f32" in shown
    assert len(shown) < 200
    with pytest.raises(InputError, match="target"):
        certify(x, x, x, target="half")  # type: ignore[arg-type]
