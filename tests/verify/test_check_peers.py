"""PyTorch, JAX and ONNX Runtime judged by `attnproof check`: none is called wrong; two known faults are suspicious."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import verify

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("target", ["torch.sdpa", "torch.mha", "jax.dot_product_attention"])
def test_libraries_agree_with_gradients(target: str, dtype: str) -> None:
    if target.startswith("jax") and dtype == "float64":
        pytest.skip("compiles too long for a test; the benchmark runs it")
    jax = target.startswith("jax")  # every shape is compiled anew: as many cases as the budget allows
    result = verify.check(target, dtype=dtype, grad=not jax, budget=60 if jax else None)
    assert result.ok, result.text()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_onnxruntime_agrees(dtype: str) -> None:
    result = verify.check("onnxruntime", dtype=dtype)
    assert all(f.verdict == "suspicious" for f in result.findings), result.text()
    assert {c.name for c in result.conventions} >= {"causal", "finfo-row"}


def test_torch_math_is_not_suspicious() -> None:
    for dtype in ("float16", "bfloat16"):
        result = verify.check("torch.sdpa.math", dtype=dtype, grad=True)
        assert result.ok, result.text()


def test_the_first_finding_fp16_forward_leans() -> None:
    """PyTorch's CPU flash kernel in float16: an approximate exp gives a directional bias."""
    result = verify.check("torch.sdpa", dtype="float16")
    assert result.status == "suspicious"
    assert result.kinds == ("bias of error",)
    assert result.findings[0].probability == 1e-4
    assert "exp" in result.findings[0].diagnosis


def test_the_second_finding_bf16_backward_accumulates_in_16_bits() -> None:
    result = verify.check("torch.sdpa", dtype="bfloat16", grad=True)
    assert result.status == "suspicious"
    assert result.kinds == ("RMS of gradient error",)
    assert "16-bit accumulator" in result.findings[0].diagnosis
    assert result.statistics["bfloat16 RMS of gradient of k at n = 512, scores × 1.0"] > 1.4


def test_tensors_are_taken_as_they_are() -> None:
    import jax.numpy as jnp
    import torch

    q = torch.randn(2, 5, 4, dtype=torch.bfloat16, requires_grad=True)
    out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    verify.assert_attention(out, q, q, q)
    with pytest.raises(AssertionError, match="output is"):
        verify.assert_attention(out * 2, q, q, q)
    k = jnp.ones((3, 4))
    verify.assert_attention(jnp.ones((2, 4)), jnp.zeros((2, 4)), k, k)


def test_compile_and_layout_and_arg(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def f(q, k, v, attn_mask=None, softmax_scale=None):\n"
        "    q, k, v = (x.transpose(1, 2) for x in (q, k, v))\n"
        "    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=softmax_scale)\n"
        "    return o.transpose(1, 2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "verify", "check", f"{tmp_path}/mine.py:f", "--like", "torch", "--layout", "bnhd",
         "--arg", "mask=attn_mask", "--dtype", "float32", "--quick"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "empty-row by mask" in done.stdout


def test_an_onnx_file_is_judged(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    def model(scale: float) -> str:
        shape = [None, None, None, None]
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("q", "k", "v")]
        node = (
            helper.make_node("Attention", ["q", "k", "v"], ["y"], scale=scale)
            if scale
            else helper.make_node("Attention", ["q", "k", "v"], ["y"])
        )
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)])
        path = str(tmp_path / f"m{scale}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
        return path

    wrong = verify.check(model(1.0), dtype="float32", quick=True)
    assert wrong.kinds[0] == "scale"
    assert "without a scale" in wrong.findings[0].diagnosis or "scaled" in wrong.findings[0].diagnosis


def test_a_module_with_its_weights() -> None:
    import torch

    from verify.checking.modules import check_module

    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(24, 3, batch_first=True, dtype=torch.float64)
    assert check_module(module).ok
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(1.5)

    class Doubled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module
            self.embed_dim, self.num_heads = module.embed_dim, module.num_heads

        def forward(self, *args: object, **more: object) -> object:
            out, weights = self.inner(*args, **more)
            return out * 1.001, weights

    found = check_module(Doubled(), weights_of=module)
    assert not found.ok
    assert np.isfinite(found.findings[0].got or 0.0)
