#!/usr/bin/env python3
"""One program of bench/torch_models.py in this process, through one allocator: a line of JSON.

    bench/torch_run.py bert --allocator weir --cap 950 --option reuse_wait=0

The allocators are PyTorch's own (torch), the same with expandable segments, and weir.torch. Exit status 3: an allocation was refused.
Beside the times stand the answers of all steps, those that warm up too. With --turns it does as it is told on standard input, for
bench/torch_programs.py: it answers each line with one of JSON."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent))
from torch_answers import flat  # noqa: E402

MIB = 1 << 20
REFUSED = 3
# Steps to warm up, and that are measured in a round: 25 turns or more. Where time is short the last ones have none.
STEPS = {"gpt2": (8, 30), "bert": (15, 60), "loops": (4, 25), "unet": (9, 90), "rcnn": (4, 25), "llama": (6, 30), "streams": (8, 300),
         "gpt2+graph": (12, 90), "bert+graph": (12, 600), "unet+graph": (12, 150), "llama+graph": (12, 25), "streams+graph": (12, 450),
         "gpt2+compile": (8, 90), "bert+compile": (14, 600), "unet+compile": (8, 150), "llama+compile": (6, 25)}
ALLOCATORS = {"torch": "PyTorch", "again": "PyTorch again", "expandable": "expandable segments", "weir": "weir.torch"}
COUNTS = ("allocations", "driver_calls")


class Native:
    """PyTorch's own, whose settings are in the environment before PyTorch is loaded."""

    def __init__(self, torch, given):
        self.torch, self.expandable = torch, given.allocator == "expandable"
        torch.cuda.init()
        if given.cap:
            total = torch.cuda.mem_get_info()[1]
            # It multiplies again and cuts off: half a byte more makes that the cap.
            torch.cuda.set_per_process_memory_fraction(min(1.0, (given.cap * MIB + 0.5) / total))

    def statistics(self):
        now = self.torch.cuda.memory_stats()
        return {"peak_requested": now["requested_bytes.all.peak"], "peak_live": now["allocated_bytes.all.peak"],
                "peak_held": now["reserved_bytes.all.peak"], "live": now["allocated_bytes.all.current"],
                "held": now["reserved_bytes.all.current"], "allocations": now["allocation.all.allocated"],
                "driver_calls": now["num_device_alloc"] + now["num_device_free"], "retries": now["num_alloc_retries"]}

    def check(self):
        found = any(segment.get("is_expandable") for segment in self.torch.cuda.memory_snapshot())
        if found != self.expandable:
            raise RuntimeError(f"PyTorch's segments are {'' if found else 'not '}expandable")


class Weir:
    """weir.torch, as a program uses it."""

    def __init__(self, torch, given):
        sys.path.insert(0, str(given.package))
        import weir
        import weir.torch
        for name, value in given.option:
            weir.set_option(name, value)
        self.torch, self.used = torch, weir.torch.use(budget=f"{given.cap}MiB" if given.cap else None)

    def statistics(self):
        now, runtime = self.torch.cuda.memory_stats(), self.used.client().runtime.stats()
        return {"peak_requested": now["requested_bytes.all.peak"], "peak_live": now["allocated_bytes.all.peak"],
                "peak_held": runtime.peak_held, "live": now["allocated_bytes.all.current"], "held": runtime.held,
                "allocations": now["allocation.all.allocated"], "driver_calls": runtime.driver_calls}

    def check(self):
        if not self.used.complete:
            raise RuntimeError("weir.torch could not complete PyTorch's allocator")


class Processor:
    """No allocator of a device's."""

    def statistics(self):
        return {}

    def check(self):
        pass


