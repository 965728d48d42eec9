"""The canonical problem of a call, block by block, against one cell at a time."""

import numpy as np
import pytest

import compute
from compute import Spec
from compute.meaning import ALL, resolve
from tests.compute.battery import battery
from tests.compute.reference import existing, extra, multiplier, visible

CASES = dict(battery())


@pytest.mark.parametrize("name", CASES)
def test_blocks_of_single_heads_and_of_all_heads(name):
    c = CASES[name]
    problem = resolve(c.q, c.k, c.v, c.spec, **c.given)
    n, m = problem.n, problem.m
    blocks = [(slice(0, n), slice(0, m)), (slice(0, n // 2), slice(m // 2, m)), (slice(n - 1, n), slice(0, 1))]
    whole = problem.whole()
    for part in problem.heads():
        at = (*part.batch, part.head)
        assert part.length == len(existing(c, at))
        for rows, cols in blocks:
            cells = [(i, j) for i in range(rows.start, rows.stop) for j in range(cols.start, cols.stop)]
            shape = (rows.stop - rows.start, cols.stop - cols.start)
            want = np.array([visible(c, at, i, j) for i, j in cells]).reshape(shape)
            full = (*c.q.shape[:-2], *shape)
            for view, index in ((part, ()), (whole, at)):
                allowed = view.allowed(rows, cols)
                target = shape if view is part else full
                got = np.broadcast_to(True if allowed is None else allowed, target)[index]
                assert (got == want).all()
                bias, drop = view.bias(rows, cols), view.dropout(rows, cols)
                for (i, j), seen in zip(cells, want.ravel(), strict=True):
                    place = (*index, i - rows.start, j - cols.start)
                    if seen:
                        added = 0.0 if bias is None else np.broadcast_to(bias, target)[place]
                        assert added == pytest.approx(extra(c, at, i, j)[0], rel=1e-6, abs=1e-12)
                    times = 1.0 if drop is None else np.broadcast_to(drop, target)[place]
                    assert times == pytest.approx(multiplier(c, at, i, j), rel=1e-6)
            lo, hi = part.span(rows)
            outside = [j for j in range(m) if not lo <= j < hi]
            assert not any(visible(c, at, i, j) for i in range(rows.start, rows.stop) for j in outside)


def test_arrays_are_views_and_heads_share_keys():
    q, k, v = np.zeros((2, 4, 5, 6)), np.zeros((2, 2, 7, 6)), np.zeros((2, 2, 7, 3))
    problem = resolve(q, k, v, mask=np.ones((1, 1, 7), bool), bias=np.zeros(7))
    part = problem.part((1,), 3)
    assert np.shares_memory(part.queries(), q[1, 3])
    assert np.shares_memory(part.keys(slice(0, 3)), k[1, 1])
    assert np.shares_memory(part.values(), v[1, 1])
    assert problem.mask.strides == (0, 0, 0, 1)
    assert problem.whole().keys().shape == (2, 4, 7, 6)
    assert part.keys(ALL).shape == (7, 6)


def test_a_wide_bias_stays_finite_in_a_narrow_call():
    x = np.ones((1, 2, 4), np.float32)
    part = resolve(x, x, x, bias=np.array([[-1e300, -np.inf]])).part((), 0)
    assert np.isfinite(part.bias()).all()
    assert part.allowed().tolist() == [[True, False]] * 2 or part.allowed().tolist() == [[True, False]]
    assert np.isfinite(compute.attention(x, x, x, Spec(), bias=np.array([[-1e300, -np.inf]]))).all()
