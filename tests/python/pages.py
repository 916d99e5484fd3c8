"""What the guide's pages show in Python, for tests that run it as it is printed."""

import re

from common import SOURCE


def snippets(page, word):
    """(line, text) of each block of that page of docs/guide that is marked as ```python WORD."""
    text = (SOURCE / "docs/guide" / page).read_text(encoding="utf-8")
    for found in re.finditer(rf"^```python {word}\n(.*?)^```$", text, re.M | re.S):
        yield text.count("\n", 0, found.start()) + 1, found[1]
