#!/usr/bin/env python3
"""PyTorch programs through PyTorch's own allocator, through that with expandable segments, and through weir.torch: one table.

    bench/torch_programs.py [--programs gpt2,bert] [--minutes 9] [--gpus 0,1] [--variants torch weir weir:thread_cache=0] [--json FILE]

A process for each allocator (bench/torch_run.py) has the same program (bench/torch_models.py, bench/torch_graphs.py) with the same seed.
They do the same steps by turns, some 60 ms each, and every turn in another order; so what a shared machine does is done to all of them.
The table has the median of the quotients of turns, each of the same steps, and of which value the median is at most with 95 % certainty
(an order statistic: no shape of noise is assumed). The answers of all steps are compared with those of PyTorch's own, twice run
(bench/torch_answers.py). Behind them stands the smallest of some caps under which the program ran, each a multiple of what it requested at
its peak; several are tried at once. Programs have a round each first, in the order in which they are named, then caps are looked for, and the
time that is left is for further rounds, in new processes, of the programs whose bound is furthest from its median: then weir under its
smallest caps takes part too. Several GPUs share the programs, each with its part of the cores.

loops is trained and served in one process, and stands beside both alone: gpt2 and bert. A variant is an allocator, or weir with
options: weir:reuse_wait=0,thread_cache=1MiB. The exit status is 1 when a run failed or an answer was wrong. Ended early (SIGTERM), it
tells what it has; --json has it after every round."""

import argparse
import concurrent.futures
import json
import math
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from torch_run import ALLOCATORS, MIB, ROOT, STEPS  # noqa: E402
from torch_table import ALONE, LOOPS, TIMED, Program, as_json, cap_of, lines, smallest, wrong  # noqa: E402
from torch_worker import Variant, Worker  # noqa: E402

TURN = 60  # milliseconds, at the least, but
TURNS = 25  # are wanted of a round
SHARE = 0.75  # of what both hold alone, a budget for them together
FIRST, CAPS = 0.6, 0.35  # of the time, in which programs have their first round; of what is left then, for caps
LAST, GRACE = 10, 6  # seconds before the end in which nothing is begun, and of these for the answers that are under way
LOAD = 8  # seconds, to load PyTorch
SERIAL = ("unet",)  # cuDNN looks for what is fastest: one process at a time
COST = {"unet": 60, "llama": 60, "loops": 45, "rcnn": 35, "llama+graph": 35, "llama+compile": 45, "gpt2+compile": 45, "unet+compile": 45,
        "bert+compile": 45}  # seconds of a round, roughly
ELSE = 25
KINDS = {"plain": [name for name in STEPS if "+" not in name], "graph": [name for name in STEPS if "+graph" in name],
         "compile": [name for name in STEPS if "+compile" in name]}
saving = threading.Lock()


def order_of(workers, turn):
    """Another one comes first every time, and every other time they go backwards."""
    turned = workers[turn % len(workers):] + workers[:turn % len(workers)]
    return turned if turn // len(workers) % 2 == 0 else turned[::-1]


def shared(names, count):
    """Programs for each GPU, about as long for all. loops is where those are that it is compared with."""
    together = [name for name in names if name in (LOOPS, *ALONE)] if LOOPS in names else []
    groups = [group for group in ([together] + [[name] for name in names if name not in together]) if group]
    lanes = [[] for _ in range(count)]
    cost = lambda group: sum(COST.get(name, ELSE) for name in group)  # noqa: E731
    for group in sorted(groups, key=cost, reverse=True):
        min(lanes, key=cost).extend(group)
    return [sorted(lane, key=names.index) for lane in lanes]


def parts_of(cores, count):
    """Of the cores, as many for each; none where that would be less than two."""
    each = len(cores) // count
    return [cores[i * each:(i + 1) * each] if count > 1 and each > 1 else [] for i in range(count)]


