"""Tiny random models in the three layouts, written as safetensors files with the config.json that belongs to them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from compute.streams import Stream


def write(folder: Path, tensors: dict[str, Any], config: dict[str, Any] | None, dtype: Any = np.float32) -> Path:
    path = folder / "model.safetensors"
    save_file({name: np.ascontiguousarray(a.astype(dtype)) for name, a in tensors.items()}, str(path))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


class _Maker:
    """Named tensors of drawn values."""

    def __init__(self, seed: int) -> None:
        self.stream = Stream(seed, "tiny model")
        self.found: dict[str, Any] = {}

    def matrix(self, name: str, *shape: int) -> None:
        self.found[name] = self.stream.normals(shape) / np.sqrt(shape[-1])

    def vector(self, name: str, length: int, around: float = 0.0) -> None:
        self.found[name] = around + 0.1 * self.stream.normals((length,))


def bert(layers: int = 2, d: int = 12, inner: int = 20, words: int = 30, prefix: str = "") -> dict[str, Any]:
    m = _Maker(1)
    m.matrix("embeddings.word_embeddings.weight", words, d)
    m.matrix("embeddings.position_embeddings.weight", 16, d)
    m.matrix("embeddings.token_type_embeddings.weight", 2, d)
    _norm(m, "embeddings.LayerNorm", d)
    for layer in range(layers):
        part = f"encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            m.matrix(f"{part}attention.self.{name}.weight", d, d)
            m.vector(f"{part}attention.self.{name}.bias", d)
        for name, rows, columns in (
            ("attention.output.dense", d, d),
            ("intermediate.dense", inner, d),
            ("output.dense", d, inner),
        ):
            m.matrix(f"{part}{name}.weight", rows, columns)
            m.vector(f"{part}{name}.bias", rows)
        _norm(m, f"{part}attention.output.LayerNorm", d)
        _norm(m, f"{part}output.LayerNorm", d)
    return {prefix + name: a for name, a in m.found.items()}


def gpt2(layers: int = 2, d: int = 12, words: int = 30, prefix: str = "") -> dict[str, Any]:
    m = _Maker(2)
    m.matrix("wte.weight", words, d)
    m.matrix("wpe.weight", 16, d)
    for layer in range(layers):
        part = f"h.{layer}."
        for name, rows, columns in (
            ("attn.c_attn", d, 3 * d),
            ("attn.c_proj", d, d),
            ("mlp.c_fc", d, 4 * d),
            ("mlp.c_proj", 4 * d, d),
        ):
            m.matrix(f"{part}{name}.weight", rows, columns)
            m.vector(f"{part}{name}.bias", columns)
        _norm(m, f"{part}ln_1", d)
        _norm(m, f"{part}ln_2", d)
    _norm(m, "ln_f", d)
    return {prefix + name: a for name, a in m.found.items()}


def llama(layers: int = 2, d: int = 16, heads: int = 4, kv: int = 2, words: int = 30) -> dict[str, Any]:
    m = _Maker(3)
    d_k = d // heads
    m.matrix("model.embed_tokens.weight", words, d)
    for layer in range(layers):
        part = f"model.layers.{layer}."
        m.matrix(f"{part}self_attn.q_proj.weight", d, d)
        m.matrix(f"{part}self_attn.k_proj.weight", kv * d_k, d)
        m.matrix(f"{part}self_attn.v_proj.weight", kv * d_k, d)
        m.matrix(f"{part}self_attn.o_proj.weight", d, d)
        m.matrix(f"{part}mlp.gate_proj.weight", 24, d)
        m.matrix(f"{part}mlp.up_proj.weight", 24, d)
        m.matrix(f"{part}mlp.down_proj.weight", d, 24)
        m.vector(f"{part}input_layernorm.weight", d, 1.0)
        m.vector(f"{part}post_attention_layernorm.weight", d, 1.0)
    m.vector("model.norm.weight", d, 1.0)
    return m.found


def _norm(m: _Maker, name: str, d: int) -> None:
    m.vector(f"{name}.weight", d, 1.0)
    m.vector(f"{name}.bias", d)


BERT_CONFIG = {"num_attention_heads": 3, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
GPT2_CONFIG = {"n_head": 3, "layer_norm_epsilon": 1e-5}
LLAMA_CONFIG = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}
