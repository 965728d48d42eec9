"""Layouts, cache, formats, emulation and blocks: the same meaning as the plain call; gradients by differences."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compute
from compute import Eager, Flash, Rope, Spec, round_to
from compute.errors import InputError
from compute.formats import in_order, product, scaled, split_bf16
from compute.roundings import limits

U = 2.0**-53


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# -- layouts --------------------------------------------------------------------------------------------------------


def test_heads_last_is_a_view(rng):
    q, k, v = rng.normal(size=(3, 2, 5, 3, 4))  # (batch, n, h, d)
    out = compute.attention(*map(compute.swap_heads, (q, k, v)))
    assert np.shares_memory(compute.swap_heads(q), q)
    for b in range(2):
        for h in range(3):
            alone = compute.attention(q[b, :, h], k[b, :, h], v[b, :, h])
            assert abs(compute.swap_heads(out)[b, :, h] - alone).max() <= 100 * U * abs(v).max()


@pytest.mark.parametrize("spec", [Spec(), Spec(causal="bottom-right", window=(2, None)), Spec(rope=Rope())])
def test_packed_is_each_sequence_alone(rng, spec):
    lengths_q, lengths_k = [3, 0, 1, 5], [4, 2, 0, 5]
    q_starts, k_starts = np.cumsum([0, *lengths_q]), np.cumsum([0, *lengths_k])
    q = rng.normal(size=(9, 4, 6))
    k, v = rng.normal(size=(11, 2, 6)), rng.normal(size=(11, 2, 3))
    sink, grad, grad_lse = rng.normal(size=4), rng.normal(size=(9, 4, 3)), rng.normal(size=(9, 4))
    out, lse = compute.packed_attention(q, k, v, q_starts, k_starts, spec, sink=sink, return_lse=True)
    g = compute.packed_attention_backward(grad, q, k, v, q_starts, k_starts, spec, sink=sink, grad_lse=grad_lse)
    dsink = 0
    for s in range(4):
        rows, cols = slice(*q_starts[s : s + 2]), slice(*k_starts[s : s + 2])
        first = lambda x: np.swapaxes(x, 0, 1)  # noqa: E731
        args = first(q[rows]), first(k[cols]), first(v[cols]), spec
        o, l = compute.attention(*args, sink=sink, return_lse=True)
        assert (first(o) == out[rows]).all()
        assert (lse[rows] == l.T).all()
        alone = compute.attention_backward(first(grad[rows]), *args, sink=sink, grad_lse=grad_lse[rows].T)
        assert (first(alone.dq) == g.dq[rows]).all()
        assert (first(alone.dk) == g.dk[cols]).all()
        assert (first(alone.dv) == g.dv[cols]).all()
        dsink = dsink + alone.dsink
    assert (dsink == g.dsink).all()


PAIR_SHAPES = [(4, 9, 11), (9, 11), (4, 1, 11), (1, 9, 1), (11,), (1, 1, 1), (4, 1, 1)]


def written_out(x, rows, cols, h=4, t_q=9, t_k=11):
    """The block of one sequence, by NumPy's own broadcasting of the whole array."""
    return np.broadcast_to(x, (h, t_q, t_k))[:, rows, cols]


