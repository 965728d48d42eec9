"""Arguments misread at one value or one shape only: found whatever the seed, in a quick run too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tests.verify.faulty_gradients as gradients
import verify
from tests.verify.faulty_pairs import every

Given = dict[str, Any]
right = every()


def future_keys(given: Given) -> Given:
    """A window that reaches ahead puts causal out of force."""
    ahead = given["causal"] and given["window"] is not None and given["window"][1]
    return {"causal": False} if ahead else {}


def scale_or_default(given: Given) -> Given:
    return {"scale": given["scale"] or None}


def scale_clamped(given: Given) -> Given:
    return {"scale": None if given["scale"] is None else min(given["scale"], 8.0)}


def slopes_without_sign(given: Given) -> Given:
    return {"alibi_slopes": None if given["alibi_slopes"] is None else abs(given["alibi_slopes"])}


def of_the_first_item(name: str) -> Callable[[Given], Given]:
    """A bias or mask of one head is read from item 0."""

    def misread(given: Given) -> Given:
        x = given[name]
        return {name: x[:1]} if x is not None and x.shape[1] == 1 else {}

    return misread


def of_the_first_head(name: str) -> Callable[[Given], Given]:
    """A bias or mask of one item is read from head 0."""

    def misread(given: Given) -> Given:
        x = given[name]
        return {name: x[:, :1]} if x is not None and x.shape[0] == 1 else {}

    return misread


def ignored_by_heads_over_keys(name: str) -> Callable[[Given], Given]:
    """A bias or mask (1, h, 1, m) is taken for none."""

    def misread(given: Given) -> Given:
        x = given[name]
        return {name: None} if x is not None and x.shape[0] == x.shape[2] == 1 < x.shape[1] else {}

    return misread


MISREADINGS: dict[str, tuple[Callable[[Given], Given], tuple[str, ...]]] = {
    "future keys in a window ahead": (future_keys, ("window", "causal dropped")),
    "scale or default": (scale_or_default, ("scale",)),
    "scale clamped at 8": (scale_clamped, ("scale",)),
    "slopes without their sign": (slopes_without_sign, ("ALiBi",)),
    "bias of item 0": (of_the_first_item("bias"), ("bias",)),
    "bias of head 0": (of_the_first_head("bias"), ("bias",)),
    "bias by heads over keys ignored": (ignored_by_heads_over_keys("bias"), ("bias", "mask dropped")),
    "mask of item 0": (of_the_first_item("mask"), ("mask broadcast",)),
    "mask of head 0": (of_the_first_head("mask"), ("mask broadcast",)),
    "mask by heads over keys ignored": (ignored_by_heads_over_keys("mask"), ("mask broadcast", "mask dropped")),
}


def reading(misread: Callable[[Given], Given]) -> Callable[..., Any]:
    """The right function of every feature, given arguments that were misread."""

    def attention(  # type: ignore[no-untyped-def]
        q, k, v, *, mask=None, bias=None, causal=False, scale=None, window=None, softcap=None, sink=None,
        alibi_slopes=None, return_lse=False,
    ):  # fmt: skip
        given: Given = {
            "mask": mask, "bias": bias, "causal": causal, "scale": scale, "window": window, "softcap": softcap,
            "sink": sink, "alibi_slopes": alibi_slopes, "return_lse": return_lse,
        }  # fmt: skip
        return right(q, k, v, **(given | misread(given)))

    return attention


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", MISREADINGS)
def test_a_misread_argument_is_found_at_any_seed(name: str, seed: int) -> None:
    misread, kinds = MISREADINGS[name]
    dtype = ("float64", "float16")[seed]
    result = verify.check(reading(misread), dtype=dtype, seed=seed, quick=True)
    assert result.status == "differs", result.text()
    assert set(kinds) & set(result.kinds), result.text()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_arguments_read_right_agree(dtype: str) -> None:
    result = verify.check(reading(lambda given: {}), dtype=dtype, spec="causal=top-left", quick=True)
    assert result.ok, result.text()


def negative(name: str, given: Any) -> float:
    return -1.0 if name == "k" and given is not None and given < 0 else 1.0


def above_two(name: str, given: Any) -> float:
    return 1 / float(given) if name == "k" and given is not None and given > 2 else 1.0


def at_zero(name: str, given: Any) -> float:
    return 0.0 if name == "v" and given is not None and given == 0 else 1.0


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("factor", [negative, above_two, at_zero])
def test_a_gradient_that_is_wrong_at_some_scales_is_found_at_any_seed(factor: Any, seed: int) -> None:
    def backward(q: Any, k: Any, v: Any, g: Any, **more: Any) -> Any:
        found = gradients.scaled_backward(q, k, v, g, **more)
        return {name: x * x.dtype.type(factor(name, more.get("scale"))) for name, x in found.items()}

    dtype = ("float64", "float16")[seed]
    result = verify.check(gradients.scaled_forward, backward=backward, dtype=dtype, seed=seed, quick=True)
    assert result.status == "differs", result.text()
    assert all("grad" in f.features for f in result.findings), result.text()


def test_a_gradient_of_a_broadcast_bias_that_is_not_summed_over_items_is_found() -> None:
    """(1, h, 1, m): the sum over rows is taken, the one over items is item 0's times their number."""

    def backward(q: Any, k: Any, v: Any, g: Any, *, bias: Any = None) -> Any:
        n = q.shape[2]
        whole = None if bias is None else np.broadcast_to(bias, (*q.shape[:2], n, k.shape[2]))
        s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + (0 if whole is None else whole)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        dp = g @ v.swapaxes(-1, -2)
        ds = p * (dp - (p * dp).sum(-1, keepdims=True))
        found = [ds @ k * q.shape[-1] ** -0.5, ds.swapaxes(-1, -2) @ q * q.shape[-1] ** -0.5, p.swapaxes(-1, -2) @ g]
        if bias is None:
            return tuple(found)
        axes = tuple(i for i in range(4) if bias.shape[i] == 1 and ds.shape[i] > 1)
        each = ds if wrong and bias.shape[0] == bias.shape[2] == 1 < bias.shape[1] else None
        summed = ds.sum(axes, keepdims=True) if each is None else len(q) * each[:1].sum(2, keepdims=True)
        return (*found, summed)

    def forward(q: Any, k: Any, v: Any, *, bias: Any = None) -> Any:
        s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + (0 if bias is None else bias)
        p = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
        return p / p.sum(-1, keepdims=True) @ v

    for wrong in (False, True):
        with np.errstate(all="ignore"):
            result = verify.check(forward, backward=backward, dtype="float64", quick=True)
        kinds = [f for f in result.findings if f.kind == "bias gradient"]
        assert bool(kinds) == wrong, result.text()
