"""Processes of bench/torch_run.py, each with a variant of an allocator, as bench/torch_programs.py has them."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torch_run import ALLOCATORS

RUN = Path(__file__).resolve().parent / "torch_run.py"
NATIVE = ("torch", "again")
KILLED = 5  # seconds in which what is killed has ended, if it ever does: a driver may hold it


class Variant:
    """An allocator, weir with options (weir:reuse_wait=0), or weir under a cap, which is `of` weir without one."""

    def __init__(self, text, cap=None, of=None):
        self.text, self.cap, self.of = text, cap, of
        self.allocator, _, options = (of.text if of and cap else text).partition(":")
        self.options = options.split(",") if options else []
        self.native = self.allocator in NATIVE and not cap

    def words(self):
        cap = ["--cap", self.cap] if self.cap else []
        return ["--allocator", self.allocator, *cap, *(word for option in self.options for word in ("--option", option))]

    def name(self):
        return ALLOCATORS.get(self.text, self.text)


class Worker:
    """A process. An answer is what it printed, or {"failed": …}, {"refused": …}, {"cut": …}: the time was over."""

    def __init__(self, given, program, variant, *more, gpu="", cores=()):
        self.said, self.rest, self.failed, self.stopped = tempfile.TemporaryFile("w+"), b"", None, False
        line = [sys.executable, "-B", RUN, program, *variant.words(), "--device", given.device, "--seed", given.seed, "--package",
                given.package, *(["--small"] if given.small else []), *(["--cores", ",".join(map(str, cores))] if cores else []), *more]
        for name in ("warm", "steps"):
            line += [f"--{name}", getattr(given, name)] if getattr(given, name) is not None else []
        environment = {"TORCHINDUCTOR_COMPILE_THREADS": "2", **os.environ, **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}
        self.process = subprocess.Popen([str(word) for word in line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said,
                                        env=environment)

    def tell(self, word):
        try:
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended: its answer says why

    def line(self, until):
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                return None
            more = self.process.stdout.read1()
            if not more:
                return b""
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def answer(self, until):
        while not self.failed:
            line = self.line(until)
            if line is None or (line == b"" and self.stopped):
                self.failed = {"cut": "the time was over"}
            elif line == b"":
                self.said.seek(0)
                lines = self.said.read().splitlines()
                self.failed = {"failed": f"status {self.process.wait(KILLED)}: " + " | ".join(lines[-6:])[-600:]}
            elif line.startswith(b"{"):
                answer = json.loads(line)
                self.failed = answer if answer.keys() & {"failed", "refused"} else None
                return answer
        return self.failed

    def stop(self):
        """From another thread: who waits for an answer gets none."""
        self.stopped = True
        self.process.kill()

    def end(self):
        if self.said.closed:
            return
        self.process.kill()
        try:
            self.process.wait(KILLED)
        except subprocess.TimeoutExpired:
            pass
        for file in (self.process.stdin, self.process.stdout, self.said):
            try:
                file.close()
            except OSError:
                pass
