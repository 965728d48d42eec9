"""A case of tests.compute.families as a head of compute, and as exact balls."""

from __future__ import annotations

from typing import Any

import numpy as np

from compute.heads import Head, split
from compute.spec import Spec
from tests.compute.families import Case, keep_of
from tests.compute.truth import truth


def spec_of(extras: dict[str, Any]) -> Spec:
    return Spec(scale=extras.get("scale"), causal=extras.get("causal", "none"), softcap=extras.get("softcap"))


def arrays_of(extras: dict[str, Any]) -> dict[str, Any]:
    out = {name: extras[name] for name in ("mask", "bias") if name in extras}
    if "sink" in extras:
        out["sink"] = np.array([extras["sink"]])
    return out


def head_of(case: Case) -> Head:
    q, k, v, extras = case
    return split(q, k, v, spec_of(extras), **arrays_of(extras)).items[0]


def exact_of(case: Case, grad: np.ndarray | None = None, prec: int = 200) -> dict[str, Any]:
    q, k, v, extras = case
    biases = (np.where(np.isfinite(extras["bias"]), extras["bias"], 0.0),) if "bias" in extras else ()
    return truth(
        q, k, v, scale=extras.get("scale"), keep=keep_of(extras, len(q), len(k)), biases=biases,
        softcap=extras.get("softcap"), sink=extras.get("sink"), grad_output=grad, prec=prec,
    )  # fmt: skip
