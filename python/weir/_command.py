"""Where the command weir is: in this package, or beside the libweir in use, or in PATH."""

from __future__ import annotations

import os
import shutil

from ._c.library import PACKAGE, lib


def command() -> str:
    """Its file. FileNotFoundError where there is none."""
    places = [os.path.join(PACKAGE, "bin", "weir"), os.path.join(os.path.dirname(lib._name), "..", "bin", "weir")]
    found = next(filter(os.path.exists, places), None) or shutil.which("weir")
    if not found:
        raise FileNotFoundError("the command weir is not here: the package that scripts/wheel makes has it inside, 'make install' puts it "
                                "beside libweir")
    return found
