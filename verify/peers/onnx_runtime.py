"""ONNX Runtime: its Attention operator as a target, and any model file with inputs q, k, v.

Guarantees: a model is handed to onnxruntime as it is; nothing in it is executed by Python.
Does not: run custom operators, or models with other inputs than queries, keys, values and a mask.

Operator: ONNX Attention-23 (onnx.ai, operators, Attention): boolean mask True = the key takes part; is_causal is
top-left.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from verify.errors import MissingError, UsageError


def _modules() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise MissingError("onnxruntime needs two packages: pip install onnx onnxruntime") from error
    return onnx, onnxruntime


@lru_cache(maxsize=64)
def _session(dtype: str, mask: str, causal: int, scale: float | None, softcap: float, opset: int = 23) -> Any:
    onnx, onnxruntime = _modules()
    helper, kinds = onnx.helper, onnx.TensorProto
    kind = {"float32": kinds.FLOAT, "float16": kinds.FLOAT16, "float64": kinds.DOUBLE, "bfloat16": kinds.BFLOAT16}[
        dtype
    ]
    shape = [None, None, None, None]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name in ("q", "k", "v")]
    if mask:
        inputs.append(helper.make_tensor_value_info("mask", kinds.BOOL if mask == "bool" else kind, shape))
    attributes: dict[str, Any] = {"is_causal": causal, "softcap": softcap}
    if scale is not None:
        attributes["scale"] = scale
    node = helper.make_node("Attention", [i.name for i in inputs], ["y"], **attributes)
    graph = helper.make_graph([node], "attention", inputs, [helper.make_tensor_value_info("y", kind, shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> Any:
    """One Attention node, run by ONNX Runtime on the CPU."""
    if mask is not None and bias is not None:
        raise NotImplementedError("the operator takes one attn_mask, boolean or additive")
    chosen = mask if mask is not None else bias
    kind = "" if chosen is None else "bool" if mask is not None else "float"
    _, onnxruntime = _modules()
    state = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        session = _session(q.dtype.name, kind, int(causal), scale, float(softcap or 0.0))
        feeds = {"q": q, "k": k, "v": v} | ({} if chosen is None else {"mask": _written_out(chosen, q, k)})
        return session.run(None, feeds)[0]
    except (state.Fail, state.NotImplemented, state.InvalidArgument) as error:
        # ONNX Runtime's own refusal: it gives no answer, so that there is none to judge.
        raise NotImplementedError(" ".join(str(error).split())[:300]) from error


def _written_out(mask: Any, q: Any, k: Any) -> Any:
    """Rank 4 with its last axes written out, as the operator's text asks (it extends a short mask)."""
    return np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:2], q.shape[2], k.shape[2])))


def model_function(path: str) -> tuple[Any, dict[str, str], str]:
    """(function, parameters, layout) of a model file with three float inputs and perhaps a mask.

    Raises UsageError for another signature, MissingError without onnxruntime.
    """
    _, onnxruntime = _modules()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UsageError(f"onnxruntime can't load {path}: {error}") from error
    inputs = session.get_inputs()
    shown = ", ".join(f"{i.name}: {i.type}{i.shape}" for i in inputs)
    if len(inputs) not in (3, 4):
        raise UsageError(f"{path} has inputs ({shown}): expected q, k, v and perhaps a mask")
    ranks = {len(i.shape) for i in inputs[:3]}
    if len(ranks) != 1 or not ranks <= {2, 4}:
        raise UsageError(f"{path} has inputs ({shown}): expected q, k, v of rank 4 (batch, heads, n, d) or 2")
    names = [i.name for i in inputs]
    boolean = len(inputs) == 4 and "bool" in inputs[3].type

    def run(q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None) -> Any:
        chosen = mask if boolean else bias
        feeds = dict(zip(names, (q, k, v), strict=False))
        if len(names) == 4:
            if chosen is None:
                full = (1, 1, q.shape[-2], k.shape[-2])
                chosen = np.ones(full, bool) if boolean else np.zeros(full, q.dtype)
            feeds[names[3]] = chosen
        return session.run(None, feeds)[0]

    parameters = {} if len(inputs) == 3 else {"mask": "mask"} if boolean else {"bias": "bias"}
    return run, parameters, "bhnd" if ranks == {4} else "nd"
