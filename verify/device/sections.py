"""The sections of a device check, in the order in which they are run.

Guarantees: correctness comes first, against a float64 formula written here, with outputs poisoned by NaN; a broken
kernel that must fail is part of the run; ceilings and peers are measured in the same run as our kernels.
Does not: compare with a figure from another run.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from typing import Any

import numpy as np

from compute.kernels import attention, montecarlo
from compute.kernels.sources import FORMATS
from compute.spec import Spec
from verify.device.certified import certified
from verify.device.machine import Machine
from verify.device.record import Record

# Worst relative distance (Frobenius) that rounding explains at these sizes: sqrt(m) u for the sums, the format's own
# rounding of the output.
ALLOWED = {"float64": 2e-14, "float32": 1e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}
KEY = [int(w) for w in np.frombuffer(hashlib.blake2b(b"device check", digest_size=16).digest(), "<u8")]


def formula(machine: Machine, p: attention.Problem, grad: Any) -> dict[str, Any]:
    """Output, log-sum-exp and gradients of a problem without mask or sink, in float64 on the same machine."""
    xp = machine.xp
    b, h, h_kv, n, m, d_k, _ = p.sizes
    q, k, v, g = (xp.asarray(a).astype(np.float64) for a in (p.q, p.k, p.v, grad))
    k, v = xp.repeat(k, h // h_kv, axis=1), xp.repeat(v, h // h_kv, axis=1)
    scale = p.spec.scale_value(d_k)
    s = xp.matmul(q, k.swapaxes(-1, -2)) * scale
    if p.spec.causal != "none":
        offset = m - n if p.spec.causal == "bottom-right" else p.spec.past
        s = xp.where(xp.arange(m)[None, :] <= xp.arange(n)[:, None] + offset, s, -xp.inf)
    top = s.max(axis=-1, keepdims=True)
    e = xp.exp(s - top)
    z = e.sum(axis=-1, keepdims=True)
    a = e / z
    out = xp.matmul(a, v)
    ds = a * (xp.matmul(g, v.swapaxes(-1, -2)) - (g * out).sum(axis=-1, keepdims=True)) * scale

    def group(x: Any) -> Any:
        return x.reshape(b, h_kv, h // h_kv, m, -1).sum(axis=2)

    return {
        "out": out,
        "lse": (top + xp.log(z))[..., 0],
        "dq": xp.matmul(ds, k),
        "dk": group(xp.matmul(ds.swapaxes(-1, -2), q)),
        "dv": group(xp.matmul(a.swapaxes(-1, -2), g)),
    }


def errors(machine: Machine, family: str, p: attention.Problem, rng: Any) -> dict[str, float]:
    """Relative distance of each result of a kernel family from the formula; NaN where the kernel left NaN."""
    out, lse = attention.forward(machine.backend, p, family, poison=True)
    grad = machine.draw(rng, out.shape, out.dtype)
    got = {"out": out, "lse": lse, **attention.backward(machine.backend, p, out, lse, grad, None, family, poison=True)}
    want = formula(machine, p, grad)
    return {name: distance(machine.host(got[name]), machine.host(value)) for name, value in want.items()}


def distance(got: Any, want: Any) -> float:
    """Relative distance in the Frobenius norm; NaN where `got` has one."""
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


def build(machine: Machine, record: Record) -> None:
    """Compile and load every attention kernel; on a device also report its registers and spilled bytes."""
    for family, fmt in machine.families():
        record.attempt(f"{family} {fmt}", partial(_build_one, machine, record, family, fmt))


def _build_one(machine: Machine, record: Record, family: str, fmt: str) -> None:
    for name in ("attention_forward", "attention_backward_q", "attention_backward_kv"):
        shared = attention.shared_bytes(family, name, fmt, 64, 64)
        function = machine.backend.function(family, fmt, name, 64, 64, shared)
        usage = {}
        if machine.cuda:
            attribute = machine.xp.cuda.driver.funcGetAttribute
            usage = {"registers": attribute(4, function.ptr), "local_bytes": attribute(3, function.ptr)}
        record.row(kernel=name, family=family, format=fmt, shared_bytes=shared, **usage)


def correct(machine: Machine, record: Record) -> None:
    """Every kernel, format and a handful of shapes against the formula."""
    shapes: list[tuple[int, int, int, int, Spec]] = [
        (64, 64, 2, 2, Spec()),
        (100, 77, 4, 2, Spec()),
        (129, 129, 2, 2, Spec(causal="bottom-right")),
    ]
    if not record.tiny:
        shapes += [(1000, 1500, 8, 4, Spec()), (2048, 2048, 8, 8, Spec(causal=True))]
    for family, fmt in machine.families():
        for shape in shapes:
            record.attempt(f"{family} {fmt} {shape}", partial(_correct_one, machine, record, family, fmt, *shape))


def _correct_one(
    machine: Machine, record: Record, family: str, fmt: str, n: int, m: int, h: int, h_kv: int, spec: Spec
) -> None:
    rng = np.random.default_rng([n, m])
    dtype = FORMATS[fmt].dtype
    q, k, v = (machine.draw(rng, (1, heads, rows, 64), dtype) for heads, rows in ((h, n), (h_kv, m), (h_kv, m)))
    found = errors(machine, family, attention.problem(machine.xp, q, k, v, spec), rng)
    worst = float(np.max(list(found.values())))  # NaN wins
    ok = bool(worst <= ALLOWED[fmt])
    record.row(family=family, format=fmt, n=n, m=m, causal=str(spec.causal), worst=worst, errors=found, ok=ok)


def public_calls(machine: Machine, record: Record) -> None:
    """`compute.attention` and its gradients on the machine's arrays, by every algorithm."""
    algorithms = ("plain", "shifted", "online", "bounded", *(("kernel",) if machine.cuda else ()))
    n = 70 if record.tiny else 1000
    for fmt in ("float64", "float32"):
        for algorithm in algorithms:
            record.attempt(f"{algorithm} {fmt}", partial(_call_one, machine, record, algorithm, fmt, n))