class Lane:
    """Programs on one GPU, one measured at a time."""

    def __init__(self, given, names, save, gpu="", cores=()):
        self.given, self.save, self.gpu, self.cores, self.begin = given, save, gpu, cores, time.monotonic()
        self.end = self.begin + 60 * given.minutes - LAST
        self.programs = [Program(name, given.variants) for name in names]
        self.failures, self.tries, self.budget, self.live, self.begun = [], [], None, set(), {}

    def left(self):
        return self.end - time.monotonic()

    def until(self):
        return min(self.end + GRACE, time.monotonic() + self.given.limit)

    def worker(self, program, variant, *more):
        worker = Worker(self.given, program.name, variant, *more, gpu=self.gpu, cores=self.cores)
        self.live.add(worker)
        return worker

    def done(self, workers):
        for worker in workers.values():
            worker.end()
            self.live.discard(worker)

    def stop(self):
        """From another thread: all that waits comes back, and nothing more is begun."""
        self.end = time.monotonic() - GRACE
        for worker in list(self.live):
            worker.stop()

    def start(self, program):
        if program in self.begun:
            return self.begun[program]
        return {variant: self.worker(program, variant, "--turns") for variant in program.going()}

    def begin_compiled(self):
        """At once, while others are measured: it takes minutes."""
        for program in self.programs:
            warm = self.steps_of(program)[0]
            if "+compile" in program.name and warm and self.left() > 0:
                self.begun[program] = workers = self.start(program)
                for worker in workers.values():
                    worker.tell("begin")
                    worker.tell(warm)

    def run(self):
        self.begin_compiled()
        self.rounds(self.next_first)
        self.find_caps(time.monotonic() + CAPS * max(0, self.left()))
        self.rounds(self.widest)
        for workers in self.begun.values():  # there was no time for
            self.done(workers)

    def rounds(self, next_one):
        """While one program warms up, the next one's processes load PyTorch."""
        program = next_one(0)
        workers = self.loaded(program)
        while program:
            following = next_one(self.seconds_of(program), program)
            coming = self.start(following) if following else {}
            self.round(program, {**workers, **self.under_budget(program)}, lambda coming=coming: self.all_answer(coming))
            going = following.going() if following and self.left() > 0 else []
            self.done({variant: worker for variant, worker in coming.items() if variant not in going})
            program, workers = following if going else None, {variant: coming[variant] for variant in going if variant in coming}

    def next_first(self, later, but=None):
        first = next((program for program in self.programs if not program.rounds and program is not but), None)
        return first if time.monotonic() + later < self.begin + FIRST * (self.end - self.begin) else None

    def loaded(self, program):
        workers = self.start(program) if program else {}
        self.all_answer(workers)
        return workers

    def seconds_of(self, program):
        return (program.seconds or COST.get(program.name, ELSE) / 4) * len(program.going())

    def widest(self, later, but=None):
        """The program whose bound is furthest from its median, of those that half a round will be left for; None: there is none."""
        left = self.left() - later - LOAD
        may = [program for program in self.programs if program.rounds < self.given.rounds and program.going() and
               (program.turns[program.base] or not program.rounds) and left > 0.5 * self.seconds_of(program)]
        others = [program for program in may if program is not but] or [program for program in may if program.rounds + 1 < self.given.rounds]
        return max(others, key=Program.width, default=None)

    def under_budget(self, program):
        """Both loops once more, with less than what they hold alone. Only now it is known how much that is."""
        alone = self.alone(self.given.variants[0])
        weir = program.weir()
        if program.name != LOOPS or not alone or not weir or self.budget:
            return {}
        self.budget = Variant(f"weir:budget={int(SHARE * alone / MIB)}MiB", of=weir)
        program.add(self.budget)
        workers = {self.budget: self.worker(program, self.budget, "--turns")}
        self.all_answer(workers)
        return workers

    def alone(self, variant):
        held = [program.memory.get(variant, {}).get("peak_held") for program in self.programs if program.name in ALONE]
        return sum(held) if len(held) == len(ALONE) and all(held) else 0

    # ---- a round -----------------------------------------------------------------------------------------------------

    def all_answer(self, workers, word=None):
        """Of those that go on: all at once, and each is waited for."""
        for worker in workers.values() if word else ():
            worker.tell(word)
        until = self.until()
        return {variant: worker.answer(until) for variant, worker in workers.items()}

    def round(self, program, workers, meanwhile=lambda: None):
        start, program.rounds = time.monotonic(), program.rounds + 1
        answers = {variant: [] for variant in workers}
        try:
            self.turns(program, self.made(workers, program, answers, meanwhile), answers)
        finally:
            self.done(workers)
            self.begun.pop(program, None)
        for variant, worker in workers.items():
            program.add_answers(variant, answers[variant])
            if worker.failed:
                program.wrong.setdefault(variant, next(f"{key}: {why}" for key, why in worker.failed.items()))
        program.seconds = max(program.seconds, (time.monotonic() - start) / len(workers))
        told = ", ".join(f"{variant.text} {statistics.median(program.ms[variant]):.2f}" for variant in workers if program.ms[variant])
        print(f"{program.name}: {told or 'nothing'} ms a step, {time.monotonic() - self.begin:.0f} s", file=sys.stderr, flush=True)
        self.save()

    def made(self, workers, program, answers, meanwhile):
        """Those that have begun and are warm."""
        early, warm = program in self.begun, self.steps_of(program)[0]
        self.all_answer(workers, None if early else "begin")
        for some in [{variant: worker} for variant, worker in workers.items()] if program.name in SERIAL else [workers]:
            for variant, answer in self.all_answer(some, None if early else warm).items() if warm else ():
                answers[variant] += answer.get("answers", [])
        meanwhile()
        return {variant: worker for variant, worker in workers.items() if not worker.failed}

    def steps_of(self, program):
        given = self.given
        return [standard if asked is None else asked for asked, standard in zip((given.warm, given.steps), STEPS[program.name])]

    def turns(self, program, workers, answers):
        if not workers:
            return
        steps, done, turn, count = self.steps_of(program)[1], 0, 0, 1
        times = {variant: [] for variant in workers}
        before = self.all_answer(workers, "memory")
        while done < steps and workers and self.left() > 0:
            count = min(count, steps - done)
            for variant in order_of(list(workers), turn):
                workers[variant].tell(count)
                answer = workers[variant].answer(self.until())
                times[variant].append(answer.get("ms"))
                answers[variant] += answer.get("answers", [])
            workers = {variant: worker for variant, worker in workers.items() if not worker.failed}
            shortest = min((min(times[variant][-1]) for variant in workers), default=TURN)
            wanted = min(math.ceil(TURN / max(shortest, 0.01)), max(1, steps // TURNS))
            done, turn, count = done + count, turn + 1, max(count, wanted)
        for variant, answer in self.all_answer(workers, "memory").items():
            if "memory" in answer and times[variant]:
                program.keep(variant, times[variant], before[variant].get("memory", {}), answer["memory"])

    # ---- caps --------------------------------------------------------------------------------------------------------

    def try_cap(self, program, variant, ratio, end):
        workers = {variant: self.worker(program, variant, "--cap", cap_of(program.peak(), ratio))}
        try:
            answer = workers[variant].answer(min(end, time.monotonic() + self.given.limit))
        finally:
            self.done(workers)
        if variant.allocator == "weir":
            program.answers.add(f"{variant.text} under caps", answer.get("answers", []), False)
        told = {key: value for key, value in answer.items() if key != "answers"}
        self.tries.append({"program": program.name, "variant": variant.text, "ratio": ratio, **told})
        if "cut" in answer:
            raise TimeoutError
        if "failed" in answer:
            self.failures.append(f"{program.name}, {variant.text}, {ratio:g} of the peak: {answer['failed']}")
        return "ms" in answer

    def find_caps(self, end):
        """weir's first, PyTorch's own last. Where the least of all is enough for weir, it is the only try."""
        wanted = [(program, variant) for program in self.programs if program.name in self.given.caps and program.peak()
                  for variant in program.variants if not variant.of and variant.allocator != "again" and program.memory.get(variant)]

        order = ("weir", "expandable", "torch")

        def search(program, variant):
            if time.monotonic() < end:
                program.caps[variant] = smallest(lambda ratio: self.try_cap(program, variant, ratio, end), variant.allocator == "weir")
        with concurrent.futures.ThreadPoolExecutor(self.given.at_once) as pool:
            for task in [pool.submit(search, *job) for job in sorted(wanted, key=lambda job: order.index(job[1].allocator))]:
                try:
                    task.result()
                except TimeoutError:
                    pass
        for program in self.programs:
            self.add_caps(program)
        self.save()

    @staticmethod
    def add_caps(program):
        """weir at its smallest cap and at others near the peak, for further rounds."""
        weir = program.weir()
        least = program.caps.get(weir) if weir else None
        for ratio in sorted({least, *(ratio for ratio in TIMED if ratio > least)}) if least else ():
            program.add(Variant(f"weir at {ratio:g}", cap_of(program.peak(), ratio), weir))


# ---- words -----------------------------------------------------------------------------------------------------------

def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(STEPS), metavar="LIST", help=f"of {','.join(STEPS)}; or {', '.join(KINDS)}: all of a kind")
    parser.add_argument("--variants", nargs="+", default=["torch", "again", "expandable", "weir"], metavar="VARIANT",
                        help="allocators, weir with options; `again` is torch once more, for what the machine does by itself")
    parser.add_argument("--caps", default=",".join(STEPS), metavar="LIST", help="the programs whose smallest caps are looked for")
    parser.add_argument("--minutes", type=float, default=9, metavar="N", help="for all: what there is no time for is left out")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="of a program at the most")
    parser.add_argument("--at-once", type=int, default=6, metavar="N", help="processes that try caps, for each GPU")
    parser.add_argument("--gpus", default="", metavar="LIST", help="as CUDA_VISIBLE_DEVICES has them; they share the programs")
    parser.add_argument("--limit", type=float, default=120, metavar="N", help="seconds for an answer")
    parser.add_argument("--warm", type=int, metavar="N", help="steps that are not measured")
    parser.add_argument("--steps", type=int, metavar="N", help="steps that are, in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu rehearses, in the host's memory")
    parser.add_argument("--small", action="store_true", help="small nets and few tokens")
    parser.add_argument("--package", type=Path, default=ROOT / "python", metavar="FOLDER", help="where the package weir is")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for all that was measured")
    given = parser.parse_args()
    check(parser, given)
    return given


