"""Faulty variants of single lines: the tests' own comparison must refuse each of them.

A mutant is the source of one module with one line changed, loaded in the module's place. The battery of
tests/compute/battery.py, compared with loops over single numbers, has to see the change in some call.
"""

# ruff: noqa: E501  a table of source lines

from __future__ import annotations

import functools
import importlib
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import compute
import compute.calls  # loaded before a mutant takes a module's place
from compute import Spec
from tests.compute.battery import TINY, battery, case, cotangents, worst_backward, worst_forward
from tests.compute.reference import forward, gradients

ROOT = Path(__file__).parent.parent.parent / "compute"
CASES = {name: c for name, c in battery() if name not in ("float16",)}
WANTED = {name: (forward(c), gradients(c, *cotangents(c))) for name, c in CASES.items()}

MUTANTS = [
    # compute.problem: who sees whom
    ("problem", "tests.append(key < length)", "tests.append(key <= length)"),
    ("problem", "tests.append(key <= position + right)", "tests.append(key < position + right)"),
    ("problem", "tests.append(key >= position - left)", "tests.append(key > position - left)"),
    ("problem", "return self.length - self.n if", "return self.m - self.n if"),
    ("problem", "else int(self.spec.past)", "else 0"),
    ("problem", "right = 0\n", "right = 1\n"),
    ("problem", "hi = min(hi, r1 + self.offset + right)", "hi = min(hi, r1 + self.offset + right - 1)"),
    ("problem", "lo = max(lo, r0 + self.offset - left)", "lo = max(lo, r0 + self.offset - left + 1)"),
    ("problem", "c1 - 1 <= r0 + offset + right", "c1 - 2 <= r0 + offset + right"),
    ("problem", "c0 >= r1 - 1 + offset - left", "c0 >= r1 - 2 + offset - left"),
    ("problem", "self.head // groups", "self.head % self.problem.k.shape[-3]"),
    ("problem", "self.xp.repeat(block, groups, axis=-3)", "self.xp.concatenate([block] * groups, axis=-3)"),
    ("problem", "xp.where(block == -math.inf, self.dtype.type(0), block))", "xp.where(block < 0, self.dtype.type(0), block))"),
    ("problem", "gap = -abs(gap)", "gap = abs(gap)"),
    ("problem", "self.dtype.type(1 - self.spec.dropout)", "self.dtype.type(1)"),
    ("problem", "rope.k_offset + start, rope)", "start, rope)"),
    ("problem", "rope.q_offset + (rows.start or 0), rope)\n\n    def keys", "rope.q_offset, rope)\n\n    def keys"),
    ("rope", "-sin if back else sin", "sin"),
    ("rope", "partner[..., :half] = -x", "partner[..., :half] = x"),
    ("rope", "-2.0 * xp.arange", "-1.0 * xp.arange"),
    # compute.plain: the formulas
    ("plain", "top = s.max(axis=-1, keepdims=True) if part.m", "top = s[..., :1] * 0 + s.max() if part.m"),
    ("plain", "total = total + own", "total = total + xp.exp(sink)"),
    ("plain", "s, slope = cap * turned, 1 - turned * turned", "s, slope = cap * turned, 1 - turned"),
    ("plain", "s, slope = cap * turned, 1 - turned * turned", "s, slope = turned, 1 - turned * turned"),
    ("plain", "delta = (p * dp).sum(axis=-1, keepdims=True)", "delta = dp.mean(axis=-1, keepdims=True)"),
    ("plain", "delta = delta - grad_lse", "delta = delta + grad_lse"),
    ("plain", "/ part.dtype.type(math.log(part.spec.lse_base))", "* 1"),
    ("plain", "ds if scored.slope is None else ds * scored.slope", "ds"),
    ("plain", "dsink = -xp.where", "dsink = xp.where"),
    ("plain", "dv = weigh_signed(xp, used.swapaxes", "dv = weigh_signed(xp, p.swapaxes"),
    ("plain", "dp = dp * drop", "dp = dp"),
    ("plain", "dk = weigh_signed(xp, inner.swapaxes(-1, -2), q, allowed_back) * tau", "dk = weigh_signed(xp, inner.swapaxes(-1, -2), q, allowed_back)"),
    ("plain", "dscale = float((own.astype(xp.float64) * pulled).sum())", "dscale = float((own * pulled * tau).sum())"),
    ("plain", "return p * drop, kept", "return p, kept"),
    ("plain", "dv = dv + mean_gradient(part, grad_out, empty)", "pass"),
    # compute.tiled
    ("tiled", "self.sums[here] *= self.exp(fade if", "self.sums[here] *= self.exp(0 * fade if"),
    ("tiled", "top = xp.maximum(before, s.max(axis=-1, keepdims=True))", "top = s.max(axis=-1, keepdims=True) + 0 * before"),
    ("tiled", "fade if rest is None else fade * rest", "fade"),
    ("fused", "s *= rest", "pass"),
    ("fused", "s -= base", "s += base"),
    ("fused", "grad -= delta", "pass"),
    ("fused", "grad *= weight", "pass"),
    ("tiled", "top[self.safe[here]] = 0", "pass"),
    ("tiled", "xp.copyto(weights, self.kind(0), where=~allowed)", "pass"),
    ("tiled", "xp.copyto(weights, self.kind(-math.inf), where=~allowed)", "pass"),
    ("tiled", "self.sums[:, -1] = 1", "self.sums[:, -1] = 0"),
    ("tiled", "piece[:, -1] = total", "pass"),
    ("tiled", "self.sums[here] += piece", "self.sums[here] = piece"),
    ("tiled", "weights *= drop", "pass"),
    ("tiled", "self.kind(part.softcap) * self.lift[here]", "self.kind(part.softcap)"),
    ("tiled", "LOG2E = math.log2(math.e)", "LOG2E = 1.4427"),
    ("tiled", "if hi <= cols.start or lo >= cols.stop", "if hi <= cols.start + 1 or lo >= cols.stop"),
    ("tiled", "lse[empty[:, 0]] = -math.inf", "pass"),
    ("tiles", "yield slice(max(start, lo), min(start + self.cols, hi))", "yield slice(max(start, lo), min(start + self.cols, hi - 1))"),
    ("tiles", "range(lo - lo % self.cols, hi, self.cols)", "range(lo, hi - lo % self.cols, self.cols)"),
    # compute.tiled_backward
    ("tiled_backward", "weighted_gap(xp, ds, delta, p)", "weighted_gap(xp, ds, delta, used)"),
    ("tiled_backward", "ds *= slope", "pass"),
    ("tiled_backward", "delta -= grad_lse", "delta += grad_lse"),
    ("tiled_backward", "self._add(self.dv[cols], used.T", "self._add(self.dv[cols], p.T"),
    ("tiled_backward", "dq *= kind(part.scale)", "pass"),
    ("tiled_backward", "factor=part.softcap", "factor=None"),
    ("tiled_backward", "self.sums.dsink[at] -=", "self.sums.dsink[at] ="),
    ("tiled_backward", "dbias[(*at, rows, cols)] += ds", "dbias[(*at, rows, cols)] = ds"),
    ("tiled_backward", "0 if size == 1 else place for", "place for"),
    ("tiled_backward", "xp.copyto(p, kind(0), where=hidden)", "pass"),
    ("tiled_backward", "/ self.kind(part.length)", "/ self.kind(part.m)"),
    ("tiled_backward", "total += piece", "total[...] = piece"),
    ("tiled_backward", "dk[cols] = part.grad_keys(cols, dk[cols])", "pass"),
    # compute.calls
    ("calls", "lse / problem.work.type(math.log(base))", "lse * problem.work.type(math.log(base))"),
    ("whole", "problem.h // problem.groups, problem.groups,", "problem.groups, problem.h // problem.groups,"),
]  # fmt: skip

