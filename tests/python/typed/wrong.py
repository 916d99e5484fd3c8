"""A program of a user's with mistakes, of which mypy tells each: a line that has a mistake says of which kind."""

from __future__ import annotations

import weir

with weir.Runtime("host", budget=1.5) as runtime:  # arg-type
    client = runtime.client("a", maximun=1)  # call-arg
    client.alloc("4KiB", memory_class="kv")  # arg-type
    client.stats().lives  # attr-defined
    weir.lod("minilm.onnx")  # attr-defined
    size: str = weir.parse_size("1GiB")  # assignment