def expanded(text):
    """Names, each once; a kind stands for all of its programs."""
    names = (some for name in text.split(",") if name for some in KINDS.get(name, (name,)))
    return list(dict.fromkeys(names))


def check(parser, given):
    given.programs, given.caps = expanded(given.programs), expanded(given.caps)
    if not given.programs:
        parser.error("--programs: none")
    for name in (*given.programs, *given.caps):
        if name not in STEPS:
            parser.error(f"there is no program {name}")
    given.gpus = given.gpus.split(",") if given.gpus else [""]
    if len(given.gpus) > 1 and "" in given.gpus:
        parser.error("--gpus: a GPU has a name")
    given.variants = [Variant(text) for text in given.variants]
    for variant in given.variants:
        if variant.allocator not in ALLOCATORS or (variant.options and variant.allocator != "weir"):
            parser.error(f"{variant.text} is no variant: torch, expandable, weir, or weir:name=value,…")
        if not all("=" in option for option in variant.options):
            parser.error(f"{variant.text}: an option is written name=value")
    if given.rounds < 1 or given.at_once < 1:
        parser.error("--rounds and --at-once are at least 1")
    if (given.warm or 0) < 0 or (given.steps is not None and given.steps < 1):
        parser.error("--warm is at least 0, --steps at least 1")


