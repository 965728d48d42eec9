"""Known wrong attentions: what a call gives when one thing about attention is misread.

Guarantees: `alternatives(call)` yields (kind, text, output), each with exactly one misreading, computed in float64.
Does not: judge; `diagnose` compares a target's output with these.
"""

from __future__ import annotations

from collections.abc import Iterator

from verify.checking.calls import Call
from verify.checking.outcomes import Wrong
from verify.checking.wrong_places import corners, heads, keys, masks, windows
from verify.checking.wrong_positions import rotations, slopes
from verify.checking.wrong_scores import caps, inputs, scales, sinks, softmaxes, splits, sums
from verify.checking.wrong_tiles import rescalings, skipped

FAMILIES = (
    slopes,
    rotations,
    splits,
    scales,
    softmaxes,
    masks,
    corners,
    windows,
    heads,
    caps,
    sinks,
    keys,
    rescalings,
    skipped,
    sums,
    inputs,
)


def alternatives(call: Call) -> Iterator[Wrong]:
    """Every misreading that applies to the call."""
    for family in FAMILIES:
        yield from family(call)