# Lines whose fault only an input that is not finite, or an extreme one, can show.
HARD = [
    ("select", "return a @ b\n    out = a @ clean", "return a @ b\n    return a @ b\n    out = a @ clean"),
    ("select", "return a @ b\n    bad", "return a @ b\n    return a @ b\n    bad"),
    ("plain", "p = xp.where(scored.allowed, p, kind(0))", "pass"),
    ("tiled", "clean(xp, given)", "given"),
    ("tiled", "out += self.leaks", "pass"),
    ("tiled", "top = xp.maximum(before, s.max(axis=-1, keepdims=True))", "top = xp.maximum(before, 0)"),
    ("tiled", "base = xp.where(top == -math.inf, self.kind(0), top)", "base = top"),
    ("tiled_backward", "lse[:, None])", "lse[:, None] * 0)"),
    ("tiled_backward", "xp.copyto(ds, kind(0), where=hidden)", "pass"),
    ("shift", "(2 * bound + thin - math.log(unit) < reach)", "(bound < reach)"),
    ("shift", "bound + thick +", "bound +"),
    ("shift", "last = xp.clip(xp.arange(rows.start, rows.stop) + part.offset", "last = xp.clip(xp.arange(rows.start, rows.stop) + 999"),
    ("problem", "total = xp.clip(total + term, -most, most)", "total = total + term"),
]  # fmt: skip


def install(monkeypatch, module: str, old: str, new: str, users=()) -> None:
    """Put a changed copy of compute.<module> wherever the package, or another user, has the original."""
    path = ROOT / f"{module}.py"
    source = path.read_text(encoding="utf-8")
    assert old in source, f"{module} no longer has the line {old!r}"
    name = f"compute.{module}"
    original = importlib.import_module(name)
    changed = types.ModuleType(name)
    changed.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, changed)
    exec(compile(source.replace(old, new), str(path), "exec"), changed.__dict__)
    own = {id(value): key for key, value in vars(original).items() if getattr(value, "__module__", None) == name}
    package = [m for n, m in list(sys.modules.items()) if n.startswith("compute.") and m is not original]
    for other in [*package, *users]:
        for key, value in list(vars(other).items()):
            if value is original:
                monkeypatch.setattr(other, key, changed)
            elif id(value) in own:
                monkeypatch.setattr(other, key, getattr(changed, own[id(value)]))


