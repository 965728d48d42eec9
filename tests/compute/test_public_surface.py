"""Every argument of every public function is given every wrong kind: only compute's own errors come out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import compute
from compute import Flash, Rope, Spec
from compute.errors import ComputeError, InputError

X, FLAT, SQUARE, TOKENS = np.ones((2, 3, 4)), np.ones((3, 4)), np.ones((4, 4)), np.ones((3, 2, 4))
STARTS, PAGES = np.array([0, 1, 3]), np.ones((3, 2, 2, 4))
GATES = {"w": np.ones((4, 16)), "u": np.ones((4, 16)), "b": np.ones(16)}
TREE = {
    "version": 1,
    "inputs": [{"name": "Q", "axes": ["n"]}, {"name": "s", "axes": []}],
    "output": [["i", "n"]],
    "body": ["mul", ["sym", "s"], ["at", "Q", [["sym", "i"]]]],
}
PAIRS = {"mask": np.ones((3, 3), bool), "bias": np.ones((3, 3)), "dropout_mask": np.ones((3, 3))}
HEADS = {"sink": np.ones(2), "alibi_slopes": np.ones(2)}
CALL = {"q": X, "k": X, "v": X, "spec": Spec(), **PAIRS, **HEADS, "key_lengths": 2}
RUN = {"algorithm": "auto", "threads": 1}
LAYER = {"x": FLAT, "wq": SQUARE, "wk": SQUARE, "wv": SQUARE, "wo": SQUARE, "heads": 2, "key_value_heads": 2}
PLAIN = {name: x for name, x in CALL.items() if name != "dropout_mask"}
ROUNDINGS = {
    "weights": "fp16", "accumulate": "fp32", "exp_ulp": 3.0, "output": "fp16", "products": "exact",
    "scale_on": "scores", "scale_format": None, "flush": False, "exp_flushes": True,
}  # fmt: skip


def residual(x: Any, wq: Any, wk: Any, wv: Any, **options: Any) -> Any:
    return compute.residual_block(x, wq, wk, wv, **options)


def residual_backward(grad_output: Any, x: Any, wq: Any, wk: Any, wv: Any, **options: Any) -> Any:
    return compute.residual_block_backward(grad_output, x, wq, wk, wv, **options)


def extend(spec: Any, capacity: Any, q: Any, k: Any, v: Any, **options: Any) -> Any:
    return compute.Cache(spec, capacity).extend(q, k, v, **options)


def prefill(spec: Any, q: Any, k: Any, v: Any, chunk: Any) -> Any:
    return compute.Cache(spec, 9).prefill(q, k, v, chunk)


RESIDUAL = {name: x for name, x in LAYER.items() if name not in ("wo", "key_value_heads")}
SURFACE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "standard_slopes": (compute.standard_slopes, {"heads": 8}),
    "merge_states": (
        compute.merge_states,
        {"out1": FLAT, "lse1": np.ones(3), "out2": FLAT, "lse2": np.ones(3), "base": 2.0},
    ),
    "lstm_cell": (compute.lstm_cell, {"x": FLAT, "h": FLAT, "c": FLAT, **GATES}),
    "lstm_cell_backward": (
        compute.lstm_cell_backward,
        {"grad_h": FLAT, "grad_c": FLAT, "x": FLAT, "h": FLAT, "c": FLAT, **GATES},
    ),
    "rnn_cell": (compute.rnn_cell, {"x": FLAT, "h": FLAT, "w": SQUARE, "u": SQUARE, "b": np.ones(4)}),
    "rnn_cell_backward": (
        compute.rnn_cell_backward,
        {"grad": FLAT, "x": FLAT, "h": FLAT, "w": SQUARE, "u": SQUARE, "b": np.ones(4)},
    ),
    "self_attention": (compute.self_attention, {**LAYER, "spec": Spec()}),
    "self_attention_backward": (compute.self_attention_backward, {"grad_output": FLAT, **LAYER, "spec": Spec()}),
    "residual_block": (residual, {**RESIDUAL, "spec": Spec()}),
    "residual_block_backward": (residual_backward, {"grad_output": FLAT, **RESIDUAL, "spec": Spec()}),
    "Cache": (extend, {"spec": Spec(causal=True), "capacity": 9, "q": X, "k": X, "v": X, "return_lse": False, **HEADS}),
    "Cache.prefill": (prefill, {"spec": Spec(causal=True), "q": X, "k": X, "v": X, "chunk": 2}),
    "swap_heads": (compute.swap_heads, {"x": X}),
    "packed_attention": (
        compute.packed_attention,
        {
            "q": TOKENS,
            "k": TOKENS,
            "v": TOKENS,
            "q_starts": STARTS,
            "k_starts": STARTS,
            "spec": Spec(),
            **PAIRS,
            **HEADS,
        }
        | {"return_lse": False, **RUN},
    ),
    "packed_attention_backward": (
        compute.packed_attention_backward,
        {"grad_output": TOKENS, "q": TOKENS, "k": TOKENS, "v": TOKENS, "q_starts": STARTS, "k_starts": STARTS}
        | {"spec": Spec(), **PAIRS, **HEADS, "grad_lse": np.ones((3, 2)), **RUN},
    ),
    "paged_attention": (
        compute.paged_attention,
        {"q": np.ones((1, 2, 3, 4)), "key_pages": PAGES, "value_pages": PAGES, "page_table": np.array([[0, 1]])}
        | {"key_lengths": np.array([3]), "spec": Spec(), "mask": np.ones(4, bool), "bias": np.ones(4)}
        | {"dropout_mask": np.ones(4), **HEADS, "return_lse": False, **RUN},
    ),
    "round_to": (compute.round_to, {"x": FLAT, "name": "fp16", "saturate": False}),
    "emulated_attention": (
        compute.emulated_attention,
        {**CALL, "algorithm": Flash(), "storage": "fp16", "descale": (1.0, 1.0, 1.0), "return_lse": False},
    ),
    "emulated_attention_backward": (
        compute.emulated_attention_backward,
        {"grad_output": X, **CALL, "algorithm": Flash(), "storage": "fp16"},
    ),
    "function_from": (compute.function_from, {"tree": TREE}),
    "function_from, called": (compute.function_from(TREE), {"Q": np.ones(3), "s": 2.0}),
    "attention": (compute.attention, {**CALL, "return_lse": False, **RUN}),
    "attention_backward": (
        compute.attention_backward,
        {"grad_output": X, **CALL, "grad_lse": np.ones((2, 3)), "output": X, "lse": np.ones((2, 3)), **RUN},
    ),
    "tolerance": (compute.tolerance, {**PLAIN, "algorithm": Flash(), "kind": "worst", "grad_output": X}),
    "certify": (compute.certify, {**PLAIN, "grad_output": X, "tier": "norm", "target": "f32", "exp": "table"}),
    "Flash": (compute.Flash, {**ROUNDINGS, "block": 64, "sums": "any", "base2": False}),
    "Eager": (compute.Eager, {**ROUNDINGS, "scores": "fp16", "score_stores": 1, "every_op": False, "shifted": True}),
    "Spec": (
        compute.Spec,
        {"scale": 1.0, "causal": "none", "window": (1, 1), "rope": None, "softcap": 1.0, "groups": 1}
        | {"empty_row": "zero", "lse_base": 2.0, "past": 0, "dropout": 0.1, "alibi": "linear"},
    ),
    "Rope": (compute.Rope, {"layout": "half", "base": 1e4, "q_offset": 0, "k_offset": 0, "dims": 2}),
}
RESULTS = {"Gradients", "LayerGradients", "EmulatedGradients", "Tolerance", "Certificate", "Enclosure", "WorstInput"}
SEARCHED = {"worst_inputs"}  # runs for its budget: tests/compute/test_search.py gives it wrong kinds
WRONG: tuple[Any, ...] = (
    "4", "", b"x", 1.5, -1, 0, True, None, [1, 2], [[1.0]], (), {}, float("nan"), float("inf"), 10**400, 1j, object(),
    len, np.array([]), np.zeros((0, 3, 4)), np.array("x"), np.array(1.0), np.ones((2, 3, 4), complex),
    np.ones((2, 3, 4), int), np.ones((2, 3, 4), object), np.array([None]), np.ones((1,) * 5),
    np.datetime64("2020-01-01"), np.float32(2.0), np.int8(3), np.ones((2, 3, 4), np.float16), np.ones((2, 3, 4), bool),
)  # fmt: skip
INTEGERS = [
    ("self_attention", "heads"), ("self_attention", "key_value_heads"), ("self_attention_backward", "heads"),
    ("residual_block", "heads"), ("standard_slopes", "heads"), ("Cache", "capacity"), ("Cache.prefill", "chunk"),
    ("Flash", "block"), ("Spec", "groups"), ("Spec", "past"), ("Rope", "dims"), ("Rope", "q_offset"),
    ("attention", "threads"), ("attention", "key_lengths"),
]  # fmt: skip


def test_every_public_name_is_here() -> None:
    assert {name.partition(".")[0].partition(",")[0] for name in SURFACE} | RESULTS | SEARCHED == set(compute._HOMES)


@pytest.mark.parametrize("name", SURFACE)
def test_wrong_kinds_give_computes_own_errors(name: str) -> None:
    function, good = SURFACE[name]
    function(**good)
    refused = 0
    for argument in good:
        for wrong in WRONG:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    function(**{**good, argument: wrong})
                except ComputeError:
                    refused += 1
                except Exception as error:
                    raise AssertionError(
                        f"{name}({argument}={str(wrong)[:40]!r}) raised {type(error).__name__}"
                    ) from error
    assert refused > len(good) * len(WRONG) // 3


@pytest.mark.parametrize(("name", "argument"), INTEGERS)
@pytest.mark.parametrize("wrong", ["4", 2.0, True, 1j, [2]], ids=repr)
def test_whole_numbers_are_whole(name: str, argument: str, wrong: Any) -> None:
    function, good = SURFACE[name]
    with pytest.raises(InputError, match=argument):
        function(**{**good, argument: wrong})


@pytest.mark.parametrize("name", ["flush", "exp_flushes", "base2"])
@pytest.mark.parametrize("wrong", ["no", 0, 1, None])
def test_a_flag_is_no_text(name: str, wrong: Any) -> None:
    with pytest.raises(InputError, match="True or False"):
        Flash(**{name: wrong})


def test_numpys_own_scalars_are_taken() -> None:
    assert Spec(groups=np.int64(2), past=np.int8(1), softcap=np.float32(2)).softcap == 2
    assert Flash(block=np.int32(8), flush=np.bool_(True)).block == 8
    assert Rope(dims=np.int64(4)).dims == 4
    assert compute.self_attention(FLAT, SQUARE, SQUARE, SQUARE, heads=np.int64(2)).shape == (3, 4)
    assert hash(Spec(window=[1, None])) == hash(Spec(window=(1, None)))


def test_zero_heads() -> None:
    for heads in (0, -1):
        with pytest.raises(InputError, match="heads"):
            compute.self_attention(FLAT, SQUARE, SQUARE, SQUARE, heads=heads)
    assert compute.attention(X[:0], X[:0], X[:0]).shape == (0, 3, 4)
    assert compute.tolerance(X[:0], X[:0], X[:0]).total.shape == (0, 3, 4)
    assert compute.emulated_attention_backward(X[:0], X[:0], X[:0], X[:0]).dq.shape == (0, 3, 4)
