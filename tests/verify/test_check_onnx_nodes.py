"""ONNX's own node tests, run on `compute` by an adapter: all of Attention, Softmax and RotaryEmbedding."""

from typing import Any

import numpy as np
import pytest

from verify.peers import onnx_nodes

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


def cases(prefix: str) -> list[Any]:
    import ml_dtypes  # noqa: F401 - bfloat16 arrays of the cases
    from onnx.backend.test.loader import load_node_model_tests

    legacy: Any = np.random.get_state()  # noqa: NPY002 - the loader reseeds the global generator
    try:
        found = [c for c in load_node_model_tests() if c.name.startswith(prefix) and "log" not in c.name]
    finally:
        np.random.set_state(legacy)  # noqa: NPY002
    return found


def attributes_of(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def close(case: Any, got: Any, wanted: Any) -> bool:
    """The suite's own rule (onnx.backend.test.runner): equal dtypes, its tolerances, two ulp for bfloat16."""
    if got is None or np.shape(got) != np.shape(wanted) or np.asarray(got).dtype != wanted.dtype:
        return False
    rtol = max(case.rtol, 2.0**-6) if wanted.dtype.name == "bfloat16" else case.rtol
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    return bool(np.allclose(got, wanted, rtol=rtol, atol=case.atol, equal_nan=True))


def test_attention_93_of_93() -> None:
    found = [c for c in cases("test_attention") if len(c.model.graph.node) == 1]
    assert len(found) == 93
    failed = []
    for case in found:
        node = case.model.graph.node[0]
        assert node.op_type == "Attention"
        given, wanted = case.data_sets[0]
        names = iter(given)
        inputs = [next(names) if name else None for name in node.input]
        got = onnx_nodes.attention(inputs, attributes_of(node), node.output)
        present = [value for value, name in zip(got, node.output, strict=False) if name]
        if not all(close(case, g, w) for g, w in zip(present, wanted, strict=True)):
            failed.append(case.name)
    assert not failed, failed


def test_softmax_14_of_14() -> None:
    """7 cases as one node, and the same as expanded functions of two opsets."""
    found = cases("test_softmax_")
    singles = {c.name: attributes_of(c.model.graph.node[0]) for c in found if len(c.model.graph.node) == 1}
    assert len(singles) == 7
    assert len(found) >= 14
    for case in found:
        base = case.name.split("_expanded")[0]
        (x,), (wanted,) = case.data_sets[0]
        assert close(case, onnx_nodes.softmax(x, singles[base].get("axis", -1)), wanted), case.name


def test_rotary_8_of_8() -> None:
    found = [c for c in cases("test_rotary_embedding") if len(c.model.graph.node) == 1]
    assert len(found) == 8
    for case in found:
        node = case.model.graph.node[0]
        given, (wanted,) = case.data_sets[0]
        assert close(case, onnx_nodes.rotary(given, attributes_of(node)), wanted), case.name