def _call_one(machine: Machine, record: Record, algorithm: Any, fmt: str, n: int) -> None:
    from compute.calls import attention as call
    from compute.calls import attention_backward as call_backward

    rng = np.random.default_rng(n)
    q, k, v = (machine.draw(rng, (1, heads, n, 64), fmt) for heads in (4, 2, 2))
    spec = Spec(causal=True)
    grad = machine.draw(rng, q.shape, fmt)
    want = formula(machine, attention.problem(machine.xp, q, k, v, spec), grad)
    g = call_backward(grad, q, k, v, spec, algorithm=algorithm)
    got = {"out": call(q, k, v, spec, algorithm=algorithm), "dq": g.dq, "dk": g.dk, "dv": g.dv}
    found = {name: distance(machine.host(a), machine.host(want[name])) for name, a in got.items()}
    worst = float(np.max(list(found.values())))
    record.row(algorithm=algorithm, format=fmt, n=n, worst=worst, errors=found, ok=bool(worst <= ALLOWED[fmt]))


def negative_control(machine: Machine, record: Record) -> None:
    """A kernel that forgets to rescale its accumulator must fail the comparison that the others pass."""
    from compute.kernels import sources

    right = sources.text("simt", "float32")
    wrong = right.replace("++c) acc[i][c] *= shrink;", "++c) acc[i][c] *= 1;")
    assert wrong != right, "the planted fault is not in the source any more"
    macros = "".join(f"#define {d.replace('=', ' ')}\n" for d in sources.defines("float32", 64))
    broken = machine.backend.build(macros + wrong, "attention_forward")

    class Broken:
        xp = machine.xp
        name, shared_limit = "a broken kernel", machine.backend.shared_limit

        def function(self, *_: Any) -> Any:
            return broken

        def build(self, *_: Any) -> Any:
            return broken

        def keep(self, array: Any) -> Any:
            return machine.backend.keep(array)

    rng = np.random.default_rng(1)
    q, k, v = (machine.draw(rng, (1, 1, 130, 64), np.float32) for _ in range(3))
    p = attention.problem(machine.xp, q, k, v, Spec())
    out, _ = attention.forward(Broken(), p, "simt")
    want = machine.host(formula(machine, p, q)["out"])
    error = float(np.linalg.norm(machine.host(out) - want) / np.linalg.norm(want))
    record.row(kernel="broken on purpose", error=error, ok=bool(error > 1e-2))