@pytest.mark.parametrize("shape", PAIR_SHAPES, ids=str)
@pytest.mark.parametrize("listed", [False, True])
def test_packed_masks_and_biases_are_each_sequences_own(rng, shape, listed):
    q_starts, k_starts = np.cumsum([0, 3, 0, 1, 5]), np.cumsum([0, 4, 2, 0, 5])
    q, k, v = rng.normal(size=(9, 4, 6)), rng.normal(size=(11, 2, 6)), rng.normal(size=(11, 2, 3))
    grad, slopes = rng.normal(size=(9, 4, 3)), rng.random((4, 4))
    bias, mask = rng.normal(size=shape), rng.random(shape) < 0.7
    drop, spec = rng.random(shape) * 2, Spec(causal="bottom-right")
    spans = [(slice(*q_starts[s : s + 2]), slice(*k_starts[s : s + 2])) for s in range(4)]
    if shape == (4, 9, 11):  # what lies between two sequences is never read
        apart = np.ones((9, 11), bool)
        for rows, cols in spans:
            apart[rows, cols] = False
        bias[:, apart] = np.nan
    given = {"mask": mask, "bias": bias, "dropout_mask": drop}
    if listed:
        given = {name: [written_out(x, *span) for span in spans] for name, x in given.items()}
    common = {"alibi_slopes": slopes, **given}
    out, lse = compute.packed_attention(q, k, v, q_starts, k_starts, spec, **common, return_lse=True)
    g = compute.packed_attention_backward(grad, q, k, v, q_starts, k_starts, spec, **common)
    dbias = np.zeros((4, 9, 11))
    for s, (rows, cols) in enumerate(spans):
        args = *(np.swapaxes(x, 0, 1) for x in (q[rows], k[cols], v[cols])), spec
        own = {"mask": written_out(mask, rows, cols), "bias": written_out(bias, rows, cols)}
        own |= {"dropout_mask": written_out(drop, rows, cols), "alibi_slopes": slopes[s]}
        o, l = compute.attention(*args, **own, return_lse=True)
        assert abs(np.swapaxes(o, 0, 1) - out[rows]).max(initial=0) <= 100 * U * abs(v).max()
        assert np.isfinite(lse[rows]).tolist() == np.isfinite(l.T).tolist()
        alone = compute.attention_backward(np.swapaxes(grad[rows], 0, 1), *args, **own)
        assert abs(np.swapaxes(alone.dq, 0, 1) - g.dq[rows]).max(initial=0) <= 1000 * U
        assert abs(np.swapaxes(alone.dv, 0, 1) - g.dv[cols]).max(initial=0) <= 1000 * U
        dbias[:, rows, cols] += alone.dbias
        if listed:
            assert abs(g.dbias[s] - alone.dbias).max(initial=0) <= 1000 * U
    if not listed:
        axes = tuple(i for i, size in enumerate((1,) * (3 - len(shape)) + shape) if size == 1)
        assert g.dbias.shape == shape
        assert abs(g.dbias - dbias.sum(axis=axes, keepdims=True).reshape(shape)).max() <= 1e4 * U