class Run:
    def __init__(self, given, torch):
        if given.device == "cpu":
            self.allocator = Processor()
        elif torch.cuda.is_available():
            self.allocator = (Weir if given.allocator == "weir" else Native)(torch, given)
        else:
            raise RuntimeError("PyTorch sees no GPU here")
        import torch_models  # needs PyTorch, which may be loaded only now
        self.program = torch_models.begin(given.program, given.device, given.small, given.seed)

    def steps(self, count):
        """Milliseconds of each, and its answer; a step returns when that is on the host."""
        times, answers = [], []
        for _ in range(count):
            start = time.perf_counter()
            answer = self.program.step()
            times.append(round(1000 * (time.perf_counter() - start), 4))
            answers.append(flat(answer))
        return times, answers

    def memory(self):
        self.allocator.check()
        return self.allocator.statistics()


def measure(run, given):
    _, first = run.steps(given.warm)
    before = run.allocator.statistics()
    times, answers = run.steps(given.steps)
    memory = run.memory()
    return {"program": given.program, "allocator": given.allocator, "options": dict(given.option), "cap": given.cap, "warm": given.warm,
            "ms": times, "answers": first + answers, "memory": memory, "measured": {key: memory[key] - before[key] for key in COUNTS if key in memory}}


def take_turns(given, torch, tell):
    """A line is a number of steps, "memory", or "begin": the allocator and the program are made then."""
    run = None
    for line in sys.stdin:
        word = line.strip()
        if word == "begin":
            run = Run(given, torch)
            tell(begun=given.program)
        elif word == "memory":
            tell(memory=run.memory())
        else:
            tell(**dict(zip(("ms", "answers"), run.steps(int(word)))))


def work(given):
    if given.cores:
        os.sched_setaffinity(0, given.cores)
    if given.allocator != "weir":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = f"expandable_segments:{given.allocator == 'expandable'}"
        os.environ.pop("PYTORCH_ALLOC_CONF", None)  # which would come first
    import torch

    def tell(**what):
        print(json.dumps(what), flush=True)
    try:
        if given.turns:
            tell(loaded=torch.__version__)
            take_turns(given, torch, tell)
        else:
            tell(**measure(Run(given, torch), given))
        return 0
    except torch.OutOfMemoryError as error:
        tell(refused=f"{given.program}: {str(error).splitlines()[0]}"[:300])
        return REFUSED
    except Exception as error:  # pylint: disable=broad-except
        tell(failed=f"{given.program}: {type(error).__name__}: {str(error)[:500]}")
        return 1


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=STEPS)
    parser.add_argument("--allocator", choices=ALLOCATORS, default="torch")
    parser.add_argument("--cap", type=int, metavar="MIB", help="weir's budget, or PyTorch's memory fraction")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="as `weir options` lists them")
    parser.add_argument("--warm", type=int, metavar="N", help="steps that are not measured")
    parser.add_argument("--steps", type=int, metavar="N", help="steps that are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu rehearses, in the host's memory")
    parser.add_argument("--small", action="store_true", help="small nets and few tokens")
    parser.add_argument("--package", type=Path, default=ROOT / "python", metavar="FOLDER", help="where the package weir is")
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=lambda text: {int(core) for core in text.split(",")}, help=argparse.SUPPRESS)
    given = parser.parse_args()
    for option in given.option:
        if "=" not in option:
            parser.error(f"--option {option}: it is written name=value")
    if given.option and given.allocator != "weir":
        parser.error(f"--option is weir's; --allocator is {given.allocator}")
    if given.cap is not None and (given.cap <= 0 or given.device == "cpu"):
        parser.error(f"--cap {given.cap}: " + ("it is more than 0" if given.cap <= 0 else "not on the processor"))
    for name, standard in zip(("warm", "steps"), STEPS[given.program]):
        setattr(given, name, standard if getattr(given, name) is None else getattr(given, name))
    if given.warm < 0 or given.steps < 1:
        parser.error("--warm is at least 0, --steps at least 1")
    given.option = [tuple(option.split("=", 1)) for option in given.option]
    given.package = given.package.absolute()
    return given


if __name__ == "__main__":
    done = work(words())
    sys.stdout.flush()
    os._exit(done)  # what PyTorch would free while the process ends is of no interest