class Bench:
    """All lanes. `told` is what they have so far."""

    def __init__(self, given):
        self.given = given
        cores = parts_of(sorted(os.sched_getaffinity(0)), len(given.gpus))
        self.lanes = [Lane(given, names, self.save, gpu, mine) for names, gpu, mine in
                      zip(shared(given.programs, len(given.gpus)), given.gpus, cores)]
        self.errors = []

    def programs(self):
        known = [program for lane in self.lanes for program in lane.programs]
        return sorted(known, key=lambda program: self.given.programs.index(program.name))

    def save(self):
        """What there is so far, as a whole file at any time."""
        with saving:
            if self.given.json:
                part = self.given.json.with_name(self.given.json.name + ".part")
                part.write_text(json.dumps(as_json(self.programs(), self.lanes), indent=1) + "\n")
                part.replace(self.given.json)

    def stop(self, *_):
        for lane in self.lanes:
            lane.stop()

    def lane(self, lane):
        try:
            lane.run()
        except Exception as error:  # pylint: disable=broad-except
            lane.failures.append(f"the bench itself: {type(error).__name__}: {error}")
        finally:
            lane.stop()

    def run(self):
        """Ends by itself, whatever a process does."""
        signal.signal(signal.SIGTERM, self.stop)
        threads = [threading.Thread(target=self.lane, args=(lane,), daemon=True) for lane in self.lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and any(lane.left() > -GRACE - 1 for lane in self.lanes):
                thread.join(0.2)
        self.stop()
        for thread in threads:
            thread.join(3)


def main():
    given = words()
    bench = Bench(given)
    bench.run()
    bench.save()
    print("\n".join(lines(bench.programs(), bench.lanes)))
    failures = [*wrong(bench.programs()), *(line for lane in bench.lanes for line in lane.failures)]
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    done = main()
    sys.stdout.flush()
    os._exit(done)  # a thread may wait for a process that its driver holds
