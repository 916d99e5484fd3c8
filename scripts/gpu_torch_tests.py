#!/usr/bin/env python3
"""PyTorch's own tests of its memory on a GPU, with its own allocator and with weir, and how many of those that pass with
the one pass with the other.

    gpu_torch_tests.py FOLDER [--package python] [--seconds 240] [--json FILE]

FOLDER has files of PyTorch's, as they are. Which of their tests are run is said by a rule (chosen). Several processes run at once,
each some tests of one file; one that is killed by a test, or hangs in one, loses no other. What passes on one side alone is run once
more when nothing else runs, and that counts: others may have had the memory, or the processor. The exit status is 0 when all was
said, whatever failed. Being told to end is as if the time were over."""

import argparse
import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BATCH = HERE / "gpu_torch_batch.py"
SIDES = ("native", "weir")
# Of what a test is about by its name, or all of its class is. Pinned memory is the host's, which weir.torch leaves alone.
SUBJECT = re.compile(r"graph|memory|mempool|alloc|stream|event|snapshot|oom|segment|expandable|workspace|record|pool|block")
WHOLE = re.compile(r"(?i)graph|mempool|blockstate|trace")
NOT = re.compile(r"pinned|_cpu_|non_blocking|blocking_by_default|pooling")
FOR_LATER = 0.2  # of the time, for what is run once more
LEAST = 5  # seconds without which no process is begun: loading PyTorch takes as long


def chosen(name):
    """Whether a test, as class.test, concerns allocators, pools, streams, graphs, or statistics of memory."""
    of_class, _, test = name.rpartition(".")
    return bool((WHOLE.search(of_class) or SUBJECT.search(test.lower())) and not NOT.search(test.lower()))


class Batch:
    def __init__(self, side, path, names):
        self.side, self.path, self.names = side, path, names


