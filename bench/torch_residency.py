#!/usr/bin/env python3
"""A module of PyTorch's that leaves a GPU and comes back: through weir.torch, and as programs do it without.

    bench/torch_residency.py --mib 8192 [--package python] [--rounds 3] [--cycles 1000] [--seconds 150]

Each way is a process of its own. weir: suspend and resume, contents changed and with a good copy; a small module for --cycles cycles; a
graph that was captured before and is replayed after a return. storage: each parameter to page-locked memory and back, its storage
resized, with the memory kept and made anew. moved: module.cpu() and module.cuda(). loaded: unloaded, and loaded from a file of the page
cache. Each answer has to be the first one bit by bit. The last lines are a table; the exit status is 1 when an answer is another."""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from torch_table import as_table  # noqa: E402

MIB = 1 << 20
WAYS = ("weir", "storage", "moved", "loaded")
HEAD = ("way", "leaves, ms", "comes back, ms", "back, GB/s", "of the copy in", "answers")


class Layers:
    """A chain of square matrices of 16 bits each, as large as asked for, and what it answers."""

    def __init__(self, torch, mib, side=8192):
        torch.manual_seed(1)
        count = max(1, mib * MIB // (side * side * 2))
        self.torch, self.bytes = torch, count * side * side * 2
        self.module = torch.nn.ModuleList(torch.nn.Linear(side, side, bias=False, dtype=torch.bfloat16, device="cuda")
                                          for _ in range(count))
        self.module.requires_grad_(False)
        self.input = torch.randn(16, side, dtype=torch.bfloat16, device="cuda")

    def run(self):
        x = self.input
        for layer in self.module:
            x = self.torch.nn.functional.rms_norm(layer(x), x.shape[-1:])
        return x

    def answer(self):
        """On the host, so that nothing of it leaves."""
        return self.run().cpu()


def timed(torch, function):
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def middle(values):
    return sorted(values)[len(values) // 2]


def link(torch):
    """GB/s of a page-locked copy into the device."""
    here, there = torch.empty(512 * MIB, dtype=torch.uint8, pin_memory=True), torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    return 512 * MIB / 1e6 / min(timed(torch, lambda: there.copy_(here, non_blocking=True)) for _ in range(5))


class Told:
    """Rows of one process, printed as they come: whoever reads them may end it."""

    def __init__(self, given, bytes_, copy):
        self.given, self.bytes, self.copy = given, bytes_, copy

    def row(self, what, leaves, back, same):
        rate = self.bytes / 1e6 / back if back else 0.0
        print(json.dumps({"row": [what, f"{leaves:.1f}", f"{back:.1f}", f"{rate:.1f}", f"{rate / self.copy:.3f}",
                                  "equal" if same else "OTHER"], "wrong": not same}), flush=True)

    def line(self, text, same=True):
        print(json.dumps({"line": text, "wrong": not same}), flush=True)


# ---- through weir ----------------------------------------------------------------------------------------------------

def weir_way(torch, given):
    sys.path.insert(0, str(given.package))
    import weir
    import weir.torch
    weir.torch.use()
    streams, classes = [torch.cuda.current_stream()], [weir.Class.ACTIVATIONS]  # what PyTorch allocates is of that class
    held = [Layers(torch, given.mib)]
    first = held[0].answer()
    told = Told(given, held[0].bytes, link(torch))
    torch.cuda.synchronize()

    def rounds(what, count, **options):
        leaves, back, same = [], [], True
        for _ in range(count):
            leaves.append(timed(torch, lambda: weir.torch.suspend(streams=streams, **options)))
            back.append(timed(torch, weir.torch.resume))
            same = same and torch.equal(first, held[0].answer())
        told.row(what, middle(leaves), middle(back), same)
    rounds("weir, the first time", 1)
    rounds("weir, contents changed", given.rounds)
    rounds("weir, a good copy", given.rounds, unwritten=classes)  # but libraries' workspaces, whose contents nobody reads again
    held.clear()
    gc.collect()
    graphs(torch, weir, told, streams)
    cycles(torch, weir, given, told, streams)


def graphs(torch, weir, told, streams):
    """A graph's own pool leaves, too, with the weights that it reads; all is at its addresses again."""
    layers = Layers(torch, 1024)
    layers.run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layers.run()
    graph.replay()
    first, away, same = out.cpu(), 0, True
    for _ in range(10):
        left = weir.torch.suspend(streams=streams)
        away = min(part.away for part in left.values())
        weir.torch.resume()
        out.zero_()
        graph.replay()
        same = same and torch.equal(first, out.cpu())
    same = same and away >= layers.bytes // 2
    told.line(f"a captured graph, replayed after each of 10 returns ({away >> 20} MiB were away): {'equal' if same else 'OTHER'}", same)


def cycles(torch, weir, given, told, streams):
    """Every other one with contents that have changed."""
    layers = Layers(torch, 128, side=2048)
    weights = [parameter.data for parameter in layers.module.parameters()]
    weights = weights[:len(weights) - 1 + len(weights) % 2]  # an odd number, so that the answer is another when they are negated
    answers, done, same, begun = [layers.answer()], 0, True, time.monotonic()
    for weight in weights:
        weight.neg_()
    answers.append(layers.answer())
    for done in range(1, given.cycles + 1):
        unwritten = [weir.Class.ACTIVATIONS] if done % 2 else []
        weir.torch.suspend(streams=streams, unwritten=[])
        weir.torch.resume()
        weir.torch.suspend(streams=streams, unwritten=unwritten)
        weir.torch.resume()
        same = same and torch.equal(answers[done % 2], layers.answer())
        for weight in weights:
            weight.neg_()
        if time.monotonic() > given.end:
            break
    told.line(f"{done} cycles of a module of {layers.bytes >> 20} MiB in {time.monotonic() - begun:.0f} s, each with two suspends: "
              f"{'equal' if same else 'OTHER'}", same)


# ---- without ---------------------------------------------------------------------------------------------------------

def storage_way(torch, given):
    """As libraries do that put a model to sleep."""
    layers = Layers(torch, given.mib)
    first, kept = layers.answer(), []
    told = Told(given, layers.bytes, link(torch))
    parameters = [parameter.data for parameter in layers.module.parameters()]

    def leave(fresh):
        if fresh:
            kept[:] = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in parameters]
        for each, copy in zip(parameters, kept):
            copy.copy_(each, non_blocking=True)
        torch.cuda.synchronize()
        for each in parameters:
            each.untyped_storage().resize_(0)
        torch.cuda.empty_cache()

    def come():
        for each, copy in zip(parameters, kept):
            each.untyped_storage().resize_(each.numel() * each.element_size())
            each.copy_(copy, non_blocking=True)

    for what, fresh, count in (("PyTorch's storage to page-locked memory, the first time", True, 1),
                               ("PyTorch's storage to page-locked memory, kept", False, given.rounds)):
        leaves, back, same = [], [], True
        for _ in range(count):
            leaves.append(timed(torch, lambda fresh=fresh: leave(fresh)))
            back.append(timed(torch, come))
            same = same and torch.equal(first, layers.answer())
        told.row(what, middle(leaves), middle(back), same)


def moved_way(torch, given):
    layers = Layers(torch, given.mib)
    first = layers.answer()
    told = Told(given, layers.bytes, link(torch))

    def leave():
        layers.module.cpu()
        torch.cuda.empty_cache()
    leaves, back = timed(torch, leave), timed(torch, layers.module.cuda)
    told.row("module.cpu() and module.cuda()", leaves, back, torch.equal(first, layers.answer()))


def loaded_way(torch, given):
    layers = Layers(torch, given.mib)
    first = layers.answer()
    told = Told(given, layers.bytes, link(torch))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pt"
        torch.save(layers.module.state_dict(), path)

        def leave():
            layers.module.to("meta")
            torch.cuda.empty_cache()

        def come():
            layers.module.load_state_dict(torch.load(path, map_location="cuda", mmap=True, weights_only=True), assign=True)
        leaves, back = timed(torch, leave), timed(torch, come)
        told.row("unloaded, and loaded from a file in the page cache", leaves, back, torch.equal(first, layers.answer()))


# ---- all of it -------------------------------------------------------------------------------------------------------

def run_way(way, given, left):
    """The objects that its process prints; what it says else is passed on."""
    command = [sys.executable, "-B", __file__, "--way", way, "--mib", str(given.mib), "--package", str(given.package), "--rounds",
               str(given.rounds), "--cycles", str(given.cycles), "--seconds", str(max(5, left - 10))]
    found, status = [], 124
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=left, check=False)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output = error.stdout or ""
        output = output.decode(errors="replace") if isinstance(output, bytes) else output
    for line in output.splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
        else:
            print(line)
    if status:
        found.append({"line": f"{way}: exit status {status}", "wrong": status != 124})
    return found


def everything(given):
    found = []
    for way in given.ways.split(","):
        left = given.end - time.monotonic()
        if left < 10:
            found.append({"line": f"{way}: skipped, the time is over", "wrong": False})
        else:
            found += run_way(way, given, left)
    print("\n".join(as_table(HEAD, [each["row"] for each in found if "row" in each])))
    for each in found:
        if "line" in each:
            print(each["line"])
    return any(each["wrong"] for each in found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=8192)
    parser.add_argument("--package", type=Path, default=Path(__file__).resolve().parent.parent / "python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--way", choices=WAYS, help="this one alone, in this process, as objects of JSON")
    given = parser.parse_args()
    given.end = time.monotonic() + given.seconds
    if not given.way:
        sys.exit(everything(given))
    import torch
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    globals()[f"{given.way}_way"](torch, given)


if __name__ == "__main__":
    main()
