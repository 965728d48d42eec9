"""One call of a target, in whatever process this runs.

Guarantees: the target sees copies in its own library and layout; what it raises, returns of the wrong type, mutates
or changes globally is reported, never propagated (except KeyboardInterrupt).
Does not: judge values, or survive a crash of the process (that is the runner's part).
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from verify.checking.calls import EXTRAS, Array, Call, Reply
from verify.checking.libraries import Library
from verify.checking.profiles import Profile
from verify.checking.state import changed, snapshot

Function = Callable[..., Any]
_HEADED = ("q", "k", "v", "grad_output")
_DIFFERENTIABLE = ("q", "k", "v", "bias", "sink")


def expected_gradients(call: Call) -> str:
    """What a backward pass returns for a call, for people: the order, and the other way to say it."""
    order = ", ".join(f"d{name}" for name in _DIFFERENTIABLE if getattr(call, name) is not None)
    names = [*_DIFFERENTIABLE, "scale"]
    return f"({order}) in this order, or a mapping by the names {', '.join(names)}"


def to_layout(array: Array, layout: str) -> Array:
    """From heads first to the target's layout; thd packs the batch along the tokens."""
    if layout == "bnhd":
        return array.transpose(0, 2, 1, 3)
    if layout == "thd":
        return array.transpose(0, 2, 1, 3).reshape(-1, array.shape[1], array.shape[3])
    return array[0, 0] if layout == "nd" else array


def from_layout(array: Array, layout: str, batch: int = 1) -> Array:
    """Back to heads first. Arrays of another rank stay as they are, for the judge to refuse."""
    rank = {"bhnd": 4, "bnhd": 4, "thd": 3, "nd": 2}[layout]
    if array.ndim != rank:
        return array
    if layout == "bnhd":
        return array.transpose(0, 2, 1, 3)
    if layout == "thd":
        if array.shape[0] % max(batch, 1):
            return array
        return array.reshape(batch, -1, *array.shape[1:]).transpose(0, 2, 1, 3)
    return array[None, None] if layout == "nd" else array


def invoke(function: Function, profile: Profile, library: Library, call: Call, backward: Function | None) -> Reply:
    """Put one question to `function`."""
    given = _arguments(profile, library, call)
    images = {name: library.take(value) for name, value in given.items()}
    before = snapshot(library)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _run(function, profile, library, call, given, backward)
    except MemoryError as error:
        return Reply(fault="memory", message=f"ran out of memory: {error}", seconds=time.perf_counter() - start)
    except _WrongType as error:
        return Reply(fault="type", message=str(error), seconds=time.perf_counter() - start)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Reply(fault="raises", message=text[:2000], seconds=time.perf_counter() - start)
    seconds = time.perf_counter() - start
    after = snapshot(library)
    mutated = tuple(n for n, image in images.items() if library.take(given[n]).tobytes() != image.tobytes())
    return Reply(seconds=seconds, mutated=mutated, state=changed(before, after), **found)


class _WrongType(Exception):
    pass


def _arguments(profile: Profile, library: Library, call: Call) -> dict[str, Any]:
    memory = dict(call.memory)
    given = {}
    for name, array in call.arrays().items():
        if name in EXTRAS and name not in profile.parameters:
            continue  # built in, as ALiBi's own slopes
        value = array
        if name in _HEADED:
            value = to_layout(value, profile.layout)
        elif name in ("mask", "bias", "dropout_mask") and profile.layout in ("thd", "nd"):
            value = _drop_leading(value, 3 if profile.layout == "thd" else 2)
        elif name == "grad_lse" and profile.layout in ("thd", "nd"):
            value = value[0] if profile.layout == "thd" else value[0, 0]
        given[name] = library.give(value, memory.get(name, "contiguous"))
    if call.scale_gradient and profile.gradients and library.name != "numpy":
        given["scale"] = library.give(np.asarray(float(call.spec.scale_value(call.q.shape[3]))).astype(call.dtype))
    return given


def _drop_leading(array: Array, rank: int) -> Array:
    while array.ndim > rank:
        array = array[0]
    return array


def _keywords(profile: Profile, library: Library, call: Call, given: dict[str, Any]) -> dict[str, Any]:
    spec, own = call.spec, profile.parameters
    wanted: dict[str, Any] = {name: given[name] for name in EXTRAS if name in given}
    if spec.causal != "none":
        wanted["causal"] = True
    if spec.scale is not None:
        wanted["scale"] = given.get("scale", float(spec.scale))
    if spec.window is not None:
        wanted["window"] = tuple(spec.window)
    if spec.softcap is not None:
        wanted["softcap"] = float(spec.softcap)
    if call.lse or call.grad_lse is not None:
        wanted["lse"] = True
    if spec.rope is not None:
        wanted |= {"q_offset": spec.rope.q_offset, "k_offset": spec.rope.k_offset}
    if "cu_seqlens" in own:
        b, _, n, _ = call.q.shape
        wanted["cu_seqlens"] = library.give(np.arange(b + 1, dtype=np.int32) * n)
    wanted |= dict(call.options)
    return {own[name]: value for name, value in wanted.items() if name in own}


