"""What every attention has, whatever the right values are: no reference is needed to see these broken.

Guarantees: a property is an exact theorem; where rounding may enter, the tolerance is the sum of the worst cases of
the two calls that are compared; "to the bit" is asked only where both calls do the same operations on the entries
that matter, of a target that answers equal calls with equal bits.
Does not: hold a property that an implementation's own conventions may break (NaN behind a mask is `conventions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from verify.checking.calls import Array, Call, Reply
from verify.checking.cases import Generator, Setting
from verify.checking.values import Answer, Violation, comparable

Ask = Callable[[Call], Reply]
Solve = Callable[[Call], Answer]
REPEATS = 8


@dataclass(frozen=True, eq=False)
class Broken:
    """A property that does not hold. call: the call that shows it."""

    property: str
    kind: str
    call: Call
    violation: Violation


def properties(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """All properties that the target can be asked about; yields those that are broken."""
    for test in (
        rows_sum_to_one,
        shift_of_keys,
        permutation_of_keys,
        permutation_of_queries,
        isolation,
        powers_of_two,
        masked_keys_inert,
        bias_masked_keys_inert,
        future_keys_inert,
        window_keys_inert,
        lengths_inert,
        a_masked_key_appended,
        mask_written_out,
        empty_rows_apart,
        last_row_alone,
        masks_matter,
    ):
        yield from test(setting, rng, ask, solve)


def _compare(
    name: str, kind: str, first: tuple[Call, Reply], second: tuple[Call, Array], room: Array, judged: Array, text: str
) -> Iterator[Broken]:
    """The first reply's output against what it must equal, within `room`."""
    call, reply = first
    if not comparable(call, reply) or reply.output is None:
        return
    got, wanted = reply.output.astype(np.float64), second[1].astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(got - wanted)
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        bad = judged & ~same & ~(error <= room) & np.isfinite(room)
    if not bad.any():
        return
    size = np.where(bad, np.where(np.isfinite(error), error, np.inf), -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(size.argmax()), size.shape))
    allowed = float(np.broadcast_to(room, got.shape)[index])
    ratio = float(error[index] / allowed) if allowed else np.inf
    message = f"{text}: {float(got[index]):.9g} against {float(wanted[index]):.9g}"
    yield Broken(
        name, kind, call,
        Violation(name, message, index, float(got[index]), float(wanted[index]), 0.0, allowed, ratio=ratio),
    )  # fmt: skip


def _pair(
    name: str, kind: str, ask: Ask, solve: Solve, first: Call, second: Call, back: Callable[[Array], Array], text: str,
    *, exact: Setting | None = None, rows: Array | None = None,
) -> Iterator[Broken]:  # fmt: skip
    """f(first) = back(f(second)), within the worst cases of both.

    exact: to the bit instead, of calls that differ in hidden entries only (back is the identity), if the target of
    this setting is not seen to answer equal calls with other bits.
    """
    base, other = ask(first), ask(second)
    if not comparable(first, base) or not comparable(second, other) or base.output is None or other.output is None:
        return
    one, two = solve(first), solve(second)
    wanted = back(other.output)
    judged = one.judged[..., None] & np.ones(base.output.shape, bool)
    if rows is not None:
        judged &= rows

    def within(room: Array) -> list[Broken]:
        return list(_compare(name, kind, (first, base), (second, wanted), room, judged, text))

    if exact is None:
        with np.errstate(invalid="ignore"):
            # the two exact answers may differ where inputs were rounded to the dtype
            apart = np.abs(one.right.output - back(two.right.output)).astype(np.float64) * (1 + 2.0**-40) + 1e-300
            yield from within(one.allowed.total + back(two.allowed.total) + apart)
        return
    found = within(np.zeros(base.output.shape))
    # Two orders of the same sums over the same visible entries: each is within the worst case of one exact answer.
    if found and (within(2 * one.allowed.total) or repeats_to_the_bit(exact, ask, (first, second))):
        yield from found


