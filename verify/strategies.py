"""Hypothesis strategies of attention's inputs, and the designed inputs as a list to parametrise tests with.

Guarantees: every drawn input is a valid call (shapes fit, every number is finite in its dtype, masks are boolean).
Does not: import hypothesis before a strategy is asked for, or judge anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from verify.checking.cases import Case


def attention_inputs(
    *,
    dtype: str = "float64",
    masks: bool = True,
    empty_rows: bool = False,
    max_batch: int = 2,
    max_heads: int = 3,
    max_length: int = 9,
    max_width: int = 8,
    largest_score: float = 100.0,
) -> SearchStrategy[dict[str, Any]]:
    """Draw {"q", "k", "v"} and perhaps "mask": NumPy arrays (batch, heads, length, width).

    Sizes from 1; n, m, d_k, d_v are drawn apart. Scores (with the scale 1/sqrt(d_k)) stay within largest_score. A
    mask is boolean (True = the key takes part), of full or broadcast shape; no row is empty unless empty_rows.

    Raises MissingError where hypothesis is not installed.
    """
    import numpy as np

    from verify.checking.calls import dtype_of
    from verify.errors import MissingError

    try:
        from hypothesis import strategies as st
    except ImportError as error:
        raise MissingError("verify.strategies needs hypothesis: pip install hypothesis") from error

    kind = dtype_of(dtype)

    @st.composite
    def draw_inputs(draw: Any) -> dict[str, Any]:
        b, h = draw(st.integers(1, max_batch)), draw(st.integers(1, max_heads))
        n, m = draw(st.integers(1, max_length)), draw(st.integers(1, max_length))
        d_k, d_v = draw(st.integers(1, max_width)), draw(st.integers(1, max_width))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        style = draw(st.sampled_from(("normal", "integers", "equal", "large")))
        shapes = ((b, h, n, d_k), (b, h, m, d_k), (b, h, m, d_v))
        if style == "integers":
            q, k, v = (rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes)
        elif style == "equal":
            q, k, v = np.zeros(shapes[0]), np.ones(shapes[1]), rng.integers(-3, 4, shapes[2]).astype(np.float64)
        else:
            q, k, v = (rng.standard_normal(shape) for shape in shapes)
            if style == "large":
                most = np.abs(np.einsum("bhnd,bhmd->bhnm", q, k)).max() / np.sqrt(d_k)
                q = q * (draw(st.floats(1.0, largest_score)) / max(float(most), 1e-9))
        found: dict[str, Any] = {"q": q.astype(kind), "k": k.astype(kind), "v": v.astype(kind)}
        if masks and draw(st.booleans()):
            shape = draw(st.sampled_from(((b, h, n, m), (1, 1, n, m), (b, 1, 1, m), (1, 1, 1, m))))
            mask = rng.random(shape) < draw(st.floats(0.2, 1.0))
            if not empty_rows:
                mask[..., 0] |= ~mask.any(-1)
            found["mask"] = mask
        return found

    return draw_inputs()


def designed_inputs(dtype: str = "float32", *, spec: Any = None) -> list[Case]:
    """The designed inputs of a check as a list of cases, each with `name`, `about` and `call` (q, k, v, mask, spec).

    For parametrising one's own tests: `@pytest.mark.parametrize("case", designed_inputs(), ids=lambda c: c.name)`.
    Plain, masked, causal and scaled inputs; a call's right value is `verify.checking.reference.truth(case.call)`.

    >>> [case.name for case in designed_inputs()][:2]
    ['one key', 'two keys']
    """
    import numpy as np

    from verify.checking.cases import Setting
    from verify.checking.inputs import PLAIN
    from verify.checking.masked import biases, causal, masks
    from verify.checking.profiles import Profile
    from verify.checking.specs import parse_spec
    from verify.checking.variants import scales

    has = frozenset(("mask", "bias", "causal", "scale"))
    profile = Profile(parameters={name: name for name in has})
    setting = Setting(profile, parse_spec(spec), dtype, has)
    rng = np.random.default_rng(0)
    makers = (*PLAIN, masks, biases, causal, scales)
    return [case for maker in makers for case in maker(setting, rng) if setting.fits(case.call)]
