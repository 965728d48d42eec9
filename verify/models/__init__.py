"""Real transformers as a source of queries and keys: weights from safetensors files, forward passes in NumPy.

Guarantees: weights are data; no package that ships them is imported, and no framework is needed.
Does not: train, generate text, or claim to be fast.
"""