def ceilings(machine: Machine, record: Record) -> None:
    """What the machine itself does: matrix products by format, copying, exp."""
    xp = machine.xp
    for fmt, n in (("float64", 4096), ("float32", 8192), ("float16", 8192)):
        n = 64 if record.tiny else n
        a, b = (xp.ones((n, n), fmt) for _ in range(2))
        seconds = machine.seconds(partial(xp.matmul, a, b), 5)
        record.row(what=f"matrix product {fmt}", tflops=2 * n**3 / seconds / 1e12)
    x = xp.ones(1 << (12 if record.tiny else 28), np.float32)
    y = xp.empty_like(x)
    record.row(what="copy", tbytes_per_s=2 * x.nbytes / machine.seconds(lambda: xp.copyto(y, x)) / 1e12)
    for fmt in ("float32", "float64"):
        z = x[: x.size // 2].astype(fmt)
        seconds = machine.seconds(partial(xp.exp, z))
        record.row(what=f"exp {fmt}", gelements_per_s=z.size / seconds / 1e9)


def timings(machine: Machine, record: Record) -> None:
    """Forward and backward beside the unfused formula, and beside torch's backends where torch is installed."""
    heads = 2 if record.tiny else 16
    for n in (128,) if record.tiny else (1024, 4096, 16384):
        for family, fmt in machine.families():
            if record.left < 60 and not record.tiny:
                record.failed.append("timings: cut short by the budget")
                return
            record.attempt(f"{family} {fmt}", partial(_time_one, machine, record, family, fmt, n, heads))


def _time_one(machine: Machine, record: Record, family: str, fmt: str, n: int, heads: int) -> None:
    rng = np.random.default_rng(n)
    dtype = FORMATS[fmt].dtype
    q, k, v = (machine.draw(rng, (1, heads, n, 64), dtype) for _ in range(3))
    p = attention.problem(machine.xp, q, k, v, Spec())
    flops = 4 * n * n * 64 * heads
    forward = machine.seconds(lambda: attention.forward(machine.backend, p, family))
    out, lse = attention.forward(machine.backend, p, family)
    back = machine.seconds(lambda: attention.backward(machine.backend, p, out, lse, q, None, family), 3)
    record.row(
        what=f"{family} {fmt}", n=n, forward_ms=forward * 1e3, backward_ms=back * 1e3, tflops=flops / forward / 1e12
    )
    if family == "simt" and fmt in ("float64", "float32") and heads * n * n * dtype.itemsize < 40e9:
        seconds = machine.seconds(lambda: _unfused(machine.xp, q, k, v), 3)
        record.row(what=f"unfused {fmt}", n=n, forward_ms=seconds * 1e3, tflops=flops / seconds / 1e12)
    if family == "simt" and machine.cuda:
        from verify.device.torch_peer import time_backends

        time_backends(record, fmt, n, heads, flops)


def _unfused(xp: Any, q: Any, k: Any, v: Any) -> Any:
    s = xp.matmul(q, k.swapaxes(-1, -2))
    s *= s.dtype.type(0.125)
    s -= s.max(axis=-1, keepdims=True)
    xp.exp(s, out=s)
    return xp.matmul(s, v) / s.sum(axis=-1, keepdims=True)


def monte_carlo(machine: Machine, record: Record) -> None:
    """Bits of the streams, rates of sampling, and the variance of q·k with the standard error of its dependence."""
    backend = machine.backend
    got = machine.host(montecarlo.words(backend, KEY, 3, 4096))
    twin = np.random.Philox(key=np.array(KEY, np.uint64), counter=np.array([0, 0, 0, 3], np.uint64))
    record.row(what="words equal NumPy's Philox", ok=bool((got == np.asarray(twin.random_raw(4096))).all()))
    for fmt in ("float32", "float64"):
        for n, replicates in ((1024, 4),) if record.tiny else ((1024, 1 << 19), (1 << 20, 1 << 9)):
            seconds = machine.seconds(
                partial(montecarlo.softmax_statistics, backend, KEY, n, 2.5, replicates, fmt=fmt), 3
            )
            stats = machine.host(montecarlo.softmax_statistics(backend, KEY, n, 2.5, min(replicates, 4), fmt=fmt))
            z = machine.host(montecarlo.normals(backend, KEY, 0, n))
            e = np.exp(2.5 * (z - z.max()))
            off = float(abs((1 - (e / e.sum()).max()) / stats[0, 0] - 1))
            limit = 1e-3 if fmt == "float32" else 1e-9
            record.row(
                what=f"saturation {fmt}", n=n, gscores_per_s=n * replicates / seconds / 1e9, off=off, ok=off < limit
            )
    for d in (64,) if record.tiny else (64, 4096, 65536):
        n = 64 if record.tiny else 4096
        q = montecarlo.normals(backend, KEY, 1, n * d, "float32").reshape(n, d)
        k = montecarlo.normals(backend, KEY, 2, n * d, "float32").reshape(n, d)
        sums = machine.host(_moments(machine, q, k))
        ratio = float(sums[1]) / (n * n * d)
        error = math.sqrt(2 / n**2 + 4 / (d * n) + 2 / (d * n * n))
        seconds = machine.seconds(partial(_moments, machine, q, k), 3)
        ok = abs(ratio - 1) < 5 * error
        record.row(
            what="variance of q·k over d_k",
            d=d,
            value=ratio,
            standard_error=error,
            gscores_per_s=n * n / seconds / 1e9,
            ok=ok,
        )


def _moments(machine: Machine, q: Any, k: Any) -> Any:
    return montecarlo.score_moments(machine.backend, machine.xp.matmul(q, k.T))


def subnormals(machine: Machine, record: Record) -> None:
    """Our kernels keep float32 subnormals; whether the library's own do is recorded, not judged."""
    code = 'extern "C" __global__ void halve(float* x) { x[0] = x[0] * 0.5f; }'
    x = machine.xp.full(1, np.finfo(np.float32).tiny, np.float32)
    machine.backend.build(code, "halve")((1,), (1,), (x,))
    record.row(what="compiled by us", subnormal_kept=bool(machine.host(x)[0] != 0), ok=bool(machine.host(x)[0] != 0))
    y = machine.xp.full(1, np.finfo(np.float32).tiny, np.float32) * np.float32(0.5)
    record.row(what="array library", subnormal_kept=bool(machine.host(y)[0] != 0))


SECTIONS = (
    ("build", build, 20.0),
    ("correctness", correct, 30.0),
    ("public calls", public_calls, 20.0),
    ("negative control", negative_control, 10.0),
    ("subnormals", subnormals, 5.0),
    ("certified enclosures", certified, 60.0),
    ("ceilings", ceilings, 20.0),
    ("monte carlo", monte_carlo, 30.0),
    ("timings", timings, 60.0),
)