class Tests:
    def __init__(self, given):
        self.given, self.end = given, time.monotonic() + given.seconds
        self.results = {side: {} for side in SIDES}  # by (file, test): {"went", "why", "seconds"}
        self.every, self.unread = {}, {}  # names by file; why a file could not be loaded
        self.lock, self.folder = threading.Lock(), None

    def left(self):
        return self.end - time.monotonic()

    # ---- a process ---------------------------------------------------------------------------------------------------

    def environment(self, side):
        given, env = self.given, dict(os.environ)
        paths = [given.hook, given.package, *given.path, env.get("PYTHONPATH")]
        env.update(PYTHONPATH=os.pathsep.join(str(path) for path in paths if path), PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="1")
        env.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # of each process; they are several already
        env.pop("WEIR_TORCH_USE", None)
        if side == "weir":
            env["WEIR_TORCH_USE"] = "1"
        return env

    def process(self, side, path, names=()):
        """Lines of its report, its exit status (None: it was killed when nothing ended for too long), and what it said."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            report, said = Path(folder) / "report", Path(folder) / "said"
            report.touch()
            with open(said, "wb") as log:
                running = subprocess.Popen([*self.given.python, "-B", str(BATCH), str(path), str(report), *names], stdout=log, stderr=log,
                                           stdin=subprocess.DEVNULL, env=self.environment(side), start_new_session=True)
                status = self.watch(running, report)
            lines = [json.loads(line) for line in report.read_text().splitlines() if line.endswith("}")]
            return lines, status, said.read_text(errors="replace")

    def watch(self, running, report):
        """Its exit status; None: it was killed. All that it has started ends with it."""
        size, since, most, over = 0, time.monotonic(), self.given.limit + self.given.start, False
        while not over and not has_ended(running.pid):
            now = report.stat().st_size
            if now != size:
                size, since, most = now, time.monotonic(), self.given.limit
            over = time.monotonic() - since > most or self.left() <= 0
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        status = running.wait()
        return None if over else status

    # ---- lists of tests ----------------------------------------------------------------------------------------------

    def collect(self, path):
        lines, status, said = self.process("native", path)
        found = next((line["every"] for line in lines if "every" in line), None)
        if found is None:
            self.unread[path.name] = f"status {status}: {last_line(said)}"
        else:
            self.every[path] = found

    def batches(self):
        """Both sides of the same tests stand together, so that what there is no time for is missing on both."""
        for path, names in sorted(self.every.items()):
            mine = [name for name in names if self.given.select.search(name)] if self.given.select else list(filter(chosen, names))
            for at in range(0, len(mine), self.given.batch):
                yield from (Batch(side, path, mine[at:at + self.given.batch]) for side in SIDES)

    # ---- running -----------------------------------------------------------------------------------------------------

    def run_batch(self, batch):
        """What is left of it, when its process ended before its time."""
        lines, status, said = self.process(batch.side, batch.path, batch.names)
        begun, done = None, set()
        for line in lines:
            if "begin" in line:
                begun = line["begin"]
            elif "test" in line:
                self.put(batch, line["test"], line["went"], line["why"], line["seconds"])
                done.add(line["test"])
                begun = None
        rest = [name for name in batch.names if name not in done]
        if self.left() <= 0:
            return None
        whole = [line["end"] for line in lines if "end" in line and status == 0]
        if begun in rest or whole or not done:
            for name in rest if whole else [begun or rest[0]]:
                self.put(batch, name, "failed", f"its class: {whole[0]}" if whole else how_it_ended(status, said, self.given.limit))
            rest = [] if whole else [name for name in rest if name != (begun or rest[0])]
        return Batch(batch.side, batch.path, rest) if rest else None

    def put(self, batch, name, went, why="", seconds=0.0):
        with self.lock:
            self.results[batch.side][batch.path, name] = {"went": went, "why": why, "seconds": seconds}

    def run_all(self, batches, at_once, keep=0.0):
        """`keep`: seconds in which nothing is begun any more."""
        waiting = collections.deque(batches)

        def work():
            while self.left() > max(LEAST, keep):
                try:
                    batch = waiting.popleft()
                except IndexError:
                    return
                rest = self.run_batch(batch)
                if rest:
                    waiting.appendleft(rest)
        threads = [threading.Thread(target=work) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def once_more(self):
        """Alone, what one side passes and the other does not."""
        native, weir = (self.results[side] for side in SIDES)
        wanted = collections.defaultdict(list)
        for key in native.keys() & weir.keys():
            went = {side: self.results[side][key]["went"] for side in SIDES}
            for side, other in (SIDES, SIDES[::-1]):
                if went[side] == "failed" and went[other] == "passed":
                    wanted[side, key[0]].append(key[1])
        self.run_all([Batch(side, path, names) for (side, path), names in wanted.items()], 1)

    def run(self):
        with tempfile.TemporaryDirectory(prefix="weir-torch-tests-") as self.folder:
            files = sorted(path for path in self.given.folder.rglob("test_*.py"))
            threads = [threading.Thread(target=self.collect, args=(path,)) for path in files]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.run_all(list(self.batches()), self.given.at_once, keep=self.left() * FOR_LATER)
            self.once_more()


def has_ended(pid):
    """Without taking its status, so that nobody else can have its number yet."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def last_line(said):
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def how_it_ended(status, said, limit):
    if status is None:
        return f"hangs: nothing ended for {limit:.0f} s" + where(said)
    if status < 0:
        return f"killed by {signal.Signals(-status).name}: " + crash_line(said)
    return f"its process ended with {status}: {last_line(said)}"


def where(said):
    """The innermost calls of each thread, where the process has said them (gpu_torch_batch.py)."""
    calls, inner = [], 0
    for line in said.splitlines():
        found = re.match(r'  File "(?:.*/)?([^/"]+)", line (\d+) in (\S+)', line)
        inner = inner + 1 if found else 0
        if found and inner <= 4:
            calls.append((" | " if inner == 1 else " < ") + f"{found[3]} ({found[1]}:{found[2]})")
    return "".join(calls)


def crash_line(said):
    """What a process said of its own end, in front of Python's list of frames."""
    before = said.split("Fatal Python error")[0]
    return last_line(before) if before.strip() else "it said nothing"


