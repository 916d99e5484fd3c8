#!/usr/bin/env python3
"""Loads many generated models, of shapes, settings and inputs at random, and counts those that take more than was predicted before
any load of theirs, with a tenth to spare.

    under.py [LOADS]    WEIR_LIBRARY, WEIR_ENGINE_PATH, WEIR_TEST_SOURCE and WEIR_HOME as for the tests of the Python package

Exit status 1: some did. The last line has the numbers."""

import os
import random
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ.get("WEIR_TEST_SOURCE") or Path(__file__).resolve().parent.parent.parent)
sys.path[:0] = [str(SOURCE / folder) for folder in ("python", "bench", "scripts")]
os.environ["WEIR_PREDICTIONS"] = "0"  # nothing is learnt: each is a first load

import gpu_llama_model as llama  # noqa: E402
import numpy as np  # noqa: E402
import predict_models as onnx_models  # noqa: E402

import weir  # noqa: E402

MARGIN = 1.1


def resnet(folder, pick):
    size, batch = pick.choice((32, 64, 96, 160)), pick.choice((1, 2, 5, 8))
    widths = [8 * pick.randint(1, 8) for _ in range(pick.randint(1, 4))]
    onnx_models.resnet(folder, "it", widths, pick.randint(1, 3), size)
    return folder / "it.onnx", {"dims": f"batch={batch}"}, {"image": np.zeros((batch, 3, size, size), np.float32)}, {}


def lstm(folder, pick):
    width, batch, steps = 8 * pick.randint(2, 32), pick.choice((1, 3, 8)), pick.choice((4, 32, 100))
    onnx_models.lstm(folder, "it", width, 8 * pick.randint(2, 40), pick.randint(1, 3))
    inputs = {"sequence": np.zeros((batch, steps, width), np.float32)}
    return folder / "it.onnx", {"dims": f"batch={batch},steps={steps}"}, inputs, {}


def transformer(folder, pick):
    heads, batch, tokens = pick.choice((2, 4, 8)), pick.choice((1, 2, 4)), pick.choice((16, 64, 200))
    width = heads * pick.choice((16, 32, 64))
    onnx_models.transformer(folder, "it", width, heads, pick.randint(1, 4), width * pick.choice((2, 4)))
    inputs = {"hidden": np.zeros((batch, tokens, width), np.float32)}
    return folder / "it.onnx", {"dims": f"batch={batch},tokens={tokens}"}, inputs, {}


def decoder(folder, pick):
    heads = pick.choice((2, 4, 8))
    shape = llama.Shape(pick.randint(1, 6), heads * 32 * pick.randint(1, 3), heads, pick.choice((1, 2, heads)), 32 * pick.randint(4, 40),
                        4096, 32 * pick.randint(10, 60))
    llama.write(folder / "it.gguf", shape, pick.choice(("f16", "q8_0")), pick.randint(1, 1000))
    settings = {"context": pick.choice((256, 512, 2048, 4096)), "cache_memory": pick.choice(("whole", "elastic"))}
    if pick.random() < 0.3:
        settings["sequences"] = pick.choice((2, 4))
    if pick.random() < 0.3 and shape.width // heads % 32 == 0:
        settings["cache_k"] = settings["cache_v"] = "q8_0"
    return folder / "it.gguf", settings, {"text": "w1 w2 w3 w4"}, {"tokens": pick.choice((1, 8, 40)), "ignore_eos": True}


def one(runtime, pick, kind):
    """Bytes that were predicted, and the most that it had; and what it was."""
    with tempfile.TemporaryDirectory() as scratch:
        path, settings, inputs, run = kind(Path(scratch), pick)
        settings["threads"] = pick.choice((1, 2))
        predicted = weir.predict(path, cold=True, settings=settings).peak
        with weir.load(path, runtime=runtime, settings=settings) as model:
            model(inputs, **run)
            measured = model.stats().peak
        return predicted, measured, f"{kind.__name__} {settings} {run}"


def main():
    loads, pick = int(sys.argv[1]) if len(sys.argv) > 1 else 500, random.Random(1)
    kinds, under, worst, most = (resnet, lstm, transformer, decoder), 0, 0.0, 0.0
    with weir.Runtime("host", budget="2GiB", own=True) as runtime:
        for number in range(loads):
            predicted, measured, what = one(runtime, pick, kinds[number % len(kinds)])
            ratio = measured / predicted
            worst, most = max(worst, ratio), max(most, 1 / ratio)
            if ratio > MARGIN:
                under += 1
                print(f"load {number}: {measured} bytes, {predicted} predicted ({ratio:.3f}): {what}", flush=True)
        runtime.drain()
    print(f"{loads} loads, {under} took more than {MARGIN} of what was predicted; the worst {worst:.3f}; "
          f"predicted at most {most:.2f} times what was taken")
    return under > 0


if __name__ == "__main__":
    sys.exit(main())
