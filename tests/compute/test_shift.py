"""The bounded shift: where it is taken, and the inputs that break a laxer condition."""

import numpy as np
import pytest

import compute
from compute import Spec, shift, tiled
from compute.meaning import resolve
from compute.tiles import plan

U = 2.0**-24


def rows_that_are_safe(q, k, v, spec=Spec(scale=1), **given):
    problem = resolve(q, k, v, spec, **given)
    part, shape = problem.part((), 0), plan(problem)
    return shift.safe_rows(part, slice(0, problem.n), shift.per_tile(part, shape), shape, part.queries())


def two_keys(bound, values, dtype=np.float32):
    """One query whose two scores are −bound and −bound·0.99: the weights are as small as the bound lets them be."""
    q = np.array([[1.0, 0.0]], dtype)
    k = np.array([[-bound, 0.0], [-0.99 * bound, 0.0]], dtype)
    return q, k, np.array([[x] for x in values], dtype)


def error_over_bound(q, k, v, out):
    """Error of a float32 result against float64, over the bound that every shift obeys: no term grows with B."""
    want = compute.attention(*(x.astype(np.float64) for x in (q, k, v)), Spec(scale=1), algorithm="shifted")
    scores = abs(q.astype(np.float64)) @ abs(k.T.astype(np.float64))
    delta = (q.shape[1] + 4) * U * scores.max()
    return abs(out - want).max() / ((2 * delta + 40 * U) * abs(v).max())


@pytest.mark.parametrize("bound", [5.0, 20.0, 30.0, 43.0])
def test_errors_do_not_grow_with_the_bound(bound):
    rng = np.random.default_rng(0)
    k = rng.normal(size=(300, 8))
    k *= bound / np.linalg.norm(k, axis=1, keepdims=True)
    q = rng.normal(size=(40, 8))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    q, k, v = (x.astype(np.float32) for x in (q, k, rng.normal(size=(300, 4))))
    out = compute.attention(q, k, v, Spec(scale=1), algorithm="bounded")
    assert error_over_bound(q, k, v, out) <= 1
    assert rows_that_are_safe(q, k, v).all() == (bound < 40)


def test_the_input_that_breaks_a_laxer_condition(monkeypatch):
    q, k, v = two_keys(43.4, [1e-6, -0.9e-6])
    assert not rows_that_are_safe(q, k, v).any()
    out = compute.attention(q, k, v, Spec(scale=1), algorithm="bounded")
    assert error_over_bound(q, k, v, out) <= 1
    # Small values underflow against small weights. Were the condition only "no overflow and no lost row":
    q, k, v = two_keys(75.0, [1e-12, -0.9e-12])
    good = compute.attention(q, k, v, Spec(scale=1), algorithm="bounded")
    assert error_over_bound(q, k, v, good) <= 1
    monkeypatch.setattr(tiled.shift, "safe_rows", lambda part, rows, *rest: np.ones(rows.stop - rows.start, bool))
    lax = compute.attention(q, k, v, Spec(scale=1), algorithm="bounded")
    assert error_over_bound(q, k, v, lax) > 100


@pytest.mark.parametrize(
    ("bound", "values", "safe"),
    [
        (10, [1, 2], True),
        (10, [0, 2], True),
        (34, [1, 1], True),
        (36, [1, 1], False),  # 2·36 + ln 2²⁴ > 87 with the bound's own unit of slack
        (20, [1e-8, 1], True),
        (30, [1e-8, 1], False),
        (10, [1e-40, 1], False),
        (10, [1e37, 1], False),
        (10, [np.inf, 1], False),
        (10, [np.nan, 1], False),
        (np.inf, [1, 1], False),
        (np.nan, [1, 1], False),
    ],
)
def test_which_rows_are_safe(bound, values, safe):
    q, k, v = two_keys(1.0, values)
    with np.errstate(all="ignore"):
        k *= np.float32(bound)
        assert rows_that_are_safe(q, k, v).tolist() == [safe]


