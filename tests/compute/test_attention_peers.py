"""compute.attention beside independent implementations: torch (values and gradients) and jax (values)."""

import numpy as np
import pytest

import compute
from compute import Spec

ALGORITHMS = ("shifted", "online", "bounded")


def arrays(dtype, h=4, h_kv=2, n=70, m=90, d=16):
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, h, n, d)), rng.normal(size=(2, h_kv, m, d)), rng.normal(size=(2, h_kv, m, d))
    mask = rng.random((2, 1, n, m)) > 0.3
    bias = rng.normal(size=(1, h, n, m))
    return [x.astype(dtype) for x in (q, k, v)], mask, bias.astype(dtype), rng.normal(size=(2, h, n, d)).astype(dtype)


def slack(dtype, m):
    """Two computations, each within (m + logits of size 16 with 16 products) roundings of values up to 5."""
    return 2 * (m + 16 * 16) * float(np.finfo(dtype).eps) * 5


@pytest.mark.peers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "bias", "scale"])
def test_torch(dtype, kind):
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    (q, k, v), mask, bias, grad = arrays(dtype)
    spec, given, theirs = Spec(), {}, {}
    if kind == "causal":
        spec, theirs = Spec(causal="top-left"), {"is_causal": True}
    elif kind == "mask":
        given, theirs = {"mask": mask}, {"attn_mask": torch.from_numpy(mask)}
    elif kind == "bias":
        given, theirs = (
            {"bias": bias},
            {"attn_mask": torch.from_numpy(np.broadcast_to(bias, (2, *bias.shape[1:])).copy())},
        )
    elif kind == "scale":
        spec, theirs = Spec(scale=0.3), {"scale": 0.3}
    tensors = [torch.from_numpy(x).requires_grad_(True) for x in (q, k, v)]
    repeated = [tensors[0], *(t.repeat_interleave(2, 1) for t in tensors[1:])]
    want = sdpa(*repeated, **theirs)
    want.backward(torch.from_numpy(grad))
    for algorithm in ALGORITHMS:
        out = compute.attention(q, k, v, spec, **given, algorithm=algorithm)
        assert abs(out - want.detach().numpy()).max() <= slack(dtype, 90)
        g = compute.attention_backward(grad, q, k, v, spec, **given, algorithm=algorithm)
        for mine, tensor in zip((g.dq, g.dk, g.dv), tensors, strict=True):
            assert abs(mine - tensor.grad.numpy()).max() <= 70 * 2 * slack(dtype, 90)


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "bias", "window"])
def test_jax(kind):
    import jax

    (q, k, v), mask, bias, _ = arrays(np.float32, n=90)
    spec, given, theirs = Spec(), {}, {}
    if kind == "causal":
        spec, theirs = Spec(causal=True), {"is_causal": True}
    elif kind == "mask":
        mask = mask[:, :, :1]
        given, theirs = {"mask": mask}, {"mask": mask}
    elif kind == "bias":
        bias = bias[:, :, :1]
        given, theirs = {"bias": bias}, {"bias": bias}
    elif kind == "window":
        spec, theirs = Spec(window=(5, 2)), {"local_window_size": (5, 2)}
    last = [np.swapaxes(x, 1, 2) for x in (q, k, v)]
    want = np.swapaxes(np.asarray(jax.nn.dot_product_attention(*last, **theirs)), 1, 2)
    for algorithm in ALGORITHMS:
        out = compute.attention(q, k, v, spec, **given, algorithm=algorithm)
        assert abs(out - want).max() <= slack(np.float32, 90)
