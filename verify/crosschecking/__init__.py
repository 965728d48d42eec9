"""What a cross-check needs: a plain multiprecision evaluation of statements, inputs, and what compute says instead.

Guarantees: statements are read from the claims' own SymPy objects; nothing here is shared with `compute`, nor with
the checkers of `derive`. Does not: prove.
"""