def small_tiles(monkeypatch) -> None:
    """Tiles of a few keys, in whatever module now plans them."""
    calls, shape = sys.modules["compute.calls"], sys.modules["compute.tiles"].Plan(TINY.rows, TINY.cols, TINY.band)
    for user in (calls.tiled, calls.tiled_backward, calls.tiled_backward.tiled):
        monkeypatch.setattr(user, "plan", lambda problem: shape)


def seen_by_the_battery() -> bool:
    for algorithm in ("shifted", "online", "bounded"):
        for name, c in CASES.items():
            try:
                want, back = WANTED[name]
                if worst_forward(c, algorithm, want) > 1 or worst_backward(c, algorithm, back) > 1:
                    return True
            except (ValueError, IndexError, AttributeError, TypeError):
                return True
    return False


def ask(algorithm, c, **given):
    return compute.attention(*c.args, **given, algorithm=algorithm, threads=1)


def ask_back(algorithm, c, **given):
    given = {**c.given, **given}
    return compute.attention_backward(cotangents(c)[0], *c.args, **given, algorithm=algorithm, threads=1)


def seen_by_hard_inputs() -> bool:
    hidden = np.arange(7) < 5
    poisoned = case(50)
    poisoned.k[..., 5:, :], poisoned.v[..., 5:, :] = np.nan, np.inf
    wide = case(51, Spec(causal=True), n=7)
    wide.v[..., 2, 0] = np.inf
    low = case(52, Spec(scale=1.0), n=3)
    low.q[...], low.k[...] = 30.0, -30.0
    tiny = case(53, Spec(scale=1.0), dtype=np.float32)
    tiny.q[...] = np.array([1, 0, 0, 0])
    tiny.k[..., 0] = -75 - np.arange(7)
    tiny.v[...] *= 1e-12
    large = case(54, Spec(scale=1.0), dtype=np.float32)
    large.q[...], large.k[...] = np.array([30, 0, 0, 0]), np.array([1, 0, 0, 0])
    large.v[...] *= 1e30
    lone = case(58, mask=np.array([[True] * 3 + [False] * 4] + [[False] + [True] * 6] * 4))
    lone.k[..., 0, :] = np.nan
    late = case(55, Spec(causal=True), n=7)
    late.k[..., 5:, :] = 1e30
    for algorithm in ("shifted", "online", "bounded"):
        run, back = functools.partial(ask, algorithm), functools.partial(ask_back, algorithm)
        if not np.isfinite(run(poisoned, mask=hidden)).all():
            return True
        g = back(poisoned, mask=hidden)
        if not all(np.isfinite(x).all() for x in (g.dq, g.dk, g.dv)):
            return True
        g = back(lone)
        if not (np.isfinite(g.dv[:, 3:]).all() and np.isfinite(g.dk[:, 3:]).all() and np.isnan(g.dv[:, :3]).all()):
            return True
        out = run(wide)
        if not (np.isfinite(out[0, :2]).all() and (out[0, 2:, 0] == np.inf).all() and np.isfinite(out[..., 1:]).all()):
            return True
        empty = np.zeros((3, 7), bool)
        empty[1:, 4:] = True
        if worst_forward(low, algorithm) > 1 or worst_backward(low, algorithm) > 1:
            return True
        masked = case(56, Spec(scale=1.0), n=3, mask=empty, size=12.0)
        if worst_forward(masked, algorithm) > 1:
            return True
        for c in (tiny, large):
            with np.errstate(all="ignore"):
                got, want = (
                    run(c),
                    compute.attention(*(x.astype(float) for x in c.args[:3]), c.spec, algorithm="shifted"),
                )
            if not abs(got - want).max() <= 2.0**-24 * 600 * abs(want).max():
                return True
        first = slice(None), slice(0, 5)
        if (run(late)[first] != run(case(55, Spec(causal=True), n=7))[first]).any():
            return True
        lowest = np.full((1, 7), np.finfo(np.float32).min, np.float32)
        if not np.isfinite(run(case(57, dtype=np.float32), mask=lowest, bias=lowest)).all():
            return True
    return False


@pytest.fixture
def tiny_tiles(monkeypatch):
    install(monkeypatch, "tiles", "class Plan", "class Plan")
    small_tiles(monkeypatch)


def test_the_battery_accepts_the_package_itself(tiny_tiles):
    assert not seen_by_the_battery()
    assert not seen_by_hard_inputs()


@pytest.mark.parametrize(("module", "old", "new"), MUTANTS, ids=[f"{m}-{i}" for i, (m, _, _) in enumerate(MUTANTS)])
def test_a_faulty_line_is_seen(module, old, new, monkeypatch):
    install(monkeypatch, module, old, new)
    small_tiles(monkeypatch)
    with np.errstate(all="ignore"):
        assert seen_by_the_battery()


@pytest.mark.parametrize(("module", "old", "new"), HARD, ids=[f"{m}-{i}" for i, (m, _, _) in enumerate(HARD)])
def test_a_faulty_guard_is_seen(module, old, new, monkeypatch):
    install(monkeypatch, module, old, new)
    small_tiles(monkeypatch)
    with np.errstate(all="ignore"):
        assert seen_by_hard_inputs()
