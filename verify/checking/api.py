"""`verify.check` and `verify.assert_attention`: judging from Python.

Guarantees: a target given as text runs in a spawned child with time and memory limits; a function object runs in this
process, so that closures and fixtures work (`isolate=True` sends it to a child by its file and name).
Does not: change the arrays it is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from compute.spec import Spec
from verify.checking.allowance import parse_algorithm
from verify.checking.calls import Call, Reply
from verify.checking.diagnose import diagnose
from verify.checking.emptied import ANY, misread_rows
from verify.checking.judge import Plan, judge
from verify.checking.libraries import as_numpy
from verify.checking.replay import replay_line
from verify.checking.result import CheckResult, merged
from verify.checking.runner import MEMORY, TIMEOUT, Isolated, Local, Subject
from verify.checking.specs import parse_spec
from verify.checking.targets import KNOWN, parse_target, refuse_class
from verify.checking.values import Violation, answer, differences, metadata
from verify.errors import UsageError

DTYPES = ("float64", "float32", "float16", "bfloat16")
Specs = Spec | Mapping[str, Any] | Iterable[str] | str | None


def check(
    target: Callable[..., Any] | str,
    *,
    spec: Specs = None,
    dtype: Any = None,
    like: str | None = None,
    layout: str = "bhnd",
    device: str = "cpu",
    arg: Mapping[str, str] | None = None,
    backward: Callable[..., Any] | str | None = None,
    algorithm: Any = None,
    grad: bool = False,
    quick: bool = False,
    first: bool = False,
    budget: float | None = None,
    seed: int = 0,
    timeout: float = TIMEOUT,
    memory: int = MEMORY,
    isolate: bool | None = None,
    compile: bool = False,
    reference: Callable[..., Any] | None = None,
    properties: Sequence[Callable[..., Any]] = (),
    progress: Callable[[str], None] | None = None,
) -> CheckResult:
    """Judge an implementation f(q, k, v, *, mask=None, causal=False, scale=None, ...) of attention.

    target: a function, or text as on the command line ("file.py:function", "module:function", "model.onnx", a known
    name). q (batch, heads, n, d_k), k (batch, heads_kv, m, d_k), v (batch, heads_kv, m, d_v), of the library `like`,
    in `layout`; a boolean mask's True = this key takes part. What the function accepts is read from its signature;
    arg maps features to its own names ({"mask": "attn_mask"}). spec: what is declared of it, as compute.Spec, a
    mapping, or words ("causal=bottom-right"). backward(q, k, v, grad_output, ...) gives gradients
    where the library has none of its own: (dq, dk, dv), then dbias where a bias is given and dsink where a sink is, or
    a mapping by the names q, k, v, bias, sink, scale. dtype: a name, NumPy's dtype, or a list of them.
    first: stop at the first finding. algorithm: its declared algorithm, which narrows the tolerance. reference
    and properties: for a variant outside Spec, a float64 function to compare with, and functions that return a
    message when something is wrong.

    Raises UsageError for options that make no sense, MissingError where a library is not installed.

    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    ...     p = np.exp(s - s.max(-1, keepdims=True))
    ...     return p / p.sum(-1, keepdims=True) @ v
    >>> check(attention, quick=True).status
    'agrees'
    >>> check(lambda q, k, v: attention(q / 8, k, v), quick=True).kinds[0]
    'scale'
    """
    _sensible(target, seed, timeout, memory, budget)
    if spec is not None and not isinstance(spec, (str, Mapping, Spec)):
        spec = list(spec)  # it is read twice
    declared = parse_spec(spec)
    if reference is not None:
        from verify.checking.custom import check_custom

        if isinstance(target, str):
            raise UsageError("reference= needs a function as target, not text")
        if grad or backward is not None:
            raise UsageError("grad= and backward= beside reference=: a reference of your own is asked q, k, v only")
        return check_custom(target, reference, properties, dtype=dtype or "float64", seed=seed, like=like or "numpy")
    subject, name = _subject(target, like, layout, device, dict(arg or {}), backward, timeout, memory, isolate, compile)
    try:
        dtypes = _dtypes(dtype, subject.profile.like)
        if grad and not subject.profile.gradients:
            raise UsageError(
                f"gradients were asked for, and {subject.profile.name} gives none as a {subject.profile.like} function:"
                " give --backward FUNCTION (backward=), or --like torch or jax if it takes their arrays"
            )
        given = {
            "like": like, "layout": layout, "device": device, "arg": dict(arg or {}), "backward": backward,
            "algorithm": algorithm, "grad": grad, "quick": quick, "budget": budget, "compile": compile,
            "timeout": timeout, "memory": memory,
        }  # fmt: skip
        told = replay_line(name, dtypes, spec, seed, given)
        plan = Plan(declared, algorithm, seed, quick, budget, grad, told, first=first, dtypes=len(dtypes))
        return merged(judge(subject, dtypes, plan, progress))
    finally:
        subject.close()


def _sensible(target: Any, seed: int, timeout: float, memory: int, budget: float | None) -> None:
    """Raise UsageError for what no check can be run with."""
    if not callable(target) and not isinstance(target, str):
        raise UsageError(
            f"target is {type(target).__name__}: expected a function, or text as 'file.py:function' or a known name"
        )
    refuse_class(target)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"seed {seed!r}: expected an integer of 0 or more")
    if not timeout > 0 or (budget is not None and not budget > 0):
        raise UsageError(f"timeout {timeout!r}, budget {budget!r}: expected seconds above 0")
    if not memory > 0:
        raise UsageError(f"memory {memory!r}: expected bytes above 0")


def _dtypes(dtype: Any, like: str) -> list[str]:
    given = ["float64" if like == "numpy" else "float32"] if dtype is None else dtype
    found = [_dtype_name(one) for one in (given if isinstance(given, (list, tuple)) else [given])]
    if not found:
        raise UsageError(f"dtype is empty: expected one of {', '.join(DTYPES)}, or several")
    short = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "half": "float16"}
    found = [short.get(name, name) for name in found]
    for name in found:
        if name not in DTYPES:
            raise UsageError(f"dtype {name!r}: expected one of {', '.join(DTYPES)}")
    return found


def _dtype_name(given: Any) -> str:
    """The name of a dtype given as text, as NumPy's (np.float16, np.dtype("float16")), or as PyTorch's."""
    if isinstance(given, str):
        return given
    if type(given).__module__.partition(".")[0] == "torch":
        return str(given).removeprefix("torch.")
    import numpy as np

    try:
        return np.dtype(given).name
    except TypeError as error:
        raise UsageError(f"dtype {given!r}: expected one of {', '.join(DTYPES)}, as text or as NumPy's") from error


def _subject(
    target: Callable[..., Any] | str, like: str | None, layout: str, device: str, renamed: dict[str, str],
    backward: Callable[..., Any] | str | None, timeout: float, memory: int, isolate: bool | None, compiled: bool,
) -> tuple[Subject, str]:  # fmt: skip
    if callable(target) and isolate:
        path, where = inspect.getsourcefile(target), getattr(target, "__qualname__", "")
        if path is None or "<" in where:
            raise UsageError("isolate=True needs a function at the top of a file: a child process must find it")
        target = f"{path}:{where}"
    if callable(target):
        if isinstance(backward, str):
            raise UsageError("backward is text and target is a function: give both as functions, or both as text")
        if compiled:
            raise UsageError("compile=True needs a target given as text, or isolate=True: or give torch.compile(f)")
        _has_device(like or "numpy", device, target)
        local = Local(target, like=like or "numpy", layout=layout, device=device, backward=backward, renamed=renamed)
        return local, ""
    if isolate is False:
        raise UsageError("isolate=False needs a function, not text")
    options: dict[str, Any] = {"layout": layout, "device": device, "compiled": compiled, "renamed": renamed}
    if isinstance(backward, str):
        options["backward"] = backward
    parsed = parse_target(target, like=None if target in KNOWN else like, **options)
    _has_device(parsed.like, device, target)
    return Isolated(parsed, timeout=timeout, memory=memory), target


def _has_device(like: str, device: str, target: Any) -> None:
    if like == "numpy" and device != "cpu" and target != "onnxruntime":
        raise UsageError(f"--device {device}: NumPy has no such device; give --like torch, jax or cupy")


def _corner(call: Call) -> str:
    """Which corner causal was counted from, where that matters and nothing was declared."""
    n, m = call.q.shape[2], call.k.shape[2]
    if n == m:
        return ""
    return (
        f"; with {n} queries and {m} keys, causal=True was judged from the top-left corner (query i sees keys up to i):"
        " if the last query is meant to see the last key, give spec='causal=bottom-right'"
    )


def assert_attention(
    out: Any, q: Any, k: Any, v: Any, *, spec: Specs = None, algorithm: Any = None, mask: Any = None, bias: Any = None,
    causal: bool = False,
) -> None:  # fmt: skip
    """Assert that `out` is attention of q, k, v within what the algorithm's worst case allows.

    Arrays of NumPy, PyTorch, JAX or CuPy, (…, n, d) with at most two leading axes; mask boolean, True = takes part.
    causal=True counts from the top-left corner: query i sees keys up to i. Where queries and keys differ in number
    and the last query sees the last key, give spec="causal=bottom-right". out must have q's shape with v's last axis.
    Rows without any key: what a Spec, or the words "empty-row=zero", "mean" or "nan", say; else one of these three.

    Raises AssertionError with the worst entry, what was expected, and a diagnosis where the fault is known.

    >>> import numpy as np
    >>> q = k = np.zeros((1, 2)); v = np.ones((1, 3))
    >>> assert_attention(v, q, k, v)
    >>> assert_attention(2 * v, q, k, v)
    Traceback (most recent call last):
        ...
    AssertionError: output is 2 where the right value is 1: ...
    """
    declared = parse_spec(spec)
    meaning = declared.spec.with_(causal=declared.conventions.get("causal", "top-left")) if causal else declared.spec
    arrays = [as_numpy(x) for x in (q, k, v, out)]
    if any(a.ndim < 2 or a.ndim > 4 for a in arrays):
        raise UsageError(f"shapes {[a.shape for a in arrays]}: expected (n, d), (heads, n, d) or (batch, heads, n, d)")
    shape = (*arrays[0].shape[:-1], arrays[2].shape[-1])
    if arrays[3].shape != shape:
        raise AssertionError(f"output has shape {arrays[3].shape}: expected {shape}")
    q4, k4, v4, got = (a.reshape((1,) * (4 - a.ndim) + a.shape) for a in arrays)
    more: dict[str, Any] = {n: as_numpy(x) for n, x in (("mask", mask), ("bias", bias)) if x is not None}
    call = Call(q4, k4, v4, meaning.with_(empty_row="zero"), **more)  # how such rows are judged is asked below
    reply = Reply(output=got)
    known = answer(call, parse_algorithm(algorithm, q4.dtype.name))
    found: list[Violation] = [*metadata(call, reply), *differences(call, reply, known)]
    if not found:
        named_rows = isinstance(spec, Spec) or "empty-row" in declared.conventions
        found = misread_rows(call, got, known, (meaning.empty_row,) if named_rows else ANY)
    if found:
        named = diagnose(call, reply, known, found[0])
        tail = f"; {named[1]}" if named else ""
        where = f" at {found[0].index}" if found[0].index else ""
        corner = _corner(call) if causal and "causal" not in declared.conventions else ""
        raise AssertionError(f"{found[0].message}{where}{tail}{corner}")
    if known.right.outside.any():
        raise AssertionError("a score is +inf or NaN: outside the domain of attention, neither right nor wrong")
