#!/usr/bin/env python3
"""What is predicted for models beside what they take: before any load, and after one.

    predict.py WEIR [FOLDER]    WEIR is the command; in FOLDER are the models, which are made where there is none

Prints a table for docs/benchmarks.md. Each model is predicted, loaded and run, predicted and run again; what loads have
measured is kept in a store of its own, whose engines and models are those of the usual one.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WHOLE = ("cache_memory=whole",)


def usual_store(weir):
    options = json.loads(subprocess.run([weir, "options", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    return Path(next(o["value"] for o in options["options"] if o["name"] == "home"))


def cases(store, folder):
    """Name, file, settings and inputs."""
    tiny = [("tiny-llama f16", store / "models/tiny-llama.gguf")]
    tiny += [(f"tiny-llama {kind}", folder / f"tiny-llama-{kind}.gguf") for kind in ("f32", "q8_0", "q4_0")]
    for name, path in tiny:
        for context in (512, 4096):
            yield f"{name}, context {context}", path, (f"context={context}", *WHOLE), ("--prompt", "a tale", "--tokens", "16")
    four = ("context=2048", "sequences=4", "cache_k=q8_0", "cache_v=q8_0", *WHOLE)
    yield "tiny-llama f16, 4 x 2048, cache q8_0", tiny[0][1], four, ("--prompt", "a tale", "--tokens", "16")
    yield "minilm.gguf", store / "models/minilm.gguf", (), ("--prompt", "a tale")
    for batch, tokens in ((1, 32), (1, 128), (8, 128)):
        inputs = [word for name in ("input_ids", "attention_mask", "token_type_ids")
                  for word in ("--input", f"{name}=shape:{batch}x{tokens}")]
        yield (f"minilm.onnx, {batch} x {tokens}", store / "models/minilm.onnx", (f"dims=batch={batch},sequence={tokens}",), inputs)
    for batch in (1, 8):
        dims = (f"dims=batch={batch},steps=64,tokens=128",)
        for name, shape in (("resnet", "3x224x224"), ("small-resnet", "3x96x96")):
            yield f"{name}.onnx, batch {batch}", folder / f"{name}.onnx", dims, ("--input", f"image=shape:{batch}x{shape}")
        yield f"lstm.onnx, {batch} x 64", folder / "lstm.onnx", dims, ("--input", f"sequence=shape:{batch}x64x256")
        for name, width in (("transformer", 512), ("wide-transformer", 1024)):
            yield f"{name}.onnx, {batch} x 128", folder / f"{name}.onnx", dims, ("--input", f"hidden=shape:{batch}x128x{width}")
    for name in ("tiny-llm", "tiny-llm-concat"):
        yield f"{name} (GenAI), 256 tokens", store / "models" / name, (), ("--prompt", "a", "--tokens", "250", "--set", "ignore_eos=1")


def call(weir, verb, path, settings, words, home):
    chosen = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([weir, verb, path, "--json", *chosen, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=os.environ | {"WEIR_HOME": str(home), "WEIR_PREDICTIONS": "1"}, text=True)
    if done.returncode:
        sys.exit(f"weir {verb} {path}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    weir = str(Path(sys.argv[1]).absolute())
    store = usual_store(weir)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "store"
        home.mkdir()
        for name in ("engines", "models"):
            (home / name).symlink_to(store / name)
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch) / "models"
        if not folder.exists():
            subprocess.run([store / "venv/bin/python", HERE / "predict_models.py", folder, store / "models/tiny-llama.gguf"], check=True)
        print("| model | measured, MB | from the file | engine's word | after one run |")
        print("|---|---|---|---|---|")
        for name, path, settings, words in cases(store, folder):
            quick = call(weir, "predict", path, settings, ("--quick", "--cold"), home)["peak_total"]
            cold = call(weir, "predict", path, settings, ("--cold",), home)["peak_total"]
            first = call(weir, "run", path, settings, words, home)["clients"][0]["peak"]
            warm = call(weir, "predict", path, settings, (), home)["peak_total"]
            second = call(weir, "run", path, settings, words, home)["clients"][0]["peak"]
            errors = [f"{100 * (said / took - 1):+.1f} %" for said, took in ((quick, first), (cold, first), (warm, second))]
            print("|", " | ".join([name, f"{first / 1e6:.2f}", *errors]), "|", flush=True)


if __name__ == "__main__":
    main()
