"""LaTeX that GitHub shows as it is written.

Guarantees: what comes out means the same to TeX and holds nothing that GitHub takes away: no backslash before
punctuation (Markdown eats it, even between dollars), and no macro that its MathJax refuses (operatorname, mbox and
others, since 2023). Does not: typeset, or change anything else.
"""

from __future__ import annotations

import re

# A backslash and punctuation -> the control word that means the same, or nothing where it is only space.
_WORDS = {
    "\\": r"\cr ",
    "|": r"\Vert ",
    "{": r"\lbrace ",
    "}": r"\rbrace ",
    ",": r"\thinspace ",
    "!": "",
    ";": r"\quad ",
}
_REFUSED = ("operatorname", "mbox", "def", "newcommand", "require", "href", "phantom", "unicode", "class", "style")


def safe(tex: str) -> str:
    r"""The same formula for GitHub. Raises ValueError for what has no such form.

    >>> print(safe(r"\operatorname{Var}\left[\|J\|_F\right] = \begin{cases}1 & n = 1 \\ 0 & n > 1\end{cases}"))
    \mathop{\mathrm{Var}}\left[\Vert J\Vert _F\right] = \begin{cases}1 & n = 1 \cr 0 & n > 1\end{cases}
    """
    found = re.sub(r"\\operatorname\{([^{}]*)\}", r"\\mathop{\\mathrm{\1}}", tex)
    found = re.sub(r"\\([^a-zA-Z\s])", lambda m: _WORDS.get(m[1], m[0]), found)
    found = found.replace(r"\cr  ", r"\cr ")
    wrong = re.findall(r"\\[^a-zA-Z\s]", found) + re.findall(rf"\\(?:{'|'.join(_REFUSED)})(?![a-zA-Z])", found)
    wrong += re.findall(r"<(?=[a-zA-Z/!])|\*|\$|`", found)
    if wrong:
        raise ValueError(f"GitHub would not show {', '.join(sorted(set(wrong)))} in {tex[:200]}")
    return found
