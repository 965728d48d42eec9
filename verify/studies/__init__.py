"""Experiments: factors × observables × laws, with the statistics that their dependence allows.

Guarantees: every law comes from a claim of `derive`, every measurement from `compute`, and what is compared is
declared before the numbers are seen. Does not: fit a law to the numbers it judges.
"""
