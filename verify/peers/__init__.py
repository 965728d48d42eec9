"""Known names: other people's attention under the canonical signature f(q, k, v, *, mask, bias, causal, scale, ...).

Guarantees: each adapter only passes arguments on; what a library refuses is raised, not worked round.
Does not: import a library before its target is loaded.
"""
