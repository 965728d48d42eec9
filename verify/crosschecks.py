"""Claims against numbers: each statement in fifty digits, as a float64 function, and against what `compute` computes.

Guarantees: three comparisons a claim, each with its own reason for the tolerance:
 1. exact: both sides at drawn small inputs, evaluated node by node in many digits, agree to 50 digits (or stand in
    the claimed order);
 2. formula: the right side, printed as an operation tree and run by `compute.function_from` in float64, lies within
    the worst-case rounding bound of the value in many digits, entry by entry;
 3. computed: what `compute` gives for the same quantity at larger sizes lies within the sum of both bounds.
A comparison that does not apply is "skipped", with the reason, never counted as agreement.
Does not: prove (that is `derive`), or simulate expectations (that is a study's work).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import mpmath
import numpy as np

from compute.streams import Stream
from derive.assumptions import RandomEntries
from derive.language import Diff
from verify.crosschecking.arithmetic import Digits, Rounded, Unsupported
from verify.crosschecking.draws import Inputs, Signature, draw, signature
from verify.crosschecking.evaluation import Evaluation
from verify.crosschecking.expectations import RandomEvaluation, has_expectations

if TYPE_CHECKING:
    from derive.catalogue import Claim

Status = Literal["agrees", "differs", "skipped"]
DIGITS = 50
# A nested derivative keeps a quarter of a quarter of the digits: 900/16 > 50; one alone needs 4·50 and some.
_WORKING = {0: 80, 1: 260, 2: 900}


@dataclass(frozen=True)
class Comparison:
    """One of the three comparisons. worst: the largest |difference| over what is allowed (above 1 differs)."""

    status: Status
    detail: str
    worst: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "detail": self.detail, "worst": self.worst}


@dataclass(frozen=True)
class CrossCheck:
    """What a claim's cross-check came to; exact, formula and computed as in the module's text."""

    claim: str
    exact: Comparison
    formula: Comparison
    computed: Comparison

    @property
    def parts(self) -> dict[str, Comparison]:
        return {"exact": self.exact, "formula": self.formula, "computed": self.computed}

    @property
    def status(self) -> Status:
        """ "differs" if any part does; "agrees" if one agrees and none differs; else "skipped"."""
        found = {part.status for part in self.parts.values()}
        if "differs" in found:
            return "differs"
        return "agrees" if "agrees" in found else "skipped"

    def to_json(self) -> dict[str, Any]:
        parts = {name: part.to_json() for name, part in self.parts.items()}
        return {"claim": self.claim, "status": self.status, **parts}


def crosscheck(claim: str | Claim, *, seed: int = 0, draws: int = 3) -> CrossCheck:
    """Compare a claim with numbers.

    claim: an id or a Claim (one of your own, or a mutant). draws: how many sizes and inputs are tried. Raises
    derive's UnknownClaim for an id that does not exist.
    """
    import derive

    one = derive.claim(claim) if isinstance(claim, str) else claim
    try:
        sig = signature((one.lhs, one.rhs), one.assumptions)
        inputs = _inputs(one, sig, seed, draws)
    except Unsupported as reason:
        nothing = Comparison("skipped", str(reason))
        return CrossCheck(one.id, nothing, nothing, nothing)
    return CrossCheck(one.id, _exact(one, sig, inputs), _formula(one, sig, inputs), _computed(one, sig, inputs))


def _inputs(claim: Claim, sig: Signature, seed: int, draws: int) -> list[Inputs]:
    """The draws at which a claim is tried; for expectations, such as can be enumerated."""
    if not has_expectations(claim.lhs, claim.rhs):
        size = _heavy(claim) if claim.relation == "=" else {}
        return [draw(sig, Stream(seed, f"crosscheck/{claim.id}", r), **size) for r in range(draws)]
    found: list[Inputs] = []
    reason = Unsupported("no drawn parameters belong to a law")
    for attempt in range(60):
        drawn = draw(sig, Stream(seed, f"crosscheck/{claim.id}", attempt), largest=3, most_places=3)
        try:
            _evaluation(claim, sig, drawn, context_for(claim.lhs))
        except Unsupported as why:
            reason = why
            continue
        found.append(drawn)
        if len(found) == draws:
            return found
    if not found:
        raise reason
    return found


def _evaluation(claim: Claim, sig: Signature, drawn: Inputs, context: Any) -> Evaluation:
    """The evaluation in many digits of a claim's sides, random or not."""
    if not has_expectations(claim.lhs, claim.rhs):
        return Evaluation(Digits(context), drawn.entries(), drawn.numbers(), sig.definitions)
    laws = [a for a in sig.assumptions if isinstance(a, RandomEntries)]
    return RandomEvaluation(context, drawn.entries(), drawn.numbers(), sig.definitions, laws, (claim.lhs, claim.rhs))


def _heavy(claim: Claim) -> dict[str, int]:
    """Smaller sizes and fewer entries where a derivative of many nested sums would take long."""
    from sympy import Sum

    sums = len(claim.lhs.atoms(Sum)) + len(claim.rhs.atoms(Sum))
    return {"largest": 3, "most_places": 6} if sums >= 8 and claim.lhs.atoms(Diff) else {}