def test_float64_reaches_further_and_a_softcap_bounds_too():
    q, k, v = two_keys(300.0, [1, 1], np.float64)
    assert rows_that_are_safe(q, k, v).all()
    q, k, v = two_keys(1000.0, [1, 1])
    assert not rows_that_are_safe(q, k, v).any()
    assert rows_that_are_safe(q, k, v, Spec(scale=1, softcap=20.0)).all()
    q, k, v = two_keys(1.0, [1, 1])
    assert rows_that_are_safe(q, k, v, sink=3.0).all()
    assert not rows_that_are_safe(q, k, v, sink=60.0).any()


def mixed(n=700, d=8):
    rng = np.random.default_rng(1)
    return [rng.normal(size=(n, d)).astype(np.float32) for _ in range(3)]


def test_a_row_that_is_not_safe_leaves_the_others_alone():
    q, k, v = mixed()
    calm = compute.attention(q, k, v, algorithm="bounded")
    wild = q.copy()
    wild[13] *= 1e4
    out, safe = compute.attention(wild, k, v, algorithm="bounded"), np.arange(700) != 13
    assert (rows_that_are_safe(wild, k, v, Spec()) == safe).all()
    assert (out[safe] == calm[safe]).all()
    online = compute.attention(wild, k, v, algorithm="online")
    assert abs(out[13] - online[13]).max() <= 64 * U * 1e4 * abs(v).max()


@pytest.mark.parametrize("poison", [1e30, np.inf, np.nan])
@pytest.mark.parametrize("where", ["k", "v", "both"])
@pytest.mark.parametrize("spec", [Spec(causal=True), Spec(causal="bottom-right")])
def test_keys_that_are_hidden_change_no_bit(poison, where, spec):
    q, k, v = mixed()
    before = compute.attention(q, k, v, spec, return_lse=True, algorithm="bounded")
    k, v = k.copy(), v.copy()
    hidden = 550  # inside the second row block and the second key tile
    if where != "v":
        k[hidden:] = poison
    if where != "k":
        v[hidden:] = poison
    after = compute.attention(q, k, v, spec, return_lse=True, algorithm="bounded")
    for a, b in zip(before, after, strict=True):
        assert (a[:hidden] == b[:hidden]).all()


@pytest.mark.parametrize("poison", [1e30, -1e30, np.inf, np.nan])
@pytest.mark.parametrize("algorithm", ["shifted", "online", "bounded", "auto"])
def test_padding_and_masked_keys_change_no_bit(poison, algorithm):
    q, k, v = mixed()
    kb, vb = k.copy(), v.copy()
    kb[600:], vb[600:] = poison, poison
    grad = np.ones_like(v)
    for given in (
        {"key_lengths": 600},
        {"mask": np.arange(700) < 600},
        {"mask": np.where(np.arange(700) < 600, 0, -np.inf)},
    ):
        a = compute.attention(q, k, v, **given, return_lse=True, algorithm=algorithm)
        b = compute.attention(q, kb, vb, **given, return_lse=True, algorithm=algorithm)
        assert all((x == y).all() for x, y in zip(a, b, strict=True))
        ga = compute.attention_backward(grad, q, k, v, **given, algorithm=algorithm)
        gb = compute.attention_backward(grad, q, kb, vb, **given, algorithm=algorithm)
        for name in ("dq", "dk", "dv"):
            assert (getattr(ga, name) == getattr(gb, name)).all()
        assert not gb.dk[600:].any()
        assert not gb.dv[600:].any()


@pytest.mark.parametrize("algorithm", ["shifted", "online", "bounded"])
def test_what_is_not_finite_comes_through_where_it_is_seen(algorithm):
    q, k, v = mixed(6, 4)
    v[2] = [np.inf, -np.inf, np.nan, 1]
    v[4] = [-np.inf, -np.inf, 0, 1]
    out = compute.attention(q, k, v, Spec(causal=True), algorithm=algorithm)
    assert np.isfinite(out[:2]).all()
    assert (out[2:4, 0] == np.inf).all()
    assert np.isnan(out[4:, 0]).all()
    assert (out[2:, 1] == -np.inf).all()
    assert np.isnan(out[2:, 2]).all()
    assert np.isfinite(out[:, 3]).all()
    k[3] = np.nan
    out = compute.attention(q, k, v, Spec(causal=True), algorithm=algorithm)
    assert np.isnan(out[3:]).all()
    assert np.isfinite(out[:2]).all()
