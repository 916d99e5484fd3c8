"""What docs/guide/cupy.md shows, for the tests that run it."""

from common import SOURCE

PAGE = SOURCE / "docs/guide/cupy.md"


def blocks(language):
    """The fenced blocks of that language, in order."""
    found, inside = [], None
    for line in PAGE.read_text().splitlines():
        if inside is None and line.startswith("```"):
            inside = line[3:]
            found += [""] if inside == language else []
        elif line == "```":
            inside = None
        elif inside == language:
            found[-1] += line + "\n"
    return found
