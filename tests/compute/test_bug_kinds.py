"""Public faults of attention implementations as tiny inputs: each with its right value, on every algorithm.

Numbers in the names are those of the project's list of bug kinds. Scale 1, one head and d = 1 unless a case says
otherwise; `scores` are given directly (q = identity, k = transposed scores), `v` is one value a key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import compute
from compute import Eager, Flash, Rope, Spec, merge_states, round_to, tiled, tiled_backward
from compute.errors import InputError
from compute.rope import rotate, turn
from compute.tiles import Plan, plan

INF, NAN = np.inf, np.nan
F32_MIN = float(np.finfo(np.float32).min)
SAFE = ("shifted", "online", "bounded", "auto")
ONE = Spec(scale=1)
T, F = True, False


@pytest.fixture(params=SAFE)
def algorithm(request, monkeypatch):
    """Every algorithm that guards its exponentials; the tiled ones in tiles of two keys."""
    for module in (tiled, tiled_backward):
        monkeypatch.setattr(module, "plan", lambda p: Plan(rows=2, cols=2, band=4) if p.m < 100 else plan(p))
    return request.param


def arrays(scores: Any, v: Any, dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    scores = np.atleast_2d(np.asarray(scores, float))
    n = len(scores)
    q, k = (np.ones((1, 1)), scores.T) if n == 1 else (np.eye(n), scores.T)
    return q.astype(dtype), k.astype(dtype), np.asarray(v, float).reshape(len(scores[0]), -1).astype(dtype)


@dataclass
class Value:
    """scores (or n equal rows of zeros), v, and what must come out, row by row."""

    number: str
    scores: Any
    v: Any
    out: Any
    lse: Any = None
    spec: Spec = ONE
    dtype: Any = np.float64
    rel: float = 1e-8  # the list gives nine digits
    given: dict[str, Any] = field(default_factory=dict)


def zeros(n: int, m: int) -> Any:
    return np.zeros((n, m))


def bools(*rows: Any) -> Any:
    return np.array(rows, dtype=bool)


LATE, LAST = bools([F, F, T, T]), bools([F, F], [F, F], [T, T])
THIRD = np.array([[0, 0, -INF]], np.float32)
LEFT, RIGHT = Spec(scale=1, causal="top-left"), Spec(scale=1, causal="bottom-right")
VALUES = [
    Value("1", [[0, 2], [0, 2]], [3, 5], [0, 4.76159416], [-INF, None], given={"mask": bools([F, F], [T, T])}),
    Value("3", zeros(3, 2), [1, 4], [2.5, 2.5, 0], given={"mask": bools([T, T], [T, T], [F, F])}),
    Value("5", [0, 0, -200, -201], [0, 0, 1, 0], 0.731058579, dtype=np.float32, rel=1e-6, given={"mask": LATE}),
    Value("6", [-60000, -60001], [1, 0], 0.731058579),
    Value("7", [0, 12], [0, 1], 0, given={"mask": bools([T, F])}),
    Value("7, poison", [0, 12], [0, 1e30], 0, given={"mask": bools([T, F])}),
    Value("8", [-12000, 500], [1, 0], 1, given={"mask": bools([T, F])}),
    Value("9, as booleans", [0, 0], [5, 9], 0, -INF, given={"mask": bools([F, F])}),
    Value("9, a finite value is no mask", [0, 0], [5, 9], 9, given={"bias": np.array([[-INF, F32_MIN]])}),
    Value("11", [1, 1], [4, 8], 4, given={"bias": np.array([[0, -INF]])}),
    Value("12, -inf", [0, 0], [5, 9], 0, -INF, given={"mask": np.array([[-INF, -INF]])}),
    Value("13", [1, 1], [0, 1], 0.182425524, given={"mask": np.array([[0, -1.5]])}),
    Value("14", zeros(2, 2), [1, 5], [1, 1], given={"mask": bools([T, F])}),
    Value("15", zeros(3, 3), [2, 20, 200], [2, 11, 74], spec=LEFT, given={"bias": np.zeros((3, 3))}),
    Value("16, top-left", zeros(2, 4), [1, 2, 3, 4], [1, 1.5], spec=LEFT),
    Value("16, bottom-right", zeros(2, 4), [1, 2, 3, 4], [2, 2.5], spec=RIGHT),
    Value("17, top-left", zeros(3, 5), [2, 4, 6, 8, 10], [2, 3, 4], spec=LEFT),
    Value("17, bottom-right", zeros(3, 5), [2, 4, 6, 8, 10], [4, 5, 6], spec=RIGHT),
    Value("18, top-left", zeros(1, 4), [1, 3, 5, 7], 1, spec=LEFT),
    Value("18, bottom-right", zeros(1, 4), [1, 3, 5, 7], 4, spec=RIGHT),
    Value("19", zeros(2, 6), [1, 2, 3, NAN, 1e30, INF], [1.5, 2], spec=RIGHT, given={"key_lengths": 3}),
    Value("20", zeros(3, 2), [4, 8], [0, 4, 6], [-INF, 0, math.log(2)], spec=RIGHT),
    Value("21", zeros(4, 4), [1, 2, 4, 8], [1, 1.5, 3, 6], spec=LEFT.with_(window=(1, 0))),
    Value("22", zeros(6, 6), [0, 0, 0, 12, 0, 0], [0, 0, 0, 4, 4, 4], spec=Spec(scale=1, window=(2, 0))),
    Value("23", zeros(3, 3), [5, 6, 9], [5, 6, 9], spec=Spec(scale=1, window=(0, 0))),
    Value("25", zeros(1, 5), [1, 1, 1, 5, 7], 6, spec=RIGHT.with_(window=(1, None))),
    Value("31", [2, 0], [0, 1], 0.119202922),
    Value("32", [2, -2], [1, 0], 0.119202922, spec=Spec(scale=-0.5)),
    Value("37", [0.5, 2], [1, 9], 1, spec=ONE.with_(softcap=1.0), given={"bias": np.array([[0, -INF]])}),
    Value("38", [3, 0], [1, 0], 0.95241146, spec=ONE.with_(softcap=50.0)),
    Value("38, the capped score", [60], [1], 1, 41.6827304, spec=ONE.with_(softcap=50.0)),
    Value("39", [2, 3], [1, 1], 1),
    Value("40", [[0, 0], [math.log(3), 0]], [1, 1], [1, 1]),
    Value("41", [100, 99], [1, 0], 0.731058579, dtype=np.float32, rel=1e-6),
    Value("42", [2000, 1999], [1, 0], 0.731058579, dtype=np.float32, rel=1e-6),
    Value("43", [50, -50], [1, 0], 1, dtype=np.float32),
    Value("44", [8.0] * 32, [1] * 32, 1, 11.4657359, dtype=np.float16, rel=1e-7),
    Value("45", [1.0] * 3000, [1] * 3000, 1, dtype=np.float16),
    Value("46", [1.0] * 512, [1] + [0] * 511, 1 / 512, dtype=ml_dtypes.bfloat16, rel=0),
    Value("47", [3, 1], [1, 0], 0.843794734, given={"sink": 0.0}),
    Value("49", [0, -1e30], [1, 1e38], 1, dtype=np.float32, rel=0),
    Value("52", [0.0] * 40000, [2] * 40000, 2, dtype=np.float16),
    Value("57", [0, 0], [3, 6], 3, given={"sink": 0.0}),
    Value("58", [0, 0], [1, 0], 3.72008e-44, 100.0, dtype=np.float32, rel=0.05, given={"sink": np.float32(100)}),
    Value("59", zeros(3, 2), [2, 4], [0, 0, 2], [0, 0, math.log(3)], given={"sink": 0.0, "mask": LAST}),
    Value("63", zeros(1, 3), [0, 0, 1], 0.665240956, given={"alibi_slopes": np.array([1.0])}),
    Value("69", [0, 0, 0], [1, 3, INF], 2, given={"key_lengths": 2}),
    Value("70", [1, NAN], [4, 9], 4, given={"mask": bools([T, F])}),
    Value("92", zeros(5, 5), [16, 8, 4, 2, 1], [16, 12, 28 / 3, 14 / 3, 7 / 3], spec=LEFT.with_(window=(2, None))),
    Value("93", zeros(1, 2), [2, 4], 3, math.log(2)),
    Value("93, 2", zeros(1, 2), [2, 4], 3, math.log(2), spec=ONE.with_(window=(2, 2))),
    Value("94", [0, 0], [1, 3], 1, given={"mask": bools([T, F])}),
    Value("95", [0, 1], [1, 0], 0.268941421, 2.31326169, given={"bias": np.array([[1.0, 1.0]])}),
    Value("96", zeros(2, 2), [2, 6], [2, 4], spec=LEFT),
    Value("97", [3, 0, 7], [1, 0, 5], 0.952574127, dtype=np.float32, rel=1e-6, given={"mask": THIRD}),
    Value("98", [0, 0, 1, 0], [0, 0, 1, 0], 0.731058579, given={"mask": np.array([[-INF, -INF, 0, 0]])}),
    Value("101", [100, 99], [1, 0], 0.731058579, dtype=np.float32, rel=1e-6),
    Value("105", [0, 0], [4, 9], 4, given={"bias": np.array([[0.5, -INF]])}),
    Value("105, split", [0, 0], [4, 9], 4, given={"bias": np.array([[0.5, 0.0]]), "mask": bools([T, F])}),
    Value("106", zeros(2, 6), [0, 0, 0, 0, 2, 8], [5, 8], [math.log(2), 0], spec=Spec(scale=1, window=(0, 1), past=4)),
    Value("108", [0, 0], [1, 3], 1, given={"mask": bools([T, F])}),
]  # fmt: skip


@pytest.mark.parametrize("case", VALUES, ids=lambda c: c.number)
def test_value(case, algorithm):
    q, k, v = arrays(case.scores, case.v, case.dtype)
    out, lse = compute.attention(q, k, v, case.spec, **case.given, return_lse=True, algorithm=algorithm)
    # A float16 result is rounded once more; the list's numbers carry nine digits.
    rel = max(case.rel, float(ml_dtypes.finfo(case.dtype).eps) if case.dtype != np.float64 and case.rel else 0)
    np.testing.assert_allclose(out[:, 0].astype(float), np.broadcast_to(case.out, len(out)), rtol=rel, atol=0)
    wants = np.broadcast_to(np.asarray(case.lse, dtype=object), len(lse)) if case.lse is not None else []
    for got, want in zip(lse, wants, strict=False):
        if want is not None:
            np.testing.assert_allclose(got, float(want), rtol=max(case.rel, 1e-15), atol=1e-15)
    # Output finite exactly where the log-sum-exp is, or an empty row's 0 (kinds 12, 106).
    assert np.isfinite(out.astype(float)).all()


# -- rows, masks, sentinels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["zero", "mean", "nan"])
def test_1_any_convention_leaves_other_rows_and_all_gradients_alone(rule, algorithm):
    q, k, v = arrays([[0, 2], [0, 2]], [3, 5])
    mask, spec = bools([F, F], [T, T]), ONE.with_(empty_row=rule)
    out = compute.attention(q, k, v, spec, mask=mask, algorithm=algorithm)
    assert out[1, 0] == pytest.approx(4.76159416, rel=1e-8)
    assert {"zero": out[0, 0] == 0, "mean": out[0, 0] == 4, "nan": np.isnan(out[0, 0])}[rule]
    g = compute.attention_backward(np.ones((2, 1)), q, k, v, spec, mask=mask, algorithm=algorithm)
    assert all(np.isfinite(x).all() for x in (g.dq, g.dk, g.dv))
    with pytest.raises(InputError, match="empty_row"):
        compute.attention(q, k, v, spec.with_(empty_row="error"), mask=mask, algorithm=algorithm)


def test_2_a_row_of_the_lowest_number_is_added_not_read_as_empty(algorithm):
    q, k, v = arrays([1, 2], [10, 20], np.float32)
    lowest = np.full((1, 2), F32_MIN, np.float32)
    for name in ("mask", "bias"):
        out, lse = compute.attention(q, k, v, ONE, **{name: lowest}, return_lse=True, algorithm=algorithm)
        assert out[0, 0] == 15  # float32 add-then-softmax: both scores are absorbed
        assert lse[0] == np.float32(F32_MIN)


def test_3_rows_are_the_same_bits_with_an_empty_row_beside_them(algorithm):
    q, k, v = arrays(np.random.default_rng(0).normal(size=(3, 2)), [1, 4])
    mask = bools([T, T], [T, T], [F, F])
    whole = compute.attention(q, k, v, ONE, mask=mask, algorithm=algorithm)
    assert (whole[:2] == compute.attention(q[:2], k, v, ONE, mask=mask[:2], algorithm=algorithm)).all()
    assert whole[2, 0] == 0


def test_4_an_empty_item_of_a_batch(algorithm):
    v = np.broadcast_to(np.array([[2.0], [6.0]]), (2, 1, 2, 1))
    out = compute.attention(
        np.zeros((2, 1, 1, 1)),
        np.zeros((2, 1, 2, 1)),
        v,
        mask=bools([T, T], [F, F])[:, None, None],
        algorithm=algorithm,
    )
    assert out.ravel().tolist() == [4, 0]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_10_100_lowest_numbers_added_are_never_nan(dtype, algorithm):
    lowest = np.full((1, 2), ml_dtypes.finfo(dtype).min, dtype)
    q, k, v = arrays([-20, -30], [1, 3], dtype)
    out = compute.attention(q, k, v, ONE, mask=lowest, bias=lowest, algorithm=algorithm)
    # float16's lowest number leaves float32 scores their difference; the others absorb it.
    want = 1 + 2 / (1 + math.exp(10)) if dtype == np.float16 else 2
    assert float(out[0, 0]) == pytest.approx(want, rel=float(ml_dtypes.finfo(dtype).eps))
    assert np.isfinite(float(compute.attention(q, k, v, ONE, mask=lowest, algorithm=algorithm)[0, 0]))


def test_12_the_same_convention_on_each_path(algorithm):
    q, k, v = arrays([0, 0], [4, 8], np.float32)
    for row, want in [([-INF, -INF], 0), ([F32_MIN, F32_MIN], 6)]:
        for name in ("mask", "bias"):
            given = {name: np.array([row], np.float32)}
            assert compute.attention(q, k, v, ONE, **given, algorithm=algorithm)[0, 0] == want


def test_24_what_leaves_the_window_leaves_no_trace(algorithm):
    spec = Spec(scale=1, window=(2, None), causal=True)
    q, k, v = arrays(np.random.default_rng(1).normal(size=(6, 6)), np.arange(6.0))
    before = compute.attention(q, k, v, spec, algorithm=algorithm)
    v[0] = 1e6
    assert compute.attention(q, k, v, spec, algorithm=algorithm)[5, 0] == before[5, 0]
    q, k, v = arrays(zeros(6, 6), np.zeros(6))
    lse = compute.attention(q, k, v, spec, return_lse=True, algorithm=algorithm)[1]
    np.testing.assert_allclose(np.exp(lse), [1, 2, 3, 3, 3, 3], rtol=1e-15)


def test_25_decode_is_the_last_row_of_the_whole_call(algorithm):
    spec = Spec(scale=1, window=(1, None), causal="bottom-right")
    q, k, v = arrays(np.random.default_rng(2).normal(size=(5, 5)), np.arange(5.0))
    whole = compute.attention(q, k, v, spec, algorithm=algorithm)
    one = compute.attention(q[4:], k, v, spec, algorithm=algorithm)
    assert abs(one[0] - whole[4]) <= 16 * 2.0**-53 * 4  # both within a dozen roundings of values up to 4


def test_93_minus_one_is_refused_not_read_as_a_bound():
    with pytest.raises(InputError, match="window"):
        Spec(window=(-1, -1))


def test_94_108_masks_that_differ_give_results_that_differ(algorithm):
    q, k, v = arrays([0, 0], [1, 3])
    outs = [compute.attention(q, k, v, mask=bools(m), algorithm=algorithm)[0, 0] for m in ([T, F], [F, T], [F, F])]
    assert outs == [1, 3, 0]


def test_48_a_score_of_inf_is_outside_the_domain(algorithm):
    q, k, v = arrays([0, 0], [1, 3])
    for name in ("mask", "bias"):
        with pytest.raises(InputError, match="outside the domain"):
            compute.attention(q, k, v, **{name: np.array([[INF, 0]])}, algorithm=algorithm)
    q, k, v = arrays([INF, 0], [1, 3])
    assert np.isnan(compute.attention(q, k, v, ONE, algorithm=algorithm)).all()  # IEEE, not a limit made up


def test_99_a_sentinel_that_overflows_its_format_is_an_empty_row_not_nan(algorithm):
    with np.errstate(over="ignore"):
        sentinel = np.full((1, 2), -1e10).astype(np.float16)
    q, k, v = arrays([1, 2], [3, 4], np.float16)
    assert compute.attention(q, k, v, ONE, mask=sentinel, algorithm=algorithm)[0, 0] == 0


# -- heads, layouts, scales -----------------------------------------------------------------------------------------


def test_26_query_heads_read_key_value_heads_in_blocks(algorithm):
    v = np.array([[[1.0]], [[2.0]]])
    out = compute.attention(np.zeros((4, 1, 1)), np.zeros((2, 1, 1)), v, algorithm=algorithm)
    assert out.ravel().tolist() == [1, 1, 2, 2]


def test_27_groups_do_not_repeat_along_the_sequence(algorithm):
    v = np.array([1.0, 2, 4]).reshape(1, 3, 1)
    out = compute.attention(np.zeros((2, 3, 1)), np.zeros((1, 3, 1)), v, LEFT, algorithm=algorithm)
    np.testing.assert_allclose(out[..., 0], [[1, 1.5, 7 / 3]] * 2, rtol=1e-15)


def test_28_heads_are_alone(algorithm):
    rng = np.random.default_rng(3)
    q, k = rng.normal(size=(2, 1, 3, 3, 2))
    v = np.ones((1, 3, 3, 1))
    v[:, 0] = 0
    assert (compute.attention(q, k, v, algorithm=algorithm)[:, 0] == 0).all()


def test_29_the_scale_is_of_the_head_size(algorithm):
    q = np.array([[[2.0, 0]], [[0, 0]]])
    k = np.array([[[2.0, 0], [0, 0]], [[0, 0], [0, 0]]])
    v = np.broadcast_to(np.array([[1.0], [0]]), (2, 2, 1))
    out = compute.attention(q, k, v, algorithm=algorithm)
    np.testing.assert_allclose(out.ravel(), [0.944192781, 0.5], rtol=1e-8)


def test_30_another_value_size(algorithm):
    out = compute.attention(
        np.ones((1, 2)), np.array([[1.0, 1], [0, 0]]), np.array([[1.0, 2, 3], [0, 0, 0]]), algorithm=algorithm
    )
    np.testing.assert_allclose(out[0], [0.804429683, 1.60885937, 2.41328905], rtol=1e-8)


def test_33_a_head_size_that_is_no_power_of_two(algorithm):
    k = np.array([[1.0, 1, 1], [0, 0, 0]])
    out = compute.attention(np.full((1, 3), 3.0), k, np.array([[1.0], [0]]), algorithm=algorithm)
    assert out[0, 0] == pytest.approx(0.994492668, rel=1e-8)


def test_34_36_float16_scores_beyond_its_range(algorithm):
    k = np.concatenate([np.full((1, 16), 64), np.full((1, 16), 60)]).astype(np.float16)
    v = np.array([[1], [0]], np.float16)
    assert compute.attention(np.full((1, 16), 64, np.float16), k, v, algorithm=algorithm)[0, 0] == 1
    q, k = np.array([[250, 1]], np.float16), np.array([[-264, 0], [-264, -64]], np.float16)
    out = compute.attention(q, k, v, Spec(scale=0.125), algorithm=algorithm)
    assert float(out[0, 0]) == pytest.approx(0.99966465, rel=2.0**-11)


def test_35_a_power_of_two_scale_commutes_to_the_bit(algorithm):
    rng = np.random.default_rng(4)
    q, k, v = rng.normal(size=(3, 9, 64)).astype(np.float32)
    a = compute.attention(q, k, v, Spec(scale=0.125), algorithm=algorithm)
    b = compute.attention(q * np.float32(0.125), k, v, ONE, algorithm=algorithm)
    assert (a == b).all()


def test_51_the_score_of_a_float16_pair(algorithm):
    x = np.array([[1.5, 0.5]], np.float16)
    lse = compute.attention(x, x, x, ONE, return_lse=True, algorithm=algorithm)[1][0]
    assert lse == pytest.approx(2.5, rel=4 * 2.0**-24)  # exact, but for a change of base in "bounded"


def test_80_81_strides(algorithm):
    v = np.arange(6.0).reshape(2, 3).T
    out = compute.attention(np.zeros((1, 2)), np.zeros((3, 2)), v, algorithm=algorithm)
    np.testing.assert_allclose(out[0], [1, 4], rtol=8 * 2.0**-53)
    rng = np.random.default_rng(5)
    q, k, v = rng.normal(size=(3, 4, 7, 8))
    views = [
        lambda x: x[..., ::2],
        lambda x: x[..., ::-1],
        lambda x: x[..., ::-1, :],
        lambda x: x[:, ::3],
        lambda x: np.swapaxes(np.swapaxes(x, 0, 1).copy(), 0, 1),
    ]
    for view in views:
        args = [view(x) for x in (q, k, v)]
        copied = [x.copy() for x in args]
        a, b = compute.attention(*args, algorithm=algorithm), compute.attention(*copied, algorithm=algorithm)
        # BLAS may add in another order for other strides: 8 products a score, 7 keys, scores below 32.
        assert abs(a - b).max() <= 2 * (8 * 32 + 7) * 2.0**-53 * abs(v).max()


def test_82_83_lengths_beyond_16_and_32_bits_of_a_mask():
    n = 70_000  # row times stride passes 2³² at row 61,356
    line = np.zeros(2 * n - 1, bool)
    line[n - 1] = True
    mask = np.lib.stride_tricks.as_strided(line[n - 1 :], (n, n), (-1, 1), writeable=False)
    v = np.arange(n, dtype=np.float64)[:, None]
    zero = np.zeros((n, 1))
    out = compute.attention(zero, zero, v, Spec(window=(1, 1)), mask=mask)
    assert (out == v).all()
    m = 32_769
    for fill in (0.0, 1.0):
        got = compute.attention(np.zeros((3, 1)), np.zeros((m, 1)), np.full((m, 1), fill), algorithm="bounded")
        assert (got == fill).all()


def test_84_positions_beyond_32_bits(algorithm):
    q, k, v = arrays(np.random.default_rng(12).normal(size=(3, 4)), np.arange(4.0))
    far = 2**33
    causal = compute.attention(q, k, v, Spec(causal=True, past=far), algorithm=algorithm)
    assert np.array_equal(causal, compute.attention(q, k, v, Spec(), algorithm=algorithm))
    out, lse = compute.attention(q, k, v, Spec(window=(5, 5), past=far), return_lse=True, algorithm=algorithm)
    assert not out.any()
    assert (lse == -INF).all()


def test_107_a_mask_with_a_head_axis_of_one_is_for_every_head(algorithm):
    mask = bools([T, F]).reshape(1, 1, 1, 2)
    q, k, v = np.zeros((1, 3, 1, 1)), np.zeros((1, 3, 2, 1)), np.tile(np.array([[1.0], [3]]), (1, 3, 1, 1))
    assert (compute.attention(q, k, v, mask=mask, algorithm=algorithm) == 1).all()
    written = np.broadcast_to(mask, (1, 3, 1, 2)).copy()
    assert (compute.attention(q, k, v, mask=written, algorithm=algorithm) == 1).all()


# -- underflow, empty sets, merges, sinks, slopes -------------------------------------------------------------------


def test_50_a_subnormal_weight(algorithm):
    q, k, v = arrays([0, -100], [0, 1], np.float32)
    out = compute.attention(q, k, v, ONE, algorithm=algorithm)[0, 0]
    assert abs(out - 3.78351e-44) <= 1.175e-38  # 0 is allowed where the device flushes


def test_53_no_keys(algorithm):
    out, lse = compute.attention(
        np.ones((2, 3)), np.ones((0, 3)), np.ones((0, 4)), return_lse=True, algorithm=algorithm
    )
    assert (out == 0).all()
    assert (lse == -INF).all()


def test_54_to_56_merging_states():
    one, nought = np.array([[1.0]]), np.array([[0.0]])
    for base in (math.e, 2.0):
        lse = np.log(np.array([[4.0], [1.0]])) / math.log(base)
        assert merge_states(one, lse[0], nought, lse[1], base=base)[0][0, 0] == pytest.approx(0.8, rel=1e-15)
    none = np.array([-INF])
    out, lse = merge_states(nought, none, nought, none)
    assert out[0, 0] == 0
    assert lse[0] == -INF
    five = np.array([[5.0]])
    for args in [(nought, none, five, np.array([1.0])), (five, np.array([1.0]), np.array([[NAN]]), none)]:
        out, lse = merge_states(*args)
        assert out[0, 0] == 5
        assert lse[0] == 1


def test_merging_is_the_whole_call_in_any_order(algorithm):
    rng = np.random.default_rng(6)
    q, k, v = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 9, 3))
    spec = Spec(lse_base=2.0)
    want, want_lse = compute.attention(q, k, v, spec, return_lse=True, algorithm=algorithm)
    parts = [
        compute.attention(q, k[:, a:b], v[:, a:b], spec, return_lse=True, algorithm=algorithm)
        for a, b in [(0, 2), (2, 2), (2, 9)]
    ]
    for order in [(0, 1, 2), (2, 0, 1), (1, 2, 0)]:
        out, lse = parts[order[0]]
        for i in order[1:]:
            out, lse = merge_states(out, lse, *parts[i], base=2.0)
        # Each state is within (9 + |logits|) roundings, each merge a handful more.
        assert abs(out - want).max() < 100 * 2.0**-53 * abs(v).max()
        assert abs(lse - want_lse).max() < 100 * 2.0**-53


def test_62_slopes():
    assert compute.standard_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    want = [*(2.0**-i for i in range(1, 9)), 0.7071068, 0.3535534, 0.1767767, 0.08838835]
    np.testing.assert_allclose(compute.standard_slopes(12), want, rtol=1e-7)


def test_64_a_shift_of_positions_cancels(algorithm):
    rng = np.random.default_rng(7)
    q, k, v = rng.normal(size=(3, 1, 5, 4))
    slopes = np.array([0.25])
    a = compute.attention(q, k, v, Spec(past=0), alibi_slopes=slopes, algorithm=algorithm)
    b = compute.attention(q, k, v, Spec(past=3000), alibi_slopes=slopes, algorithm=algorithm)
    assert abs(a - b).max() <= 2 * 8 * 3000 * 0.25 * 2.0**-53 * abs(v).max()  # logits near 750, a few roundings each


# -- RoPE -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_65_66_angles_keep_their_bits(dtype):
    # Frequencies 1 and 1/2: base 4, four channels.
    x = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], np.float32).astype(dtype).astype(np.float32)
    rope = Rope("half", base=4.0)
    at_3001, at_777 = (np.array([rotate(np, row[None], p, rope)[0] for row in x]) for p in (3001, 777))
    assert at_3001[1, 1] == pytest.approx(0.379733231, rel=1e-6)
    assert at_777[0, 0] == pytest.approx(-0.517718221, rel=1e-6)


def test_67_68_layouts():
    x = np.array([[1.0, 2.0]])
    assert turn(np, x, np.array([1.0, 0.0]), np.array([0.0, 1.0]), "half").tolist() == [[1, 1]]
    x = np.array([[1.0, 2, 3, 4]])
    half = turn(np, x, np.array([0.0, 1, 0, 1]), np.array([1.0, 0, 1, 0]), "half")
    pairs = turn(np, x, np.array([0.0, 0, 1, 1]), np.array([1.0, 1, 0, 0]), "interleaved")
    assert half.tolist() == [[-3, 2, 1, 4]]
    assert pairs.tolist() == [[-2, 1, 3, 4]]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_68_scores_depend_on_the_distance_alone(layout, algorithm):
    rng = np.random.default_rng(8)
    q, k, v = rng.normal(size=(3, 6, 4))
    outs = [
        compute.attention(q, k, v, Spec(rope=Rope(layout, 100.0, s, s)), algorithm=algorithm) for s in (0, 1, 12345)
    ]
    for other in outs[1:]:
        # Angles near 12345 are off by 12345 roundings at most, scores of size 10 follow.
        assert abs(outs[0] - other).max() <= 4 * 12345 * 2.0**-53 * 10 * abs(v).max()


# -- gradients ------------------------------------------------------------------------------------------------------


def back(scores, v, grad=1.0, spec=ONE, dtype=np.float64, algorithm="auto", **given):
    q, k, v = arrays(scores, v, dtype)
    grad = np.broadcast_to(np.asarray(grad, float).reshape(-1, 1), (len(q), v.shape[1])).astype(dtype)
    return compute.attention_backward(grad, q, k, v, spec, **given, algorithm=algorithm)


def test_60_61_dropout(algorithm):
    g = back([0], [1], spec=ONE.with_(dropout=0.25), dropout_mask=bools([T]), algorithm=algorithm)
    assert g.dv[0, 0] == pytest.approx(4 / 3, rel=1e-15)
    q, k, v = arrays([0, 1], [1, 2])
    evaluated = [compute.attention(q, k, v, Spec(dropout=p), algorithm=algorithm) for p in (0.9, 0.9, 0.0, None)]
    assert len({x[0, 0] for x in evaluated}) == 1


def test_71_padding_rows_poison_nothing(algorithm):
    q, k, v = np.array([[1.0], [NAN]]), np.array([[0.0]]), np.array([[1.0]])
    grad = np.array([[1.0], [NAN]])
    g = compute.attention_backward(grad, q, k, v, ONE, mask=bools([T], [F]), algorithm=algorithm)
    assert g.dk[0, 0] == 0
    assert g.dv[0, 0] == 1
    assert (g.dq == 0).all()


def test_72_101_the_softmax_gradient(algorithm):
    g = back([1, 0], [1, 0], algorithm=algorithm, bias=np.zeros((1, 2)))
    np.testing.assert_allclose(g.dbias[0], [0.196611933, -0.196611933], rtol=1e-8)
    np.testing.assert_allclose(g.dq, [[0.196611933]], rtol=1e-8)
    np.testing.assert_allclose(g.dk[:, 0], [0.196611933, -0.196611933], rtol=1e-8)
    np.testing.assert_allclose(g.dv[:, 0], [0.731058579, 0.268941421], rtol=1e-8)


def test_73_a_float32_bias_with_bfloat16_inputs(algorithm):
    g = back([2, 0], [1, 0], dtype=ml_dtypes.bfloat16, bias=np.array([[0, 2]], np.float32), algorithm=algorithm)
    assert g.dbias.dtype == np.float32
    assert g.dbias.tolist() == [[0.25, -0.25]]


def test_74_a_broadcast_bias_collects_every_row(algorithm):
    g = back(zeros(2, 2), [1, 0], grad=[1, 3], bias=np.zeros((1, 2)), algorithm=algorithm)
    assert g.dbias.tolist() == [[1, -1]]


def test_75_large_equal_inputs(algorithm):
    x = np.full((3, 2), 1000.0)
    g = compute.attention_backward(np.ones((3, 2)), x, x, x, algorithm=algorithm)
    # dS is 0 but for rounding: P (dP − D) with dP = 2000 off by a few roundings; dQ = τ Σ dS·1000.
    slack = 16 * 2.0**-53 * 2000 * 1000
    assert abs(g.dq).max() <= slack
    assert abs(g.dk).max() <= slack
    np.testing.assert_allclose(g.dv, 1, rtol=8 * 2.0**-53 * 2e6)


def test_76_gradients_of_very_low_rows_and_of_padding(algorithm):
    for dtype, rel in ((np.float64, 1e-8), (np.float32, 2e-5)):  # float32 scores near 100: 100 roundings of 6e-8
        g = back(
            [-100, -101, 0, 0],
            [1, 0, NAN, INF],
            dtype=dtype,
            key_lengths=2,
            bias=np.zeros((1, 4), dtype),
            algorithm=algorithm,
        )
        np.testing.assert_allclose(g.dbias[0], [0.196611933, -0.196611933, 0, 0], rtol=rel)
        assert (g.dk[2:] == 0).all()
        assert (g.dv[2:] == 0).all()


def test_77_strides_of_the_output_gradient(algorithm):
    rng = np.random.default_rng(9)
    q, k, v = rng.normal(size=(3, 2, 5, 4))
    wide = rng.normal(size=(2, 4, 5))
    for grad in (
        wide.swapaxes(1, 2),
        np.broadcast_to(rng.normal(size=(2, 1, 1)), (2, 5, 4)),
        wide.swapaxes(1, 2)[:, ::-1],
    ):
        a = compute.attention_backward(grad, q, k, v, algorithm=algorithm)
        b = compute.attention_backward(grad.copy(), q, k, v, algorithm=algorithm)
        # The same sums over other strides: BLAS may order them differently, 30 terms of size 10.
        for name in ("dq", "dk", "dv"):
            assert abs(getattr(a, name) - getattr(b, name)).max() <= 60 * 2.0**-53 * 30


def test_78_the_same_bits_every_time(algorithm):
    rng = np.random.default_rng(10)
    q, k, v, grad = rng.normal(size=(4, 3, 9, 4))
    first = compute.attention_backward(grad, q, k, v, algorithm=algorithm)
    for _ in range(9):
        again = compute.attention_backward(grad, q, k, v, algorithm=algorithm)
        assert all((getattr(first, x) == getattr(again, x)).all() for x in ("dq", "dk", "dv"))


@pytest.mark.parametrize("n", [127, 128, 129])
@pytest.mark.parametrize("name", SAFE)
def test_79_a_masked_key_more_changes_nothing(n, name):
    rng = np.random.default_rng(n)
    q, k, v, grad = rng.normal(size=(4, n, 4))
    more = [np.concatenate([x, np.full((1, 4), bad)]) for x, bad in ((k, NAN), (v, INF))]
    mask = np.where(np.arange(n + 1) < n, 0, -INF)[None]
    a, b = compute.attention(q, k, v, algorithm=name), compute.attention(q, *more, mask=mask, algorithm=name)
    slack = 4 * (n + 30) * 2.0**-53
    assert abs(a - b).max() <= slack * abs(v).max()
    ga = compute.attention_backward(grad, q, k, v, algorithm=name)
    gb = compute.attention_backward(grad, q, *more, mask=mask, algorithm=name)
    for x, y in ((ga.dq, gb.dq), (ga.dk, gb.dk[:n]), (ga.dv, gb.dv[:n])):
        assert abs(x - y).max() <= slack * 64 * n
    assert not gb.dk[n].any()
    assert not gb.dv[n].any()


def test_102_the_softcap_gradient(algorithm):
    g = back([2, 0], [1, 0], spec=ONE.with_(softcap=2.0), algorithm=algorithm)
    assert g.dk[0, 0] == pytest.approx(0.0617169881, rel=1e-8)


def test_103_the_gradient_through_the_log_sum_exp(algorithm):
    g = back([0, 0], [1, 0], grad_lse=np.ones(1), algorithm=algorithm)
    np.testing.assert_allclose(g.dk[:, 0], [0.75, 0.25], rtol=8 * 2.0**-53)


def test_104_packed_gradients_are_each_sequence_alone(algorithm):
    one, starts = np.ones((4, 1, 1)), np.array([0, 2, 4])
    grad = np.array([1.0, 1, 0, 0]).reshape(4, 1, 1)
    g = compute.packed_attention_backward(grad, one, one, one, starts, starts, algorithm=algorithm)
    np.testing.assert_allclose(g.dv[:2].ravel(), 1, rtol=8 * 2.0**-53)
    assert not g.dv[2:].any()


def test_87_packed_sequences_of_length_zero(algorithm):
    q, v = np.zeros((2, 1, 1)), np.arange(1.0, 9).reshape(8, 1, 1)
    out = compute.packed_attention(
        q, np.zeros((8, 1, 1)), v, np.array([0, 0, 1, 1, 2]), np.array([0, 0, 3, 3, 8]), algorithm=algorithm
    )
    assert out.ravel().tolist() == [2, 6]


# -- fp8, by emulation ----------------------------------------------------------------------------------------------


def test_85_86_fp8_weights_and_small_inputs():
    scores = np.array([[0.0] + [-11 * math.log(2)] * 2048])
    q, k, v = arrays(scores, [0] + [1] * 2048)
    assert compute.attention(q, k, v, ONE)[0, 0] == pytest.approx(0.5, rel=1e-13)
    # The fault itself, emulated: normalised weights of 2⁻¹² vanish in e4m3, those relative to the maximum don't here.
    lost = compute.emulated_attention(q, k, v, ONE, Eager(weights="e4m3"))
    assert lost[0, 0] == 0
    assert compute.emulated_attention(q, k, v, ONE, Flash(weights="e5m2"))[0, 0] == pytest.approx(0.5, rel=1e-5)
    assert float(round_to(np.array([0.01]), "e4m3")[0]) == pytest.approx(0.00976562, rel=1e-6)


def test_45_46_52_sums_that_stick_and_overflow_are_reproduced_by_emulation():
    q, k, v = np.zeros((1, 1)), np.zeros((3000, 1)), np.ones((3000, 1))
    naive = Eager(scores="fp16", weights="fp16", output="fp16", accumulate="fp16")
    _, lse = compute.emulated_attention(q, k, v, algorithm=naive, return_lse=True)
    assert lse[0] == round_to(np.array([math.log(2048)]), "fp16")[0]  # weights of 1/2048, whose sum is 1.46484375
    stuck = Eager(scores="bf16", weights="bf16", output="bf16", accumulate="bf16")
    _, lse = compute.emulated_attention(q, k[:512], v[:512], algorithm=stuck, return_lse=True)
    assert lse[0] == round_to(np.array([math.log(256)]), "bf16")[0]
    flash = Flash(weights="fp16", accumulate="fp16", output="fp16", block=64)
    out = compute.emulated_attention(q, np.zeros((4000, 1)), np.full((4000, 1), 20.0), algorithm=flash)
    assert not np.isfinite(out[0, 0])  # 80000 > 65504
