"""What a machine makes of attention: values, gradients, enclosures, tolerances, Monte Carlo. NumPy or CuPy.

Guarantees: the array library follows the inputs, and no GPU package is imported unless a GPU array is given.
`compute` never imports `derive` or `verify`.
Does not: prove formulas (that is `derive`), or judge an implementation (`verify`).

Importing this package is cheap: NumPy is loaded when something is first computed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compute.alibi import standard_slopes as standard_slopes
    from compute.blocks import LayerGradients as LayerGradients
    from compute.blocks import lstm_cell as lstm_cell
    from compute.blocks import lstm_cell_backward as lstm_cell_backward
    from compute.blocks import residual_block as residual_block
    from compute.blocks import residual_block_backward as residual_block_backward
    from compute.blocks import rnn_cell as rnn_cell
    from compute.blocks import rnn_cell_backward as rnn_cell_backward
    from compute.blocks import self_attention as self_attention
    from compute.blocks import self_attention_backward as self_attention_backward
    from compute.bounds import Eager as Eager
    from compute.bounds import Flash as Flash
    from compute.bounds import Tolerance as Tolerance
    from compute.bounds import tolerance as tolerance
    from compute.cache import Cache as Cache
    from compute.calls import Gradients as Gradients
    from compute.calls import attention as attention
    from compute.calls import attention_backward as attention_backward
    from compute.certificate import Certificate as Certificate
    from compute.certificate import certify as certify
    from compute.emulate import emulated_attention as emulated_attention
    from compute.emulate_backward import EmulatedGradients as EmulatedGradients
    from compute.emulate_backward import emulated_attention_backward as emulated_attention_backward
    from compute.enclosure import Enclosure as Enclosure
    from compute.formats import round_to as round_to
    from compute.functions import function_from as function_from
    from compute.layouts import packed_attention as packed_attention
    from compute.layouts import packed_attention_backward as packed_attention_backward
    from compute.layouts import paged_attention as paged_attention
    from compute.layouts import swap_heads as swap_heads
    from compute.merge import merge_states as merge_states
    from compute.search import WorstInput as WorstInput
    from compute.search import worst_inputs as worst_inputs
    from compute.spec import Rope as Rope
    from compute.spec import Spec as Spec

# Public name -> module that defines it. No module is called like a public name, so neither can hide the other.
_HOMES = {
    "standard_slopes": "compute.alibi",
    "merge_states": "compute.merge",
    "LayerGradients": "compute.blocks",
    "lstm_cell_backward": "compute.blocks",
    "lstm_cell": "compute.blocks",
    "rnn_cell_backward": "compute.blocks",
    "rnn_cell": "compute.blocks",
    "residual_block_backward": "compute.blocks",
    "residual_block": "compute.blocks",
    "self_attention_backward": "compute.blocks",
    "self_attention": "compute.blocks",
    "Cache": "compute.cache",
    "paged_attention": "compute.layouts",
    "packed_attention_backward": "compute.layouts",
    "packed_attention": "compute.layouts",
    "swap_heads": "compute.layouts",
    "round_to": "compute.formats",
    "emulated_attention": "compute.emulate",
    "emulated_attention_backward": "compute.emulate_backward",
    "EmulatedGradients": "compute.emulate_backward",
    "function_from": "compute.functions",
    "attention": "compute.calls",
    "attention_backward": "compute.calls",
    "Gradients": "compute.calls",
    "Eager": "compute.bounds",
    "Flash": "compute.bounds",
    "Tolerance": "compute.bounds",
    "tolerance": "compute.bounds",
    "Certificate": "compute.certificate",
    "certify": "compute.certificate",
    "Enclosure": "compute.enclosure",
    "WorstInput": "compute.search",
    "worst_inputs": "compute.search",
    "Spec": "compute.spec",
    "Rope": "compute.spec",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'compute' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
