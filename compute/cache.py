"""Keys and values kept between calls: chunked prefill and one-token decode.

Guarantees: the rows that come out are the rows of one call over all tokens, in any chunking: positions of corner,
window, RoPE and ALiBi go on from what is in the cache; unfilled slots are never read.
Does not: hold sequences of different length side by side (compute.attention with key_lengths does), or evict.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compute import rope as rotary
from compute.arrays import Array, is_float, work_dtype
from compute.calls import attention
from compute.checks import flag, required, shown, whole
from compute.errors import InputError
from compute.spec import Spec


class Cache:
    """Keys and values of the tokens so far, for one Spec.

    q, k, v of each call are (…, h, n, d_k), (…, h_kv, n, d_k), (…, h_kv, n, d_v) of the n new tokens. The Spec must be
    causal; both corners mean the same here, as queries and keys are the same tokens. Its past must be 0.
    capacity: the most tokens. Keys are held with RoPE applied, in the work dtype.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 6, 4))
    >>> cache = Cache(Spec(causal=True), capacity=8)
    >>> a = cache.extend(x[:, :5], x[:, :5], x[:, :5])
    >>> b = cache.extend(x[:, 5:], x[:, 5:], x[:, 5:])
    >>> bool(abs(attention(x, x, x, Spec(causal=True))[:, 5:] - b).max() < 1e-15)
    True
    """

    def __init__(self, spec: Spec, capacity: int) -> None:
        if not isinstance(spec, Spec):
            raise InputError(f"spec is {shown(spec)}: expected a compute.Spec")
        if spec.causal == "none":
            raise InputError("a cache needs a causal Spec: later tokens are not there yet when a query is answered")
        if spec.past:
            raise InputError(f"Spec has past={spec.past}: a cache counts the past itself, expected 0")
        capacity = whole("capacity", capacity, 0, "a number of tokens")
        if capacity > 2**40:
            raise InputError("capacity is beyond 2^40: expected a number of tokens, whose keys fit into memory")
        self.spec, self.capacity, self.length = spec, capacity, 0
        self._dtype: Any = None
        self._keys: Array | None = None
        self._values: Array | None = None

    def extend(self, q: Array, k: Array, v: Array, *, return_lse: bool = False, **options: Any) -> Any:
        """Take the keys and values of n new tokens and answer their queries (n = 1 is decoding).

        options: sink, alibi_slopes, algorithm, threads of compute.attention. The cache is unchanged when an
        InputError is raised.
        """
        xp = required(q=q, k=k, v=v)
        flag("return_lse", return_lse)
        alike = min(q.ndim, k.ndim, v.ndim) >= 2 and q.ndim == k.ndim == v.ndim
        if not alike or q.shape[-2] != k.shape[-2] or k.shape[:-1] != v.shape[:-1]:
            raise InputError(
                f"q {q.shape}, k {k.shape}, v {v.shape}: expected queries, keys, values of the same tokens"
            )
        start, stop = self.length, self.length + int(k.shape[-2])
        if stop > self.capacity:
            raise InputError(f"the cache holds {start} of {self.capacity} tokens: no room for {k.shape[-2]} more")
        keys, values = self._room(q, k, v)
        rope = self.spec.rope
        wide = k.astype(keys.dtype)
        keys[..., start:stop, :] = wide if rope is None else rotary.rotate(xp, wide, rope.k_offset + start, rope)
        values[..., start:stop, :] = v
        seen_k, seen_v = keys[..., :stop, :], values[..., :stop, :]
        queries = q.astype(keys.dtype)
        if rope is not None:
            queries = rotary.rotate(xp, queries, rope.q_offset + start, rope)
        spec = replace(self.spec, causal="top-left", past=start, rope=None)
        out, lse = attention(queries, seen_k, seen_v, spec, return_lse=True, **options)
        self._keys, self._values, self.length, self._dtype = keys, values, stop, k.dtype
        out = out.astype(q.dtype, copy=False)
        return (out, lse) if return_lse else out

    def prefill(self, q: Array, k: Array, v: Array, chunk: int, **options: Any) -> Array:
        """`extend` in chunks of at most `chunk` tokens; the outputs joined."""
        chunk = whole("chunk", chunk, 1, "a number of tokens")
        xp = required(q=q, k=k, v=v)
        for name, x in (("q", q), ("k", k), ("v", v)):
            if x.ndim < 2:
                raise InputError(f"{name} has shape {tuple(x.shape)}: expected (…, heads, n, channels)")
        n = int(k.shape[-2])
        parts = [
            self.extend(*(x[..., a : a + chunk, :] for x in (q, k, v)), **options) for a in range(0, max(n, 1), chunk)
        ]
        return xp.concatenate(parts, axis=-2)

    def _room(self, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        xp = required(q=q, k=k, v=v)
        if not (is_float(q.dtype) and q.dtype == k.dtype == v.dtype):
            raise InputError(f"q, k, v have dtypes {q.dtype}, {k.dtype}, {v.dtype}: expected one floating dtype")
        if self.spec.rope is not None:
            rotary.check(self.spec.rope, int(k.shape[-1]))
        if self._keys is None or self._values is None:
            shape, work = (*k.shape[:-2], self.capacity), work_dtype(k.dtype)
            return xp.zeros((*shape, k.shape[-1]), dtype=work), xp.zeros((*shape, v.shape[-1]), dtype=work)
        if k.dtype != self._dtype:
            raise InputError(f"k has dtype {k.dtype}, the cache was filled with {self._dtype}: expected one dtype")
        for name, new, held in (("k", k, self._keys), ("v", v, self._values)):
            if new.shape[:-2] != held.shape[:-2] or new.shape[-1] != held.shape[-1]:
                raise InputError(
                    f"{name} has shape {new.shape}, the cache holds {held.shape}: only the length may differ"
                )
        return self._keys, self._values
