"""PyTorch's CPU kernels beside certified values: what its errors are, and that the declared bounds hold for them."""

from __future__ import annotations

import numpy as np
import pytest

from compute.bounds import Eager, Flash, tolerance
from compute.certificate import certify
from compute.search import worst_inputs
from tests.compute.lowprec import F32, quant

pytestmark = pytest.mark.peers


def torch_sdpa(q, k, v, dtype: str, math: bool = False) -> np.ndarray:
    import torch

    width = v.shape[1]
    v = np.hstack([v, np.zeros((len(v), q.shape[1] - width))])  # its flash kernel wants d_v = d_k
    arrays = [torch.from_numpy(np.asarray(x, F32)).to(getattr(torch, dtype))[None, None] for x in (q, k, v)]
    kinds = torch.nn.attention.SDPBackend
    with torch.nn.attention.sdpa_kernel(kinds.MATH if math else kinds.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(*arrays)
    return out[0, 0, :, :width].double().numpy()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_its_kernels_keep_within_their_bounds(dtype: str, spread: float) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (quant(x, dtype) for x in (spread * rng.standard_normal((64, 64)), *rng.standard_normal((2, 256, 64))))
    exact = certify(q, k, v).output
    # its approximate exp in 16 bits is far from 3 ulp of float32; 64 covers what was seen of it
    flash = Flash(weights=dtype, output=dtype, exp_ulp=64.0)
    assert tolerance(q, k, v, algorithm=flash).allows(torch_sdpa(q, k, v, dtype), exact.mid, exact.rad).all()
    stored = None if dtype == "float32" else dtype
    eager = Eager(weights=dtype, output=dtype, scores=stored, scale_on="both", scale_format=stored)
    got = torch_sdpa(q, k, v, dtype, math=True)
    assert tolerance(q, k, v, algorithm=eager).allows(got, exact.mid, exact.rad).all()


def test_its_float32_exp_flushes_before_a_huge_value() -> None:
    q, k, v = np.ones((1, 1)), np.array([[0.0], [-87.5]]), quant(np.array([[1e-8], [3e37]]), "float32")
    exact = certify(q, k, v).output
    got = torch_sdpa(q, k, v, "float32")
    tol = tolerance(q, k, v, algorithm=Flash())
    assert tol.allows(got, exact.mid, exact.rad).all()
    if abs(got - exact.mid)[0, 0] > 0.1:  # where exp flushes, the underflow term alone explains it
        assert abs(got - exact.mid)[0, 0] > (tol.total - tol.sources["underflow"])[0, 0]


def test_subnormal_values_through_its_eager_path() -> None:
    m = 1000
    q, k, v = np.zeros((1, 4)), np.zeros((m, 4)), np.full((m, 1), float(F32(1e-42)))
    exact = certify(q, k, v).output
    for flush in (False, True):
        tol = tolerance(q, k, v, algorithm=Eager(scale_on="both", flush=flush))
        if tol.allows(torch_sdpa(q, k, v, "float32", math=True), exact.mid, exact.rad).all():
            return
    raise AssertionError("neither gradual underflow nor flushing explains the result")


def test_values_that_cancel_are_no_fault_of_float32() -> None:
    """The classroom case: an error of several times the largest output, within the bound of correct arithmetic."""
    from verify.commands.certify import example

    arrays = example()
    exact = certify(arrays["q"], arrays["k"], arrays["v"]).output
    got = torch_sdpa(arrays["q"], arrays["k"], arrays["v"], "float32")
    assert np.abs(got - exact.mid).max() > np.abs(exact.mid).max()
    tol = tolerance(arrays["q"], arrays["k"], arrays["v"], algorithm=Flash())
    assert tol.allows(got, exact.mid, exact.rad).all()


def test_the_search_drives_its_float16_kernel() -> None:
    def kernel(q, k, v):
        return torch_sdpa(q, k, v, "float16")

    found = worst_inputs(kernel, None, "fp16", (1, 1024, 64, 1), 3.0, algorithm=Flash(weights="fp16", output="fp16"))
    assert found.gain > 20


def test_the_search_drives_its_float16_gradients() -> None:
    """dK thousands of times worse than at random, and within the bound of what its kernel declares all the same."""
    import torch

    def kernel(q, k, v, go):
        arrays = [torch.from_numpy(np.asarray(x, F32)).half()[None, None].requires_grad_(True) for x in (q, k, v)]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(*arrays)
        grad = torch.from_numpy(np.asarray(go, F32)).half()[None, None]
        return torch.autograd.grad(out, arrays, grad)[1][0, 0].double().numpy()

    alg = Flash(weights="fp16", output="fp16", exp_ulp=64.0)
    found = worst_inputs(kernel, None, "fp16", (256, 256, 32, 32), 3.0, target="dk", algorithm=alg)
    assert found.gain > 1000
    assert found.shares is not None
    assert found.shares.max() <= 1


def findings():
    import importlib.util
    from pathlib import Path

    path = Path(__file__).parents[2] / "benchmarks" / "torch_findings.py"
    spec = importlib.util.spec_from_file_location("torch_findings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_model_fits_its_kernels_where_they_do_what_is_declared() -> None:
    """And shows where they don't: a biased exp in float16, gradients added up in 16 bits from block to block."""
    run = findings()
    sigma, rms = run.bias("float16", 1.0, n=512)
    assert abs(sigma) < 5
    assert 0.9 < rms < 1.1
    dq, dk, dv = run.gradients("bfloat16", 512)
    assert 0.9 < dq < 1.1
    # a later version may add up in float32: then these are 1 as well
    assert 0.9 < dk < 1.9
    assert 0.9 < dv < 1.9
