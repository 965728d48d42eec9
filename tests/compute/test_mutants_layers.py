"""Faulty variants of single lines around attention: the tests of that module must refuse each of them."""

# ruff: noqa: E501  a table of source lines

from __future__ import annotations

import numpy as np
import pytest

import compute
import compute.blocks
import compute.cache
import compute.emulate
import compute.layouts
import compute.merge
from compute import Eager, Flash, Spec
from tests.compute import test_layers as layers
from tests.compute.test_mutants import install

WIDE = layers.WIDE
FORMULA = layers.test_self_attention_is_its_formula
CELLS = layers.test_recurrent_cells
PRODUCTS = layers.test_reduced_products
DESCALE = layers.test_descale_factors_undo_scaled_fp8


def packed(rng):
    layers.test_packed_is_each_sequence_alone(rng, Spec(causal="bottom-right", window=(2, None)))


def paged(rng):
    layers.test_paged_is_the_sequence_written_out(rng, Spec())


def paired(rng):
    for shape in layers.PAIR_SHAPES:
        for listed in (False, True):
            layers.test_packed_masks_and_biases_are_each_sequences_own(rng, shape, listed)
    layers.test_paged_masks_and_biases_count_a_sequences_own_keys(rng, (3, 4, 2, 12), False)


def cached(rng):
    for spec in layers.CACHED:
        layers.test_any_chunking_is_the_whole_call(rng, spec, np.float64)


def attention(rng):
    layers.test_self_attention_gradients(rng, True, True)


def rounding(rng):
    for name in layers.DTYPES:
        layers.test_rounding_is_the_dtype_library_s(name, rng)


def exact(rng):
    for algorithm in (Flash(**WIDE, block=3), Eager(**WIDE), Flash(**WIDE, block=2, scale_on="both")):
        layers.test_without_roundings_it_is_attention(rng, algorithm, Spec(lse_base=2, softcap=2.0))
        layers.test_without_roundings_it_is_attention(rng, algorithm, Spec(causal="bottom-right"))


def sticking(rng):
    """Declared roundings happen: of weights, of scores, of the accumulator, of the output."""
    q, k, v = np.zeros((1, 1)), np.zeros((3000, 1)), np.ones((3000, 1))
    _, lse = compute.emulated_attention(q, k, v, algorithm=Eager(accumulate="fp16"), return_lse=True)
    assert lse[0] == np.float16(np.log(2048))
    assert compute.emulated_attention(q, k, v, algorithm=Eager(weights="e4m3"))[0, 0] == 0
    q, k, v = rng.normal(size=(3, 9, 4))
    for algorithm, changed in (
        (Flash(), Flash(weights="bf16")),
        (Eager(), Eager(scores="bf16")),
        (Flash(), Flash(output="bf16")),
    ):
        plain, rounded = (compute.emulated_attention(q, k, v, algorithm=a) for a in (algorithm, changed))
        assert 2.0**-14 < abs(plain - rounded).max() < 0.1
    out = compute.emulated_attention(q, k, v, algorithm=Flash(output="bf16"))
    assert (out == compute.round_to(out, "bf16")).all()


def merging(rng):
    q, k, v = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 9, 3))
    spec = Spec(lse_base=2.0)
    whole = compute.attention(q, k, v, spec, return_lse=True)
    parts = [compute.attention(q, k[:, a:b], v[:, a:b], spec, return_lse=True) for a, b in ((0, 2), (2, 9))]
    out, lse = compute.merge_states(*parts[0], *parts[1], base=2.0)
    assert abs(out - whole[0]).max() < 1e-13
    assert abs(lse - whole[1]).max() < 1e-13
    none = np.full((2, 5), -np.inf)
    assert (compute.merge_states(*whole, np.full_like(whole[0], np.nan), none, base=2.0)[0] == whole[0]).all()
    assert (compute.merge_states(0 * whole[0], none, 0 * whole[0], none)[1] == -np.inf).all()