@pytest.mark.parametrize("shape", [(3, 4, 2, 12), (4, 1, 12), (3, 1, 1, 12), (12,), (2, 1), (3, 1, 2, 1)], ids=str)
@pytest.mark.parametrize("listed", [False, True])
def test_paged_masks_and_biases_count_a_sequences_own_keys(rng, shape, listed):
    pages_k, pages_v = rng.normal(size=(7, 4, 2, 6)), rng.normal(size=(7, 4, 2, 3))
    table, lengths = np.array([[5, 0, 3], [1, 99, -7], [6, 2, 4]]), np.array([9, 3, 12])
    q, slopes = rng.normal(size=(3, 4, 2, 6)), rng.random((3, 4))
    given = {"mask": rng.random(shape) < 0.7, "bias": rng.normal(size=shape), "dropout_mask": rng.random(shape)}
    wide = {name: np.broadcast_to(x, (3, 4, 2, 12)).copy() for name, x in given.items()}
    for b, length in enumerate(lengths):
        wide["bias"][b, ..., length:] = np.nan  # never read
    if listed:
        given = {name: [x[b, ..., :length] for b, length in enumerate(lengths)] for name, x in wide.items()}
    elif shape == (3, 4, 2, 12):
        given = wide
    out = compute.paged_attention(q, pages_k, pages_v, table, lengths, **given, alibi_slopes=slopes)
    for b, length in enumerate(lengths):
        k, v = (
            np.concatenate(list(p[table[b, : -(-length // 4)]]))[:length].swapaxes(0, 1) for p in (pages_k, pages_v)
        )
        own = {name: x[b, ..., :length] for name, x in wide.items()}
        want = compute.attention(q[b], k, v, **own, alibi_slopes=slopes[b])
        assert abs(out[b] - want).max() <= 100 * U * abs(v).max()


def test_masks_and_biases_of_a_layout_are_checked():
    t, starts = np.ones((4, 2, 4)), np.array([0, 1, 4])
    for bad, says in [
        (np.ones((4, 5), bool), "t_q, t_k"),
        ([np.ones((1, 1), bool)], "one array a sequence"),
        ([np.ones((1, 1), bool), np.ones((3, 2), bool)], "mask has shape"),
        ([[True, True]], "one array a sequence"),
        (np.ones((4, 4), int), "1 = keep"),
        (True, "bool"),
    ]:
        with pytest.raises(InputError, match=says):
            compute.packed_attention(t, t, t, starts, starts, mask=bad)
    half = compute.packed_attention(t, t, t, starts, starts, mask=[np.zeros((1, 1), bool), None])
    assert half[:, 0, 0].tolist() == [0, 1, 1, 1]  # None: nothing is masked there
    with pytest.raises(InputError, match="a row a sequence"):
        compute.packed_attention(t, t, t, starts, starts, alibi_slopes=np.ones((3, 2)))
    pages, q = np.ones((3, 2, 1, 4)), np.ones((1, 1, 1, 4))
    for bad in (np.ones((1, 1, 1, 3), bool), [np.ones((1, 1), bool)] * 2, [np.ones((1, 3), bool)]):
        with pytest.raises(InputError, match="mask"):
            compute.paged_attention(q, pages, pages, np.array([[0, 1]]), np.array([2]), mask=bad)
    none = compute.packed_attention_backward(t[:0], t[:0], t[:0], t[:0], np.array([0]), np.array([0]), sink=np.ones(2))
    assert none.dsink.tolist() == [0, 0]


@pytest.mark.parametrize("spec", [Spec(), Spec(causal="bottom-right")])
def test_paged_is_the_sequence_written_out(rng, spec):
    pages_k, pages_v = rng.normal(size=(7, 4, 2, 6)), rng.normal(size=(7, 4, 2, 3))
    table, lengths = np.array([[5, 0, 3], [1, 99, -7], [6, 2, 4]]), np.array([9, 3, 12])
    q = rng.normal(size=(3, 4, 2, 6))
    out, lse = compute.paged_attention(q, pages_k, pages_v, table, lengths, spec, return_lse=True)
    for b, length in enumerate(lengths):
        own = table[b, : -(-length // 4)]
        k, v = (np.concatenate(list(p[own]))[:length].swapaxes(0, 1) for p in (pages_k, pages_v))
        o, l = compute.attention(q[b], k, v, spec, return_lse=True)
        assert (o == out[b]).all()
        assert (l == lse[b]).all()
    pages_v[own[-1]] = np.nan  # only sequence 2 reads this page
    assert np.isfinite(compute.paged_attention(q, pages_k, pages_v, table, lengths)[:2]).all()


# -- cache ----------------------------------------------------------------------------------------------------------

CACHED = [
    Spec(causal=True),
    Spec(causal="bottom-right", window=(3, 0)),
    Spec(causal=True, rope=Rope("half", 100.0, 2, 2)),
    Spec(causal=True, rope=Rope("interleaved"), softcap=2.0, lse_base=2.0),
]


@pytest.mark.parametrize("spec", CACHED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_any_chunking_is_the_whole_call(rng, spec, dtype):
    q, k = rng.normal(size=(2, 2, 4, 11, 8)).astype(dtype)
    k, v = k[:, :2], rng.normal(size=(2, 2, 11, 3)).astype(dtype)
    slopes = np.array([0.5, 0.25, 0.125, 0.0625])
    want, want_lse = compute.attention(q, k, v, spec, alibi_slopes=slopes, return_lse=True)
    u = U if dtype == np.float64 else 2.0**-24
    slack = 200 * u * abs(v).max().astype(float) + (2.0**-10 * abs(want).max() if dtype == np.float16 else 0)
    for cuts in ([11], [1] * 11, [4, 4, 3], [10, 1], [3, 0, 8]):
        cache, start, outs, lses = compute.Cache(spec, capacity=12), 0, [], []
        for size in cuts:
            new = (x[..., start : start + size, :] for x in (q, k, v))
            out, lse = cache.extend(*new, alibi_slopes=slopes, return_lse=True)
            outs.append(out)
            lses.append(lse)
            start += size
        assert cache.length == 11
        assert out.dtype == dtype
        assert abs(np.concatenate(outs, axis=-2) - want).max() <= slack
        assert abs(np.concatenate(lses, axis=-1) - want_lse).max() <= 200 * u
    filled = compute.Cache(spec, capacity=11).prefill(q, k, v, chunk=4, alibi_slopes=slopes)
    assert abs(filled - want).max() <= slack


# -- formats --------------------------------------------------------------------------------------------------------

DTYPES = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("name", DTYPES)
def test_rounding_is_the_dtype_library_s(name, rng):
    x = np.ldexp(rng.normal(size=40000), rng.integers(-30, 20, 40000)).astype(np.float32)
    patterns = np.arange(256 if name[0] == "e" else 65536, dtype=np.uint8 if name[0] == "e" else np.uint16)
    every = patterns.view(DTYPES[name]).astype(np.float32)
    every = np.sort(every[np.isfinite(every)])
    ties = ((every[1:].astype(np.float64) + every[:-1]) / 2).astype(np.float32)
    for values in (x, every, ties, np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)):
        with np.errstate(over="ignore", invalid="ignore"):
            want = values.astype(DTYPES[name]).astype(np.float32)
        got = round_to(values, name)
        assert np.array_equal(got, want, equal_nan=True)
        assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()
        if name != "e4m3":
            continue
    top = limits(name).largest
    assert round_to(np.array([2.0 * top, -2.0 * top]), name, saturate=True).tolist() == [top, -top]


@settings(max_examples=300)
@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["tf32", "fp16", "bf16", "e4m3", "e5m2", "fp32"])
)
def test_rounding_is_one_rounding_to_the_nearest(x, name):
    """Against exact rationals: no other number of the format is nearer; ties go to the even one."""
    limit, got = limits(name), float(round_to(np.array([x]), name)[0])
    if abs(x) >= limit.largest * (1 + limit.unit):
        assert not math.isfinite(got)
        return
    if not math.isfinite(got):
        assert abs(x) > limit.largest
        return
    step = Fraction(2 * limit.tiny)
    if abs(x) >= limit.normal:
        step = max(step, 2 * Fraction(limit.unit) * Fraction(2) ** (math.frexp(x)[1] - 1))
    exact = Fraction(x)
    assert (Fraction(got) / step).denominator == 1
    assert abs(Fraction(got) - exact) * 2 <= step
    if abs(Fraction(got) - exact) * 2 == step:
        assert int(Fraction(got) / step) % 2 == 0


def test_scaled_fp8_uses_its_range(rng):
    x = rng.normal(size=(3, 5, 4)) * np.array([1e-3, 1.0, 1e5])[:, None, None]
    for axes in (None, (1, 2)):
        rounded, descale = scaled(x, "e4m3", axes)
        assert abs(rounded).max() == 448
        relative = abs(rounded * descale - x) / abs(x).max(axis=axes, keepdims=axes is not None)
        assert relative.max() <= 2.0**-4
    zero, one = scaled(np.zeros(3), "e4m3")
    assert one == 1
    assert not zero.any()


def test_reduced_products(rng):
    a, b = rng.normal(size=(6, 40)).astype(np.float32), rng.normal(size=(40, 5)).astype(np.float32)
    exact, size = a.astype(float) @ b, abs(a).astype(float) @ abs(b)
    errors = {name: (abs(product(a, b, products=name) - exact) / size).max() for name in ("exact", "tf32", "bf16x3")}
    accumulation = 3 * 40 * 2.0**-24
    assert errors["exact"] <= accumulation
    assert errors["bf16x3"] <= 2.0**-14 + accumulation
    assert 2.0**-14 < errors["tf32"] <= 2.0**-10 + 2.0**-22 + accumulation

    def tf32(x):
        bits = x.view(np.uint32)
        return ((bits + 0x0FFF + ((bits >> 13) & 1)) & 0xFFFFE000).astype(np.uint32).view(np.float32)

    assert (product(a, b, products="tf32") == tf32(a) @ tf32(b)).all()
    first, second = split_bf16(a)
    assert abs(first + second - a).max() <= 2.0**-16 * abs(a).max()
    half = product(a, b, accumulate="fp16")
    slow = np.zeros((6, 5))
    for c in range(40):
        slow = (slow + a[:, c, None].astype(float) * b[None, c]).astype(np.float16).astype(float)
    assert (half == slow).all()
    assert in_order(np.ones((1, 3000), np.float32), "fp16")[0, 0] == 2048
    assert in_order(np.ones((1, 3000), np.float32), "fp32")[0, 0] == 3000


# -- emulation ------------------------------------------------------------------------------------------------------

WIDE = {"weights": "fp64", "accumulate": "fp64", "output": "fp64"}


@pytest.mark.parametrize("algorithm", [Flash(**WIDE, block=3), Eager(**WIDE), Flash(**WIDE, block=2, scale_on="both")])
@pytest.mark.parametrize(
    "spec", [Spec(), Spec(causal="bottom-right", softcap=2.0, empty_row="mean"), Spec(rope=Rope(), lse_base=2)]
)
def test_without_roundings_it_is_attention(rng, algorithm, spec):
    q, k, v = rng.normal(size=(2, 4, 6, 8)), rng.normal(size=(2, 2, 9, 8)), rng.normal(size=(2, 2, 9, 3))
    given = {"mask": rng.random((6, 9)) > 0.4, "bias": rng.normal(size=(4, 1, 9)), "sink": rng.normal(size=4)}
    given["dropout_mask"] = rng.random((6, 9)) * 2
    want = compute.attention(q, k, v, spec, **given, return_lse=True)
    got = compute.emulated_attention(q, k, v, spec, algorithm, **given, return_lse=True)
    for a, b in zip(want, got, strict=True):
        finite = np.isfinite(a)
        assert (np.isfinite(b) == finite).all()
        assert abs(a[finite] - b[finite]).max() <= 200 * U * abs(v).max()
    v[..., -1, :] = np.nan
    hidden = np.arange(9) < 8
    assert np.isfinite(compute.emulated_attention(q, k, v, spec.with_(causal="none"), algorithm, mask=hidden)).all()


@pytest.mark.parametrize("algorithm", [
    Flash(), Flash(weights="fp16", output="fp16"), Flash(weights="bf16", output="bf16", block=16),
    Flash(weights="fp16", output="fp16", base2=True), Flash(products="tf32"), Flash(products="bf16x3"),
    Eager(), Eager(scores="fp16", weights="fp16", output="fp16"), Eager(scores="bf16", every_op=True, weights="bf16"),
    Eager(scores="fp16", score_stores=2), Flash(scale_on="query", scale_format="bf16"), Eager(shifted=False),
], ids=str)  # fmt: skip
def test_emulation_stays_within_the_tolerance_of_what_it_declares(rng, algorithm):
    q, k, v = (round_to(rng.normal(size=(20, 16)), "bf16") for _ in range(3))
    want = compute.attention(q, k, v)
    error = abs(compute.emulated_attention(q.astype("f4"), k.astype("f4"), v.astype("f4"), algorithm=algorithm) - want)
    bound = compute.tolerance(q, k, v, algorithm=algorithm).total
    assert (error <= bound).all()
    assert error.max() > 0


def test_descale_factors_undo_scaled_fp8(rng):
    q, k, v = rng.normal(size=(3, 12, 16)) * np.array([1e-4, 1e3, 1e6])[:, None, None]
    parts = [scaled(x, "e4m3") for x in (q, k, v)]
    out = compute.emulated_attention(
        *(x for x, _ in parts), algorithm=Flash(**WIDE), descale=tuple(float(s) for _, s in parts)
    )
    back = compute.attention(*(x * s for x, s in parts))
    assert abs(out - back).max() <= 200 * U * abs(v).max()
    # Without descale factors the queries vanish in fp8: kind 86 at its worst.
    assert not round_to(q, "e4m3").any()


# -- blocks ---------------------------------------------------------------------------------------------------------


def slope(f, x, direction, h=1e-6):
    return (f(x + h * direction) - f(x - h * direction)) / (2 * h)


def checked(f, args, grads, rng):
    """Central differences along a random direction: error h²·|f'''| and roundings u/h, both below 1e-7 here."""
    for place, (x, g) in enumerate(zip(args, grads, strict=True)):
        direction = rng.normal(size=x.shape)

        def along(moved, place=place):
            return f(*(moved if i == place else a for i, a in enumerate(args)))

        assert g.shape == x.shape
        assert slope(along, x, direction) == pytest.approx(float((g * direction).sum()), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize(("residual", "with_wo"), [(False, False), (False, True), (True, True)])
def test_self_attention_gradients(rng, residual, with_wo):
    x = rng.normal(size=(2, 5, 6))
    weights = [rng.normal(size=s) / 2 for s in ((6, 8), (6, 4), (6, 6))] + (
        [rng.normal(size=(12, 6))] if with_wo else []
    )
    call, back = (
        (compute.residual_block, compute.residual_block_backward)
        if residual
        else (compute.self_attention, compute.self_attention_backward)
    )
    options = {"heads": 4, "key_value_heads": 2, "spec": Spec(causal=True)}
    y = call(x, *weights, **options)
    grad = rng.normal(size=y.shape)
    g = back(grad, x, *weights, **options)
    grads = [g.dx, g.dwq, g.dwk, g.dwv, *([g.dwo] if with_wo else [])]
    checked(lambda *a: float((call(*a, **options) * grad).sum()), [x, *weights], grads, rng)
    assert (g.dwo is None) != with_wo


def test_self_attention_is_its_formula(rng):
    x, wq, wk, wv = rng.normal(size=(5, 6)), *rng.normal(size=(3, 6, 6))
    y = compute.self_attention(x, wq, wk, wv, heads=1)
    s = (x @ wq) @ (x @ wk).T / math.sqrt(6)
    p = np.exp(s - s.max(1, keepdims=True))
    want = (p / p.sum(1, keepdims=True)) @ (x @ wv)
    # Two formulas apart by reordered sums: |s| roundings in the exponent, twice.
    assert abs(y - want).max() <= 32 * (1 + abs(s).max()) * U * abs(x @ wv).max()


def test_recurrent_cells(rng):
    x, h, c = rng.normal(size=(3, 4)), rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    w, u, b = rng.normal(size=(4, 5)), rng.normal(size=(5, 5)), rng.normal(size=5)
    assert (compute.rnn_cell(x, h, w, u, b) == np.tanh(x @ w + h @ u + b)).all()
    grad = rng.normal(size=(3, 5))
    args = [x, h, w, u, b]
    checked(lambda *a: float((compute.rnn_cell(*a) * grad).sum()), args, compute.rnn_cell_backward(grad, *args), rng)
    w, u, b = rng.normal(size=(4, 20)), rng.normal(size=(5, 20)), rng.normal(size=20)
    grad_c, args = rng.normal(size=(3, 5)), [x, h, c, w, u, b]

    def loss(*a):
        new_h, new_c = compute.lstm_cell(*a)
        return float((new_h * grad).sum() + (new_c * grad_c).sum())

    checked(loss, args, compute.lstm_cell_backward(grad, grad_c, *args), rng)
    z = x @ w + h @ u + b
    i, f, o = (1 / (1 + np.exp(-z[:, s : s + 5])) for s in (0, 5, 15))
    new_c = f * c + i * np.tanh(z[:, 10:15])
    np.testing.assert_allclose(compute.lstm_cell(*args)[1], new_c, rtol=1e-13)
    np.testing.assert_allclose(compute.lstm_cell(*args)[0], o * np.tanh(new_c), rtol=1e-13)
