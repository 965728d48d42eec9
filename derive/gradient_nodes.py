"""Nodes for mean squared gradients of attention at random inputs.

Guarantees: opaque to SymPy, printed with their setting, and evaluated by the exact oracle.
Does not: know any law (`derive.gradient_words` derives them).
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.row_nodes import Mean, floats


class Gradient(Mean):
    """Gradient(of, n, d_k, s): mean squared norm of a gradient per row (or key) and per unit of d_v.

    of: RowSymbol q, k, v or S, for dL/dq_i, dL/dk_j, dL/dv_j, dL/dS_i. Q, K, V and the upstream gradient are
    independent with i.i.d. N(0, 1) entries.
    """

    nargs = 4
    own_key = False

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        of = self.args[0]
        name = {"q": "q_i", "k": "k_j", "v": "v_j", "S": "S_i"}.get(of.name) or printer.doprint(of)
        count = "d_v" if len(of.name) == 1 else f"{printer.doprint(self.args[1])} d_v"
        under = ",".join(printer.doprint(a) for a in self._shown())
        own = r"^{\mathrm{own}}" if self.own_key else ""
        return rf"\frac{{1}}{{{count}}}\mathbb{{E}}_{{{under}}}{own}\left\|\partial L/\partial {name}\right\|^2"

    def setting(self) -> dict[str, Any] | None:
        values = floats(self.args[1:])
        return None if values is None else dict(zip(("n", "d_k", "scale", "d_model"), values, strict=False))

    def _eval_evalf(self, prec: int) -> Any:
        from derive.oracle import expect

        setting = self.setting()
        of = self.args[0].name
        name = f"gradient_{'scores' if of == 'S' else of.lower()}"
        return None if setting is None else sympy.Float(float(expect(name, **setting, own_key=self.own_key).value))


class SelfGradient(Gradient):
    """SelfGradient(of, n, d_k, s, d_model): the mean squared gradient in attention from one X to n other tokens of it.

    The setting is that of `derive.oracle_self_attention`. of may also be W_Q, W_K or W_V: the squared Frobenius norm of
    dL/dW, divided by n d_v.
    """

    nargs = 5


class OwnKeyGradient(SelfGradient):
    """OwnKeyGradient(of, n, d_k, s, d_model): the same with the own key among the n, to order 1/(n d_model)."""

    own_key = True