def slopes(rng):
    assert compute.standard_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert compute.standard_slopes(12)[8:].tolist() == [2.0 ** -(i + 0.5) for i in range(4)]


MUTANTS = [
    ("layouts", "return x.swapaxes(-2, -3)", "return x", packed),
    ("layouts", "dsink = g.dsink if dsink is None else dsink + g.dsink", "dsink = g.dsink", packed),
    ("layouts", "grad_lse[rows].swapaxes(0, 1)", "-grad_lse[rows].swapaxes(0, 1)", packed),
    ("layouts", "out[rows], lse[rows] = swap_heads(o), l.swapaxes(0, 1)", "out[rows], lse[rows] = swap_heads(o), l.swapaxes(0, 1) + 1", packed),
    ("layouts", "[:length].swapaxes(0, 1) for", "[-length:].swapaxes(0, 1) for", paged),
    ("layouts", ": -(-length // size) if size", ": length // size if size", paged),
    ("layouts", "table[b, :", "table[0, :", paged),
    ("layouts", "zip((rows, cols)", "zip((rows, rows)", paired),
    ("layouts", "at if size != 1 else slice(None)", "at", paired),
    ("layouts", "dbias.add(g.dbias, rows, cols)", "dbias.add(g.dbias, rows, rows)", paired),
    ("layouts", "return list(slopes)", "return [slopes[0]] * count", paired),
    ("layouts", "view[b, ..., :length]", "view[0, ..., :length]", paired),
    ("cache", "past=start", "past=0", cached),
    ("cache", "rope.k_offset + start", "rope.k_offset", cached),
    ("cache", "rope.q_offset + start", "rope.q_offset", cached),
    ("cache", "keys[..., :stop, :], values[..., :stop, :]", "keys[..., :start, :], values[..., :start, :]", cached),
    ("cache", "values[..., start:stop, :] = v", "values[..., start:stop, :] = values[..., start:stop, :] + k[..., :3]", cached),
    ("merge", "/ log)", "* log)", merging),
    ("merge", "(x - safe) * log)", "(x - safe))", merging),
    ("merge", "xp.where(w == 0, kind(0), (w / scale) * o)", "(w / scale) * o", merging),
    ("merge", "(w / scale) * o)", "w * o)", merging),
    ("alibi", "-8.0 * np.arange(1, low + 1)", "-8.0 * np.arange(low)", slopes),
    ("alibi", "np.arange(1, 2 * low + 1, 2)", "np.arange(2, 2 * low + 2, 2)", slopes),
    ("blocks", "dx = dq @ wq.T + dk @ wk.T + dv @ wv.T", "dx = dq @ wq.T + dk @ wk.T", attention),
    ("blocks", "_outer(x, dq), _outer(x, dk), _outer(x, dv)", "_outer(x, dq), _outer(x, dq)[:, :4], _outer(x, dv)", attention),
    ("blocks", "grad = grad_output @ wo.T", "grad = grad_output @ wo.T * 1.01", attention),
    ("blocks", "LayerGradients(g.dx + grad_output,", "LayerGradients(g.dx,", attention),
    ("blocks", "return x + added", "return added", attention),
    ("blocks", "return joined if wo is None else joined @ wo", "return joined * 1.001 if wo is None else joined @ wo", FORMULA),
    ("blocks", "inner = grad * (1 - new * new)", "inner = grad * (1 - new)", CELLS),
    ("blocks", "new * g * i * (1 - i)", "new * g * i", CELLS),
    ("blocks", "new * c * f * (1 - f)", "new * f * (1 - f)", CELLS),
    ("blocks", "new * i * (1 - g * g)", "new * i * (1 - g)", CELLS),
    ("blocks", "grad_h * t * o * (1 - o)", "grad_h * o * (1 - o)", CELLS),
    ("blocks", "new = grad_c + grad_h * o * (1 - t * t)", "new = grad_c + grad_h * o", CELLS),
    ("blocks", "return o * namespace(x=x).tanh(new), new", "return o * new, new", CELLS),
    ("blocks", "for s in (0, 1, 3)]", "for s in (0, 3, 1)]", CELLS),
    ("formats", "xp.rint(scaled)", "xp.floor(scaled + 0.5)", rounding),
    ("formats", "xp.maximum(exponent, least) - (bits - 1)", "exponent - (bits - 1)", rounding),
    ("formats", "over = abs(out) > limit.largest", "over = abs(out) >= limit.largest", rounding),
    ("formats", "math.nan if limit.name == \"float8_e4m3fn\" else math.inf", "math.inf", rounding),
    ("formats", "limit.largest if saturate else", "", rounding),
    ("formats", "a1 @ b1 + (a1 @ b2 + a2 @ b1)", "a1 @ b1 + a1 @ b2", PRODUCTS),
    ("formats", "a, b = round_to(a, \"tf32\"), round_to(b, \"tf32\")", "a = round_to(a, \"tf32\")", PRODUCTS),
    ("formats", "total = round_to(total + a[..., :, c, None]", "total = (total + a[..., :, c, None]", PRODUCTS),
    ("formats", "total = round_to(total + x[..., c : c + 1], accumulate)", "total = total + x[..., c : c + 1]", PRODUCTS),
    ("formats", "rest = rest - parts[-1]", "rest = rest", PRODUCTS),
    ("formats", "round_to(x / descale, name, saturate=True)", "round_to(x, name, saturate=True)", layers.test_scaled_fp8_uses_its_range),
    ("emulate", "part.scale * descale[0] * descale[1]", "part.scale * descale[0]", DESCALE),
    ("emulate", "self.keep(out / safe) * self.descale", "self.keep(out / safe)", DESCALE),
    ("emulate", "keep(norm * alpha)", "keep(norm)", exact),
    ("emulate", "keep(out * alpha)", "keep(out)", exact),
    ("emulate", "lse = lse / math.log(spec.lse_base)", "lse = lse * math.log(spec.lse_base)", exact),
    ("emulate", "math.sqrt(abs(float(self.tau)))", "abs(float(self.tau))", exact),
    ("emulate", "keep(in_order(e, self.acc) + own)", "keep(in_order(e, self.acc))", exact),
    ("emulate", "self.sink / float(self.tau) if plain else self.sink", "-math.inf", exact),
    ("emulate", "v = clean(xp, v)", "pass", exact),
    ("emulate", "x = round_to(x, self.acc) if self.acc not in", "x = x if self.acc not in", sticking),
    ("emulate", "round_to(x, name)", "x", sticking),
    ("emulate", "if isinstance(alg, Eager):\n            s = self.store(s, alg.scores)", "if False:\n            s = self.store(s, alg.scores)", sticking),
    ("emulate", "alg.weights)\n            out =", "None)\n            out =", sticking),
]  # fmt: skip
CHECKS = [
    packed,
    paged,
    paired,
    cached,
    attention,
    FORMULA,
    CELLS,
    PRODUCTS,
    DESCALE,
    rounding,
    exact,
    sticking,
    merging,
    slopes,
]


@pytest.mark.parametrize("check", CHECKS, ids=range(len(CHECKS)))
def test_the_checks_accept_the_package_itself(check):
    check(np.random.default_rng(0))


@pytest.mark.parametrize("number", range(len(MUTANTS)), ids=[f"{m[0]}-{i}" for i, m in enumerate(MUTANTS)])
def test_a_faulty_line_is_seen(number, monkeypatch):
    module, old, new, check = MUTANTS[number]
    install(monkeypatch, module, old, new, users=[layers])
    with pytest.raises((AssertionError, ValueError, TypeError, IndexError)), np.errstate(all="ignore"):
        check(np.random.default_rng(0))