def repeats_to_the_bit(setting: Setting, ask: Ask, calls: Sequence[Call]) -> bool:
    """Whether equal calls are answered with equal bits: these, and one of many entries, where an order shows most."""
    many = setting.call(*setting.normal(np.random.default_rng(5), 33, 129, 16, h=4))
    for call in (*calls, many):
        if setting.fits(call):
            replies = (ask(call) for _ in range(REPEATS))
            if len({r.output.tobytes() for r in replies if r.output is not None}) > 1:
                return False
    return True


def _same(x: Array) -> Array:
    return x


def rows_sum_to_one(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """Constant V gives constant output: the weights of a row sum to 1."""
    kind = "softmax axis"
    q, k, v = setting.normal(rng, 9, 13, 8)
    call = setting.call(q, k, np.ones_like(v))
    if setting.can("sink") or not setting.fits(call):
        return
    reply, known = ask(call), solve(call)
    one = np.ones(known.right.output.shape)
    yield from _compare("rows sum to one", kind, (call, reply), (call, one), known.allowed.total,
                        known.judged[..., None] & (one > 0), "a constant V gives another output")  # fmt: skip


def shift_of_keys(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """A vector added to every key adds a constant to each row of scores, and changes nothing."""
    if setting.base.softcap is not None or setting.base.rope is not None:
        return
    q, k, v = (np.round(x * 4) / 4 for x in setting.normal(rng, 7, 10, 4))
    first = setting.call(q, k, v)
    second = setting.call(q, k + np.array([2.0, -1.0, 0.0, 4.0]), v)
    if setting.fits(first) and not setting.can("sink"):
        yield from _pair(
            "shift invariance", "no max shift", ask, solve, first, second, _same, "keys shifted by one vector"
        )


def permutation_of_keys(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """The order of the keys does not matter."""
    if setting.base.causal != "none" or setting.base.window is not None or setting.base.rope is not None:
        return
    if "alibi" in setting.declared.fields:
        return
    q, k, v = setting.normal(rng, 6, 37, 8)
    order = rng.permutation(37)
    first = setting.call(q, k, v)
    second = setting.call(q, k[:, :, order], v[:, :, order])
    if setting.fits(first):
        yield from _pair("permutation of keys", "layout", ask, solve, first, second, _same, "keys in another order")


def permutation_of_queries(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """Rows do not see each other."""
    if setting.base.causal != "none" or setting.base.window is not None or setting.base.rope is not None:
        return
    if "alibi" in setting.declared.fields:
        return
    q, k, v = setting.normal(rng, 19, 8, 8)
    order = rng.permutation(19)
    back = np.argsort(order)
    first, second = setting.call(q, k, v), setting.call(q[:, :, order], k, v)
    if setting.fits(first):
        yield from _pair("permutation of queries", "layout", ask, solve, first, second,
                         lambda x: x[:, :, back], "queries in another order")  # fmt: skip


def isolation(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """A head, or a batch item, does not see another."""
    if setting.single:
        return
    q, k, v = setting.normal(rng, 5, 7, 4, h=3, b=2)
    first = setting.call(q, k, v)
    if not setting.fits(first):
        return
    k2, v2 = k.copy(), v.copy()
    k2[:, -1], v2[:, -1] = rng.standard_normal(k[:, -1].shape), 8.0
    rows = np.ones(first.q.shape[:2], bool)
    rows[:, -setting.group :] = False
    second = setting.call(q, k2, v2)
    yield from _pair("heads are isolated", "layout", ask, solve, first, second, _same,
                     "another head's keys and values changed", rows=rows[:, :, None, None])  # fmt: skip
    if len(q) > 1:
        k3, v3 = k.copy(), v.copy()
        k3[-1], v3[-1] = rng.standard_normal(k[-1].shape), 8.0
        rows = np.ones(first.q.shape[:2], bool)
        rows[-1] = False
        yield from _pair("batch items are isolated", "layout", ask, solve, first, setting.call(q, k3, v3), _same,
                         "another item's keys and values changed", rows=rows[:, :, None, None])  # fmt: skip


def powers_of_two(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """V times a power of two: the output times it, away from under- and overflow."""
    q, k, v = setting.normal(rng, 6, 11, 8)
    first, second = setting.call(q, k, v), setting.call(q, k, v * 4)
    if setting.fits(first):
        yield from _pair("linear in V", "values", ask, solve, first, second, lambda x: x / 4, "V times 4")


def _poison(setting: Setting) -> tuple[float, float]:
    """(key, value) that no visible entry can be mistaken for, finite, and whose scores stay in range."""
    return (64.0, 3e4) if setting.dtype == "float16" else (1024.0, 2.0**126)


def _inert(
    setting: Setting, ask: Ask, solve: Solve, kind: str, call: Call, hidden: Array, text: str
) -> Iterator[Broken]:
    """Keys that no row sees (b, h_kv, m) may hold anything finite: the output stays, to the bit where bits repeat."""
    if not setting.fits(call) or not hidden.any():
        return
    key, value = _poison(setting)
    k, v = call.k.copy(), call.v.copy()
    k[hidden], v[hidden] = key, value
    yield from _pair("masked keys are inert", kind, ask, solve, call, call.with_(k=k, v=v), _same, text, exact=setting)


def masked_keys_inert(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """Keys that a mask hides from every row."""
    if not setting.can("mask"):
        return
    for scale, kind in ((1.0, "finite -inf"), (0.125, "finite -inf")):
        q, k, v = setting.normal(rng, 6, 9, 4, b=2)
        b, h, hk = q.shape[0], q.shape[1], k.shape[1]
        mask = np.ones((b, h, 6, 9), bool)
        mask[..., 3:5] = mask[..., 8] = False
        hidden = np.zeros((b, hk, 9), bool)
        hidden[..., 3:5] = hidden[..., 8] = True
        yield from _inert(
            setting, ask, solve, kind, setting.call(q * scale, k, v, mask=mask), hidden, "masked keys changed"
        )
        small = mask[:1, :1, :1]
        yield from _inert(setting, ask, solve, "mask broadcast", setting.call(q * scale, k, v, mask=small), hidden,
                          "masked keys changed under a mask over keys only")  # fmt: skip


def bias_masked_keys_inert(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """Keys that a bias of −inf hides from every row."""
    if not setting.can("bias"):
        return
    q, k, v = setting.normal(rng, 6, 9, 4)
    bias = np.zeros((q.shape[0], q.shape[1], 6, 9))
    bias[..., 2:5] = -np.inf
    hidden = np.zeros((*k.shape[:2], 9), bool)
    hidden[..., 2:5] = True
    yield from _inert(setting, ask, solve, "mask arithmetic", setting.call(q, k, v, bias=bias), hidden,
                      "keys behind a bias of -inf changed")  # fmt: skip


def future_keys_inert(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """Row i does not see key i + 1 under causal."""
    if not setting.can("causal") and setting.base.causal == "none":
        return
    spec = setting.spec(causal=True) if setting.can("causal") else setting.base
    q, k, v = setting.normal(rng, 12, 12, 4, b=2)
    first = setting.call(q, k, v, spec)
    if not setting.fits(first):
        return
    key, value = _poison(setting)
    k2, v2 = k.copy(), v.copy()
    k2[:, :, 7:], v2[:, :, 7:] = key / 16, value
    rows = (np.arange(12) < 7)[:, None]
    yield from _pair("future keys are inert", "causal dropped", ask, solve, first, setting.call(q, k2, v2, spec), _same,
                     "later keys changed", exact=setting, rows=rows)  # fmt: skip


def window_keys_inert(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """A row does not see keys outside its window."""
    if not setting.can("window"):
        return
    changes = {"causal": True} if setting.can("causal") else {}
    spec = setting.spec(window=(2, 0), **changes)
    q, k, v = setting.normal(rng, 10, 10, 4)
    first = setting.call(q, k, v, spec)
    if not setting.fits(first):
        return
    key, value = _poison(setting)
    k2, v2 = k.copy(), v.copy()
    k2[:, :, :4], v2[:, :, :4] = key / 16, value
    rows = (np.arange(10) >= 6)[:, None]
    yield from _pair("keys outside the window are inert", "window", ask, solve, first, setting.call(q, k2, v2, spec),
                     _same, "keys before the window changed", exact=setting, rows=rows)  # fmt: skip


def lengths_inert(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """Slots beyond an item's length are inert."""
    if not setting.can("key_lengths") or not setting.batches:
        return
    q, k, v = setting.normal(rng, 3, 8, 4, b=2)
    there = np.array([3, 6])
    hidden = np.broadcast_to(np.arange(8) >= there[:, None, None], (2, k.shape[1], 8))
    yield from _inert(setting, ask, solve, "static cache", setting.call(q, k, v, key_lengths=there), hidden,
                      "slots beyond the length changed")  # fmt: skip


def a_masked_key_appended(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """A masked key more changes nothing, also at the edge of a tile."""
    if not setting.can("mask") or setting.base.window is not None or setting.base.causal != "none":
        return
    for m in (16, 64, 128):
        q, k, v = setting.normal(rng, 3, m + 1, 4)
        mask = np.ones((1, 1, 1, m + 1), bool)
        mask[..., -1] = False
        first = setting.call(q, k, v, mask=mask)
        second = setting.call(q, k[:, :, :-1], v[:, :, :-1])
        if setting.fits(first) and setting.fits(second):
            yield from _pair(
                "a masked key appended", "ragged tile", ask, solve, first, second, _same, "a masked key more"
            )


def mask_written_out(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """A broadcast mask is the same mask written out."""
    if not setting.can("mask"):
        return
    q, k, v = setting.normal(rng, 4, 8, 4, h=3, b=2)
    mask = np.array([1, 1, 0, 1, 0, 0, 1, 1], bool)[None, None, None]
    full = np.broadcast_to(mask, (q.shape[0], q.shape[1], 4, 8))
    first, second = setting.call(q, k, v, mask=mask), setting.call(q, k, v, mask=full)
    if setting.fits(first):
        yield from _pair(
            "a mask written out", "mask broadcast", ask, solve, first, second, _same, "mask broadcast over heads"
        )


def empty_rows_apart(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """A row without keys does not touch the rows beside it."""
    if not setting.can("mask"):
        return
    q, k, v = setting.normal(rng, 4, 5, 4)
    mask = np.ones((1, 1, 4, 5), bool)
    mask[..., 0, 1] = mask[..., 2, 3:] = False
    apart = mask.copy()
    apart[..., 3, :] = False
    rows = (np.arange(4) < 3)[:, None]
    first, second = setting.call(q, k, v, mask=mask), setting.call(q, k, v, mask=apart)
    if setting.fits(first):
        yield from _pair("empty rows touch no other", "empty row", ask, solve, first, second, _same,
                         "another row emptied", rows=rows)  # fmt: skip


def last_row_alone(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """The last query asked alone gives the last row of the full call (decode)."""
    causal = setting.can("causal") or setting.base.causal != "none"
    if causal and setting.corner != "bottom-right":
        return
    if setting.base.rope is not None or (setting.base.window is not None and setting.corner != "bottom-right"):
        return
    spec = setting.spec(causal=True) if setting.can("causal") else setting.base
    q, k, v = setting.normal(rng, 9, 9, 4)
    full, one = setting.call(q, k, v, spec), setting.call(q[:, :, -1:], k, v, spec)
    if "cu_seqlens" in setting.has or "alibi" in setting.declared.fields:
        return
    if setting.fits(full) and setting.fits(one):
        yield from _pair("decode equals the last row", "causal alignment", ask, solve, one, full,
                         lambda x: x[:, :, -1:], "the last query alone")  # fmt: skip


def masks_matter(setting: Setting, rng: Generator, ask: Ask, solve: Solve) -> Iterator[Broken]:
    """Two masks that differ on a row must not give equal rows."""
    if not setting.can("mask"):
        return
    q, k, v = setting.normal(rng, 3, 6, 4)
    one = np.ones((1, 1, 3, 6), bool)
    two = one.copy()
    two[..., 2:4] = False
    first, second = setting.call(q, k, v, mask=one), setting.call(q, k, v, mask=two)
    if not setting.fits(first):
        return
    a, b = ask(first), ask(second)
    if not comparable(first, a) or not comparable(second, b) or a.output is None or b.output is None:
        return
    if np.array_equal(a.output, b.output) and not np.array_equal(solve(first).right.output, solve(second).right.output):
        text = "two masks that differ give the same output to the bit"
        yield Broken("masks matter", "mask dropped", second, Violation("masks matter", text))
