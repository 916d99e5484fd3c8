"""`python -m weir` is the command weir."""

import os
import sys

from ._command import command

if __name__ == "__main__":
    try:
        words = [command(), *sys.argv[1:]]
    except FileNotFoundError as error:
        sys.exit(f"python -m weir: {error}")
    os.execv(words[0], words)
