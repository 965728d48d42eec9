"""The claims, one family a module.

A module here defines `claims() -> list[Claim]`; ids are `module.name`. To add a claim, add it to a module's list
(or add a module) and name the observable that measures it. Modules whose name starts with "_" are helpers.
"""

# Reading order of the families: the order of the source text. Families not named here come after, by name.
ORDER = (
    "projections",
    "scores",
    "variance",
    "moments",
    "scaling",
    "softmax",
    "saturation",
    "output",
    "gradients",
    "online",
    "masks",
    "positions",
    "heads",
    "recurrence",
    "residual",
    "counts",
)
