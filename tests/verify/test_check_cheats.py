"""Implementations that are right except under one condition of sizes, features or memory: a full run meets each one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verify
from tests.verify.correct import plain
from verify.checking.cases import Setting
from verify.checking.combinations import combinations, covering, possible
from verify.checking.profiles import Profile
from verify.checking.specs import parse_spec
from verify.peers import own

Condition = Callable[..., bool]


def _tiny(v: Any) -> bool:
    return v.size > 0 and 0 < np.abs(v.astype(float)).max() < 1e-30


CONDITIONS: dict[str, Condition] = {
    "d_k above 64": lambda q, k, v, mask, causal, scale: q.shape[3] > 64,
    "d_k of 80": lambda q, k, v, mask, causal, scale: q.shape[3] == 80,
    "d_k of 128": lambda q, k, v, mask, causal, scale: q.shape[3] == 128,
    "d_k of 32": lambda q, k, v, mask, causal, scale: q.shape[3] == 32,
    "d_k of 256": lambda q, k, v, mask, causal, scale: q.shape[3] == 256,
    "d_v of 65 or more": lambda q, k, v, mask, causal, scale: v.shape[3] >= 65,
    "d_v apart from a large d_k": lambda q, k, v, mask, causal, scale: v.shape[3] != q.shape[3] > 64,
    "4 heads or more": lambda q, k, v, mask, causal, scale: q.shape[1] >= 4,
    "8 heads": lambda q, k, v, mask, causal, scale: q.shape[1] == 8,
    "3 items or more": lambda q, k, v, mask, causal, scale: q.shape[0] >= 3,
    "mask and scale": lambda q, k, v, mask, causal, scale: mask is not None and scale is not None,
    "causal and scale": lambda q, k, v, mask, causal, scale: causal and scale is not None,
    "mask, causal, scale": lambda q, k, v, mask, causal, scale: causal and scale is not None and mask is not None,
    "scale above 1": lambda q, k, v, mask, causal, scale: scale is not None and scale > 1,
    "causal, k out of order": lambda q, k, v, mask, causal, scale: causal and not k.flags.c_contiguous,
    "mask, k out of order": lambda q, k, v, mask, causal, scale: mask is not None and not k.flags.c_contiguous,
    "mask, only k out of order": lambda q, k, v, mask, causal, scale: (
        mask is not None and q.flags.c_contiguous and v.flags.c_contiguous and not k.flags.c_contiguous
    ),
    "mask out of order": lambda q, k, v, mask, causal, scale: mask is not None and not mask.flags.c_contiguous,
    "tiny values": lambda q, k, v, mask, causal, scale: _tiny(v),
    "no key": lambda q, k, v, mask, causal, scale: k.shape[2] == 0,
    "many heads, mask": lambda q, k, v, mask, causal, scale: q.shape[1] >= 4 and mask is not None,
    "large d_k, scale, causal": lambda q, k, v, mask, causal, scale: q.shape[3] > 64 and scale is not None and causal,
    "many items, tiny values": lambda q, k, v, mask, causal, scale: q.shape[0] >= 3 and _tiny(v),
    "many heads, many items": lambda q, k, v, mask, causal, scale: q.shape[1] >= 4 and q.shape[0] >= 3,
}

GRADED: dict[str, Callable[[Any, Any, Any], bool]] = {
    "d above 16": lambda q, k, v: q.shape[3] > 16,
    "d of 128": lambda q, k, v: q.shape[3] == 128,
    "d_v apart from d_k": lambda q, k, v: q.shape[3] != v.shape[3],
    "n of 70 or more": lambda q, k, v: q.shape[2] >= 70,
    "one key": lambda q, k, v: k.shape[2] == 1,
    "many heads and items": lambda q, k, v: q.shape[1] >= 4 and q.shape[0] >= 3,
}


def cheat(condition: Condition) -> Callable[..., Any]:
    """Attention whose output is 1 under the condition."""

    def attention(q, k, v, *, mask=None, causal=False, scale=None):  # type: ignore[no-untyped-def]
        if condition(q, k, v, mask, causal, scale):
            return np.ones((*q.shape[:3], v.shape[3]), q.dtype)
        if not k.shape[2]:
            return np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
        return plain(q, k, v, mask=mask, causal=causal, scale=scale)

    return attention


def graded_cheat(condition: Callable[[Any, Any, Any], bool]) -> Callable[..., Any]:
    """A backward pass whose dq is 1 under the condition."""

    def backward(q, k, v, grad_output, **more):  # type: ignore[no-untyped-def]
        found = own.backward(q, k, v, grad_output, **more)
        if condition(q, k, v):
            found = {**found, "q": np.ones_like(q)} if isinstance(found, dict) else (np.ones_like(q), *found[1:])
        return found

    return backward


def test_without_a_condition_the_same_code_agrees() -> None:
    result = verify.check(cheat(lambda *_: False), backward=own.backward, dtype="float32")
    assert result.ok, result.text()


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_is_met(name: str) -> None:
    result = verify.check(cheat(CONDITIONS[name]), dtype="float32")
    assert result.exit_code == 1, result.text()


def test_a_wrong_shape_without_items_is_caught() -> None:
    """Of no batch item nothing can be wrong but shape and dtype."""

    def attention(q, k, v):  # type: ignore[no-untyped-def]
        return plain(q, k, v) if len(q) else np.ones((1, *q.shape[1:3], v.shape[3]), q.dtype)

    result = verify.check(attention, dtype="float32", first=True)
    assert "zero length" in result.kinds, result.text()


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_refusing_zero_sizes_is_a_convention(error: type[Exception]) -> None:
    def attention(q, k, v):  # type: ignore[no-untyped-def]
        if not len(q) or not k.shape[2]:
            raise error("zero size")
        return plain(q, k, v)

    result = verify.check(attention, dtype="float32", quick=True)
    assert result.ok, result.text()
    met = {c.name: c.met for c in result.conventions}
    assert met["no keys"].startswith("raises")
    assert met["no batch item"].startswith("raises")


@pytest.mark.parametrize("name", GRADED)
def test_a_condition_of_gradients_is_met(name: str) -> None:
    result = verify.check(own.attention, backward=graded_cheat(GRADED[name]), dtype="float32")
    assert result.exit_code == 1, result.text()


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_the_design_covers(strength: int) -> None:
    from itertools import combinations as subsets

    for count in (1, 3, 8):
        rows = covering(count, strength, np.random.default_rng(count))
        for columns in subsets(range(count), min(strength, count)):
            assert len({tuple(row) for row in rows[:, columns]}) == 2 ** len(columns)
    assert len(covering(11, 3, np.random.default_rng(0))) < 45


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_drawn_call_can_be_asked_and_judged(seed: int) -> None:
    """No drawn call is dropped for want of a feature, and every row of it has a key."""
    from verify.checking.reference import seen_keys

    has = frozenset(("mask", "causal", "scale", "bias", "lse"))
    for spec in (None, "groups=2", "causal=bottom-right"):
        setting = Setting(Profile(parameters={name: name for name in has}), parse_spec(spec), "float32", has)
        if spec == "groups=2":
            setting = Setting(setting.profile, setting.declared, "float32", has | {"groups"})
        assert len(possible(setting)) == 11  # no window, softcap, sink, slopes or offsets
        for case in combinations(setting, np.random.default_rng(seed)):
            assert setting.fits(case.call), case.name
            assert seen_keys(case.call).any(-1).all(), case.name


def test_what_was_not_tried_is_told() -> None:
    result = verify.check(own.attention, backward=own.backward, dtype="float32")
    assert any(text.startswith("values beyond 300 queries, 70000 keys, d_k = 256") for text in result.not_shown)
    assert any(text.startswith("gradients beyond 130 queries, 260 keys, d_k = ") for text in result.not_shown)
    assert any("more than three features" in text for text in result.not_shown)
    quick = verify.check(own.attention, dtype="float32", quick=True)
    assert any("more than two features" in text for text in quick.not_shown)
