#!/usr/bin/env python3
"""A language model that is larger than the device memory it may have: weights in memory of the host's that the device reads where they
are (weir, residency="auto"), beside as many whole layers on the device as fit and the rest on the processor (llama.cpp's own offload).

    bench/larger.py MODEL.gguf [--device cuda:0] [--over 1.3] [--budget BYTES] [--rounds 3] [--tokens 64] [--json FILE]

The budget is that of all memory on the device: the file's size over `--over`, unless told. Both have it, each in a process of its own.
Measured are prompts of 512 and 4096 tokens and the decode of one sequence, and, of a load with short sequences, the decode of eight at
once, in tokens a second; told are the medians and their quotients. The cache that a load may come to need is kept free beside the weights,
so that a load has no more of it than it is asked for. Needs the engine gguf with CUDA, and weir's Python package. Exit status 1: a process failed."""

import argparse
import array
import json
import os
import statistics
import subprocess
import sys
import threading
import time

PROMPTS, SEQUENCES, FIRST_WORD, WORDS = (512, 4096), 8, 259, 20000
LONG, SHORT = 8192, 1024  # tokens that a sequence may have


def prompt(count, seed=17):
    return {"tokens": array.array("i", [FIRST_WORD + (i * 7919 + seed) % WORDS for i in range(count)])}


def prefill(model, count, seed):
    start = time.monotonic()
    model(prompt(count, seed), tokens=1, temperature=0)
    return count / (time.monotonic() - start)


def times(model, made, seed):
    """When each token came."""
    return [time.monotonic() for _ in model.stream(prompt(128, seed), tokens=made, temperature=0, ignore_eos=1)]


def decode(model, made, seed):
    at = times(model, made + 1, seed)
    return (len(at) - 1) / (at[-1] - at[0])


def decode_together(model, made, seed):
    """Of the tokens that came when all sequences had begun."""
    of = [[] for _ in range(SEQUENCES)]

    def one(number):
        of[number] = times(model, made + 1, seed + number)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(SEQUENCES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begun, end = max(at[0] for at in of), min(at[-1] for at in of)
    return sum(begun < when <= end for at in of for when in at) / max(end - begun, 1e-9)


def settle(model):
    """Until nothing more comes: all of it is there, or there is no more room."""
    import weir
    for _ in range(1200):
        now = model.residency
        if now.shown == 0 or now.stopped != weir.Status.OK:
            break
        time.sleep(0.1)


def load(given, context, sequences):
    """The model, and its runtime, with all on the device that will be there."""
    import weir
    runtime = weir.Runtime(given.device, budget=given.budget, own=True)
    settings = {"sequences": sequences, "context": context}
    if given.layers is not None:
        settings["gpu_layers"] = given.layers
    model = weir.load(given.model, runtime=runtime, residency="whole" if given.layers is not None else "auto", settings=settings)
    model("warm", tokens=2, temperature=0)
    settle(model)
    return model, runtime


def one(given):
    """One variant in this process."""
    model, runtime = load(given, LONG, 1)
    with model:
        answer = {"shown": model.residency.shown}
        for count in PROMPTS:
            answer[f"prompt_{count}"] = [prefill(model, count, 31 * r + 1) for r in range(given.rounds)]
        answer["decode_1"] = [decode(model, given.tokens, 7 * r + 2) for r in range(given.rounds)]
        answer["peak"] = runtime.stats().peak
    model, runtime = load(given, SHORT, SEQUENCES)
    with model:
        answer["shown_to_eight"] = model.residency.shown
        answer[f"decode_{SEQUENCES}"] = [decode_together(model, given.tokens, 100 * r + 3) for r in range(given.rounds)]
    print(json.dumps(answer))


def process(given, layers):
    """What a process says; None when it failed."""
    words = [sys.executable, "-B", __file__, given.model, "--device", given.device, "--budget", str(given.budget),
             "--rounds", str(given.rounds), "--tokens", str(given.tokens), "--layers", "auto" if layers is None else str(layers)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{'weir' if layers is None else f'{layers} layers'}: {done.stderr.strip()[-300:]}", file=sys.stderr, flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def most_layers(given):
    """The most layers that load and run under the budget, and what they say."""
    import weir
    total = weir.predict(given.model, device=given.device, settings={"context": LONG}).layers
    guess = min(total, int(total * given.budget / os.path.getsize(given.model)))
    for layers in range(guess, -1, -1):
        answer = process(given, layers)
        if answer:
            return layers, answer
    return None, None


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--over", type=float, default=1.3)
    parser.add_argument("--budget", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--layers", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.budget = given.budget or int(os.path.getsize(given.model) / given.over)
    return given


def main():
    given = words()
    if given.layers is not None:
        given.layers = None if given.layers == "auto" else int(given.layers)
        one(given)
        return 0
    weirs = process(given, None)
    layers, offload = most_layers(given)
    if not weirs or not offload:
        return 1
    print(f"| budget {given.budget >> 20} MiB of a file of {os.path.getsize(given.model) >> 20} MiB | {layers} layers on the device | weir | quotient |\n| --- | --- | --- | --- |")
    for name in [name for name in weirs if isinstance(weirs[name], list)]:
        mine, its = statistics.median(weirs[name]), statistics.median(offload[name])
        print(f"| {name}, tokens/s | {its:.1f} | {mine:.1f} | {mine / its:.3f} |")
    print(f"| read from the host's memory, MiB | - | {weirs['shown'] >> 20} | |")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"layers": layers, "offload": offload, "weir": weirs}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
