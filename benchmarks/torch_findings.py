"""What certified values and expected errors say of PyTorch's CPU kernels.

    python benchmarks/torch_findings.py        (where torch is installed)

1. float16 flash forward: is the error a bias? mean of error·sign(exact)/expected, in standard errors.
2. bfloat16 backward: root mean square of dQ, dK, dV over the model of a kernel that adds up in float32, by length.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from compute.bounds import Flash, tolerance
from compute.certificate import certify
from compute.formats import round_to


def torch_run(arrays, dtype, grad=None):
    import torch

    torch.set_num_threads(1)
    tensors = [torch.from_numpy(x.astype(np.float32)).to(getattr(torch, dtype))[None, None] for x in arrays]
    for t in tensors:
        t.requires_grad_(grad is not None)
    out = torch.nn.functional.scaled_dot_product_attention(*tensors)
    if grad is None:
        return out[0, 0].double().numpy()
    out.backward(torch.from_numpy(grad.astype(np.float32)).to(out.dtype)[None, None])
    return [t.grad[0, 0].double().numpy() for t in tensors]


def bias(dtype: str, spread: float, n: int = 1024, d: int = 64) -> tuple[float, float]:
    """(bias in standard errors, root mean square of error over expected)."""
    rng = np.random.default_rng(100)
    q, k, v = (round_to(x, dtype) for x in (spread * rng.standard_normal((n, d)), *rng.standard_normal((2, n, d))))
    exact = certify(q, k, v, tier="norm").output.mid
    expected = tolerance(q, k, v, algorithm=Flash(weights=dtype, output=dtype, block=512), kind="expected").total
    z = (torch_run((q, k, v), dtype) - exact) / expected
    return float(np.mean(z * np.sign(exact)) * math.sqrt(z.size)), float(np.sqrt(np.mean(z * z)))


def gradients(dtype: str, n: int, d: int = 64) -> list[float]:
    """Root mean square of the error over the expected one, for dQ, dK, dV."""
    rng = np.random.default_rng(7)
    q, k, v, go = (round_to(x, dtype) for x in rng.standard_normal((4, n, d)))
    exact = certify(q, k, v, grad_output=go, tier="norm")
    alg = Flash(weights=dtype, output=dtype, block=512)
    model = tolerance(q, k, v, algorithm=alg, kind="expected", grad_output=go).gradients
    got = torch_run((q, k, v), dtype, go)
    ratios = []
    for name, y in zip(("dq", "dk", "dv"), got, strict=True):
        error = y - getattr(exact, name).mid
        ratios.append(float(np.sqrt(np.mean(error**2) / np.mean(model[name].total ** 2))))
    return ratios


def main() -> int:
    for dtype in ("float16", "bfloat16"):
        for spread in (0.5, 1.0, 2.0, 3.0, 4.0):
            sigma, rms = bias(dtype, spread)
            print(
                f"{dtype} forward, scores ×{spread:g}: bias {sigma:+.1f} standard errors, rms {rms:.2f} of expected",
                flush=True,
            )
    for dtype in ("float16", "bfloat16"):
        for n in (128, 512, 1024, 2048, 4096):
            dq, dk, dv = gradients(dtype, n)
            print(f"{dtype} backward, n={n}: rms over expected dQ {dq:.2f} dK {dk:.2f} dV {dv:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
