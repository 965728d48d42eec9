"""Judging an implementation of attention: what was asked, what came back, and what that proves.

`judge.check` is the entry. A check keeps apart what is *proved wrong* (outside a certified value by more than the
worst case of the algorithm), a *property broken* (no reference needed), and what is merely *suspicious* (statistics);
conventions are named, not failed, unless a convention was declared.
"""