# -- in many digits -----------------------------------------------------------------------------------------------


def context_for(*sides: Any) -> Any:
    """A multiprecision context with the digits that the derivatives in these expressions need."""
    depth = min(2, max((_depth(s) for s in sides), default=0))
    context = mpmath.MPContext()
    context.dps = _WORKING[depth]
    return context


def _depth(expr: Any) -> int:
    inner = max((_depth(a) for a in getattr(expr, "args", ())), default=0)
    return inner + isinstance(expr, Diff)


def _exact(claim: Claim, sig: Signature, inputs: list[Inputs]) -> Comparison:
    if claim.relation not in ("=", "<=", "<"):
        return Comparison("skipped", f"a statement of kind {claim.relation!r} is not about values at numbers")
    context = context_for(claim.lhs, claim.rhs, *(d.body for d in sig.definitions))
    allowed = context.mpf(10) ** -DIGITS
    worst, count = context.mpf(0), 0
    try:
        for drawn in inputs:
            run = _evaluation(claim, sig, drawn, context)
            for at in drawn.places:
                left, right = run.value(claim.lhs, at), run.value(claim.rhs, at)
                excess = abs(left - right) if claim.relation == "=" else left - right
                # Strictly less: equality is a failure too.
                if claim.relation == "<" and left == right:
                    excess = 2 * allowed * max(1, abs(left))
                worst, count = max(worst, excess / (allowed * max(1, abs(left), abs(right)))), count + 1
    except Unsupported as reason:
        return Comparison("skipped", str(reason))
    if worst > 1:
        return Comparison("differs", f"off by {_power(worst * allowed)} in {count} entries", float(min(worst, 1e300)))
    return Comparison("agrees", f"{count} entries to {DIGITS} digits", float(worst))


def _power(value: Any) -> str:
    return str(mpmath.nstr(value, 2))


# -- as a function of float64 -------------------------------------------------------------------------------------


def _formula(claim: Claim, sig: Signature, inputs: list[Inputs]) -> Comparison:
    from compute.functions import function_from
    from derive.errors import DeriveError
    from derive.printing.tree import operation_tree

    try:
        function = function_from(operation_tree(claim.rhs, [one.index for one in sig.indices], claim.assumptions))
    except DeriveError as reason:
        # The node's name is the reason; the whole expression would not help a reader.
        return Comparison("skipped", f"no operation tree: {str(reason).split(' in ')[0]}")
    except RecursionError:  # an abbreviation that is defined by itself has no finite tree
        return Comparison("skipped", "no operation tree: a definition by recursion")
    worst, count = 0.0, 0
    try:
        for drawn in inputs:
            got = np.asarray(function(**_arguments(function, drawn)))
            context = context_for()
            run = Evaluation(Rounded(context), drawn.entries(), drawn.numbers(), sig.definitions)
            for at in drawn.places:
                value, bound = run.value(claim.rhs, at)
                place = tuple(at[one.index] for one in sig.indices)
                off = abs(context.mpf(float(got[place])) - value)
                worst, count = max(worst, float(off / (bound + context.mpf(2) ** -1074))), count + 1
    except Unsupported as reason:
        return Comparison("skipped", str(reason))
    text = f"{count} entries, at most {worst:.2g} of the rounding bound"
    return Comparison("agrees" if worst <= 1 else "differs", text, worst)


def _arguments(function: Any, drawn: Inputs) -> dict[str, Any]:
    """The function's arguments by name; an array of one entry where the tree takes a number."""
    from derive.printing.tree import identifier

    known: dict[str, Any] = {**drawn.sizes, **drawn.scalars, **drawn.arrays}
    plain = {identifier(name): value for name, value in known.items()}
    numbers = {one.name for one in function.tree.inputs if not one.axes}
    return {
        name: float(plain[name].reshape(())) if name in numbers and hasattr(plain[name], "reshape") else plain[name]
        for name in function.inputs
    }


# -- against compute ----------------------------------------------------------------------------------------------


def _computed(claim: Claim, sig: Signature, inputs: list[Inputs]) -> Comparison:
    from verify.crosschecking.counterparts import COUNTERPARTS

    counterpart = COUNTERPARTS.get(claim.id)
    if counterpart is None:
        return Comparison("skipped", "compute has no call for this quantity")
    worst, count = 0.0, 0
    try:
        for drawn in inputs:
            got, allowed = counterpart(drawn)
            context = context_for(claim.rhs)
            run = Evaluation(Digits(context), drawn.entries(), drawn.numbers(), sig.definitions)
            for at in drawn.places:
                place = tuple(at[one.index] for one in sig.indices)
                off = abs(context.mpf(float(got[place])) - run.value(claim.rhs, at))
                worst, count = max(worst, float(off / allowed[place])), count + 1
    except Unsupported as reason:
        return Comparison("skipped", str(reason))
    text = f"{count} entries, at most {worst:.2g} of the plain algorithm's bound"
    return Comparison("agrees" if worst <= 1 else "differs", text, worst)
