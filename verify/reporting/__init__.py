"""Pages and pictures: Markdown and SVG made from the objects that were checked or measured.

Guarantees: a page is a function of its objects, without time, version or machine, so that making it twice gives
the same file. Does not: compute what it shows.
"""
