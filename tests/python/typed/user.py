"""A program of a user's, which mypy --strict takes: nothing that weir answers is without a type."""

from __future__ import annotations

from collections.abc import Mapping
from typing_extensions import assert_type

import weir


def memory() -> int:
    with weir.Runtime("host", budget="64MiB", own=True) as runtime, runtime.client("a", maximum=2**20) as client:
        assert_type(runtime, weir.Runtime)
        assert_type(runtime.budget, int)
        with client.alloc("4KiB", memory_class=weir.Class.KV, zeroed=True) as block:
            assert_type(block, weir.Block)
            assert_type(block.memory, memoryview)
            assert_type(block.tensor(weir.Type.F32, (4, 256)), weir.Tensor)
        stats = client.stats()
        assert_type(stats, weir.ClientStats)
        assert_type(stats.live_class, Mapping[weir.Class, int])
        try:
            client.alloc(2**21)
        except weir.OutOfMemory as error:
            assert_type(error.refusal, weir.Refusal | None)
            return error.refusal.remaining if error.refusal else 0
        return stats.live


def models(path: str) -> list[str]:
    with weir.load(path, budget="1GiB", client="m") as model:
        assert_type(model, weir.Model)
        assert_type(model.info().inputs[0], weir.Port)
        assert_type(model.metrics().busy_seconds, float)
        with model.stream("hello", max_tokens=4) as stream:
            return [str(piece) for piece in stream]


async def tokens(model: weir.Model) -> None:
    async for piece in model.astream("hello"):
        assert_type(piece, weir.Piece)


def looks() -> None:
    assert_type(weir.explain("minilm.onnx"), weir.Choice)
    assert_type(weir.predict("minilm.onnx"), weir.Prediction)
    assert_type(weir.devices()[0], weir.Device)
    assert_type(weir.parse_size("1GiB"), int)