def _run(
    function: Function, profile: Profile, library: Library, call: Call, given: dict[str, Any], backward: Function | None
) -> dict[str, Any]:
    keywords = _keywords(profile, library, call, given)
    if "grad" not in call.features:
        return _forward(function(given["q"], given["k"], given["v"], **keywords), profile, library, call)
    if backward is not None:
        raw = backward(
            given["q"],
            given["k"],
            given["v"],
            given["grad_output"],
            **_backward_keywords(backward, profile, given, keywords),
        )
        return {"gradients": _named(raw, profile, library, call)}
    if library.name == "torch":
        return _torch_gradients(function, profile, library, call, given, keywords)
    if library.name == "jax":
        return _jax_gradients(function, profile, library, call, given, keywords)
    raise _WrongType(f"{profile.name} gives no gradients")


def _backward_keywords(
    backward: Function, profile: Profile, given: dict[str, Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """The forward pass's keywords that the backward pass takes too, and the log-sum-exp's cotangent."""
    parameters = inspect.signature(backward).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    both = {name: value for name, value in keywords.items() if anything or name in parameters}
    both.pop(profile.parameters.get("lse", ""), None)
    if "grad_lse" in given and (anything or "grad_lse" in parameters):
        both["grad_lse"] = given["grad_lse"]
    elif "grad_lse" in given:
        raise NotImplementedError("the backward pass takes no cotangent of the log-sum-exp (grad_lse)")
    return both


def _forward(raw: Any, profile: Profile, library: Library, call: Call) -> dict[str, Any]:
    lse = None
    if isinstance(raw, (tuple, list)):
        if not raw:
            raise _WrongType("returned an empty tuple: expected an array")
        if call.lse or call.grad_lse is not None:
            if len(raw) < 2:
                raise _WrongType("returned one value: expected (output, log-sum-exp)")
            lse = _lse(library.take(_owned(raw[1], library)), profile)
        raw = raw[0]
    elif call.lse or call.grad_lse is not None:
        raise _WrongType(f"returned {type(raw).__name__}: expected (output, log-sum-exp)")
    return {"output": from_layout(library.take(_owned(raw, library)), profile.layout, len(call.q)), "lse": lse}


def _lse(array: Array, profile: Profile) -> Array:
    if profile.layout == "thd" and array.ndim == 2:
        return array[None]
    return array[None, None] if profile.layout == "nd" and array.ndim == 1 else array


def _owned(value: Any, library: Library) -> Any:
    if not library.owns(value):
        raise _WrongType(
            f"returned {type(value).__module__}.{type(value).__name__}: expected an array of {library.name}"
        )
    return value


def _named(raw: Any, profile: Profile, library: Library, call: Call) -> dict[str, Array]:
    if not isinstance(raw, dict):
        names = [n for n in _DIFFERENTIABLE if getattr(call, n) is not None]
        raw = dict(zip(names, raw if isinstance(raw, (tuple, list)) else [raw], strict=False))
    found = {}
    for name, value in raw.items():
        if value is not None:
            array = library.take(_owned(value, library))
            found[name] = from_layout(array, profile.layout, len(call.q)) if name in _HEADED else array
    return found


def _differentiated(profile: Profile, given: dict[str, Any]) -> list[str]:
    """The arrays that gradients are asked of: q, k, v, and of the others those that the target takes."""
    named = (*_DIFFERENTIABLE, "scale")
    return [n for n in named if n in given and (n in ("q", "k", "v") or n in profile.parameters)]


def _torch_gradients(
    function: Function, profile: Profile, library: Library, call: Call, given: dict[str, Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    names = _differentiated(profile, given)
    for name in names:
        given[name].requires_grad_(True)
    raw = function(given["q"], given["k"], given["v"], **keywords)
    outputs = list(raw) if isinstance(raw, (tuple, list)) else [raw]
    pairs = [(outputs[0], given.get("grad_output"))]
    if call.grad_lse is not None:
        pairs.append((outputs[1], given["grad_lse"]))
    pairs = [(y, g) for y, g in pairs if g is not None]
    torch = library.module
    grads = torch.autograd.grad(
        [y for y, _ in pairs], [given[n] for n in names], [g for _, g in pairs], allow_unused=True
    )
    # What the graph does not reach has gradient 0, but a scale that it does not reach was read as a number.
    pairs = [(n, g) for n, g in zip(names, grads, strict=True) if g is not None or n != "scale"]
    found = {n: g if g is not None else torch.zeros_like(given[n]) for n, g in pairs}
    forward = _forward(raw, profile, library, call.with_(grad_output=call.grad_output))
    return {**forward, "gradients": _named(found, profile, library, call)}


def _jax_gradients(
    function: Function, profile: Profile, library: Library, call: Call, given: dict[str, Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    jax = library.module
    names = _differentiated(profile, given)

    def run(*arrays: Any) -> Any:
        at = dict(zip(names, arrays, strict=True))
        own = {profile.parameters[n]: at[n] for n in names[3:]}
        return function(at["q"], at["k"], at["v"], **{**keywords, **own})

    raw, pull = jax.vjp(run, *[given[n] for n in names])
    if isinstance(raw, (tuple, list)):
        zeros = [jax.numpy.zeros_like(y) for y in raw]
        zeros[0] = given.get("grad_output", zeros[0])
        if call.grad_lse is not None:
            zeros[1] = given["grad_lse"]
        grads = pull(type(raw)(zeros))
    else:
        grads = pull(given["grad_output"])
    found = dict(zip(names, grads, strict=True))
    return {**_forward(raw, profile, library, call), "gradients": _named(found, profile, library, call)}