# ---- what is told ----------------------------------------------------------------------------------------------------

def counted(tests):
    native, weir = (tests.results[side] for side in SIDES)
    both = native.keys() & weir.keys()
    passed = {key for key in both if native[key]["went"] == "passed"}
    return {"listed": sum(map(len, tests.every.values())), "chosen": sum(len(b.names) for b in tests.batches() if b.side == "native"),
            "run_on_both": len(both), "skipped": sum(native[key]["went"] == "skipped" for key in both), "passed_natively": len(passed),
            "passed_on_weir": sum(weir[key]["went"] == "passed" for key in passed),
            "failed_natively": sum(native[key]["went"] == "failed" for key in both),
            "passed_on_weir_alone": sum(weir[key]["went"] == "passed" for key in both if native[key]["went"] == "failed")}


def tell(tests):
    count = counted(tests)
    print(f"{count['listed']} tests listed in {len(tests.every)} files, {count['chosen']} chosen, {count['run_on_both']} run on both sides, "
          f"{count['skipped']} skipped by PyTorch itself, {count['failed_natively']} failed natively "
          f"({count['passed_on_weir_alone']} of them pass on weir)")
    ratio = f"{count['passed_on_weir'] / count['passed_natively']:.4f}" if count["passed_natively"] else "-"
    print(f"passed natively {count['passed_natively']}, of these on weir {count['passed_on_weir']}, ratio {ratio}")
    for name, why in sorted(tests.unread.items()):
        print(f"UNREAD {name}: {why}")
    for (path, name), result in sorted(tests.results["weir"].items()):
        if result["went"] != "passed" and tests.results["native"].get((path, name), {}).get("went") == "passed":
            print(f"WEIR {result['went']} {name}: {result['why']}"[:1000 if "hangs" in result["why"] else tests.given.wide])


def as_json(tests):
    return {"counts": counted(tests), "unread": tests.unread,
            "listed": {path.name: {name: chosen(name) for name in names} for path, names in sorted(tests.every.items())},
            "results": {side: {f"{path.name}:{name}": result for (path, name), result in sorted(tests.results[side].items())}
                        for side in SIDES}}


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with files of PyTorch's test/")
    parser.add_argument("--package", type=Path, default=HERE.parent / "python", metavar="FOLDER", help="where the package weir is")
    parser.add_argument("--hook", type=Path, default=HERE.parent / "tests/python/torch_use", metavar="FOLDER",
                        help="of the sitecustomize.py that calls weir.torch.use")
    parser.add_argument("--path", type=Path, nargs="*", default=[], metavar="FOLDER", help="more for PYTHONPATH")
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="WORD")
    parser.add_argument("--select", type=re.compile, metavar="REGEX", help="these tests, by class.test, instead of the rule's")
    parser.add_argument("--seconds", type=float, default=240, help="for all; what there is no time for is counted as not run")
    parser.add_argument("--limit", type=float, default=60, help="seconds without a test's end after which a process hangs")
    parser.add_argument("--start", type=float, default=60, help="seconds more for the first, in which PyTorch is loaded")
    parser.add_argument("--batch", type=int, default=10, metavar="N", help="tests for a process")
    parser.add_argument("--at-once", type=int, default=max(1, (os.cpu_count() or 2) * 3 // 4), metavar="N", help="processes")
    parser.add_argument("--wide", type=int, default=160, metavar="N", help="characters of a line about a failure")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main():
    given = words()
    given.folder, given.package, given.hook = given.folder.resolve(), given.package.resolve(), given.hook.resolve()
    given.path = [path.resolve() for path in given.path]
    tests = Tests(given)
    signal.signal(signal.SIGTERM, lambda *_: setattr(tests, "end", 0.0))  # what is known by then is told
    tests.run()
    tell(tests)
    if given.json:
        given.json.write_text(json.dumps(as_json(tests), indent=1) + "\n")


if __name__ == "__main__":
    main()
