"""Exact values for the device check: the calls of verify/device/arb_cases.py in Arb at 400 bits.

    uv run python benchmarks/device_values.py            say which values differ from verify/device/arb_values.json
    uv run python benchmarks/device_values.py --write    write it anew

Needs python-flint. The values come from tests/compute/truth.py, which shares nothing with what they judge; masks and
corners are written out here.
"""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, ctx

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.compute.truth import truth
from verify.device.arb_cases import FILE, Case, cases

BITS = 400  # a saturated gradient is a difference that loses half of them


def balls(case: Case) -> dict[str, tuple[list[Any], tuple[int, ...]]]:
    """Result name to (balls in row-major order, shape)."""
    q, k, v, grad = (a.astype(np.float64).reshape(-1, *a.shape[-2:]) for a in (case.q, case.k, case.v, case.grad))
    (h, n, _), m, spec = q.shape, k.shape[1], case.spec
    keep = case.given.get("mask")
    if spec.causal == "bottom-right":
        keep = np.arange(m) <= np.arange(n)[:, None] + m - n
    bias, sink = case.given.get("bias"), case.given.get("sink")
    found: dict[str, list[list[Any]]] = {}
    for i in range(h):
        j = i * len(k) // h
        got = truth(
            q[i], k[j], v[j], scale=spec.scale, keep=keep, biases=() if bias is None else (bias,),
            softcap=spec.softcap, sink=None if sink is None else float(sink), grad_output=grad[i], prec=BITS,
        )  # fmt: skip
        base = arb(1) if spec.lse_base != 2.0 else arb(2).log()
        head = {"output": got["z"].entries(), "lse": [None if x is None else x / base for x in got["lse"]]}
        head |= {name: got[name].entries() for name in ("dq", "dk", "dv")} | {"dscale": [got["dscale"]]}
        head |= {"dbias": got["dbias"].entries()} if bias is not None else {}
        head |= {"dsink": [got["dsink"]]} if sink is not None else {}
        for name, entries in head.items():
            found.setdefault(name, []).append(entries)
    shapes = {"output": case.grad.shape, "lse": case.grad.shape[:-1], "dq": case.q.shape, "dk": case.k.shape}
    shapes |= {"dv": case.v.shape, "dscale": (), "dbias": (n, m), "dsink": ()}
    shared = ("dk", "dv", "dscale")  # by the query heads of the one key-value head
    assert len(k) == 1
    joined = {
        name: [sum(x, arb(0)) for x in zip(*parts, strict=True)] if name in shared else list(chain(*parts))
        for name, parts in found.items()
    }
    return {name: (entries, shapes[name]) for name, entries in joined.items() if name not in case.left_out}


def packed(entries: list[Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Two floats an entry and one radius for all, as hexadecimal floats."""
    hi, lo, radius = [], [], 0.0
    for x in entries:
        if x is None:
            hi.append(-np.inf)
            lo.append(0.0)
            continue
        hi.append(float(x.mid()))
        rest = x - arb(hi[-1])
        lo.append(float(rest.mid()))
        left = rest - arb(lo[-1])
        radius = max(radius, 0.0 if left.is_zero() else float(np.nextafter(float(left.abs_upper()), np.inf)))
    text = {name: " ".join(float(x).hex() for x in part) for name, part in (("hi", hi), ("lo", lo))}
    return {"shape": list(shape), **text, "radius": radius.hex()}


def document() -> dict[str, Any]:
    """What the file holds."""
    ctx.prec = BITS
    made = {
        c.name: {"inputs": c.digest(), "values": {name: packed(*x) for name, x in balls(c).items()}} for c in cases()
    }
    return {"bits": BITS, "made_by": "benchmarks/device_values.py", "cases": made}


def main() -> int:
    made = document()
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        print(f"{len(made['cases'])} cases, {FILE.stat().st_size} bytes written to {FILE.name}")
        return 0
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    differ = [name for name in {**made["cases"], **kept["cases"]} if made["cases"].get(name) != kept["cases"].get(name)]
    print(f"{len(made['cases'])} cases, {len(differ)} differ" + "".join(f"\n  {name}" for name in differ))
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
