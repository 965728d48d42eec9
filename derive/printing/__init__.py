"""Printers: LaTeX, plain text, and the operation tree that compute turns into functions."""
