"""Several processes under one weir exec, for scripts/gpu-exec: what they have together, by nvidia-smi's word, or by the stub's.

Each is tests/preload/sibling.c, which does what its standard input says. Their contexts are there before anything is measured."""

import os
import select
import signal
import struct
import subprocess
import threading

import gpu_steps as steps
from gpu_steps import note

SLACK = 96  # MiB, for what a first allocation has loaded


class Failed(Exception):
    """An answer was another one."""


class Sibling:
    def __init__(self, environment):
        self.process = subprocess.Popen([steps.place.tests / "preload-sibling"], env=environment, stdin=subprocess.PIPE,  # pylint: disable=consider-using-with
                                        stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True)
        steps.running.add(self.process.pid)

    def send(self, line):
        self.process.stdin.write(line + "\n")

    def answer(self):
        if not select.select([self.process.stdout], [], [], 60)[0]:
            raise Failed("no answer in a minute")
        return self.process.stdout.readline().strip()

    def tell(self, line, wanted):
        self.send(line)
        answer = self.answer()
        if answer != wanted:
            raise Failed(f"{line}: {answer or 'it ended'}, not {wanted}")

    def kill(self):
        self.process.kill()
        self.process.wait(60)

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(60)
        steps.running.discard(self.process.pid)


class Together:
    """Some siblings of a new tree, with contexts, and the most that they have from now on."""

    def __init__(self, used, budget, count):
        self.used = used
        self.environment = environment_of(budget)
        self.siblings = [Sibling(self.environment) for _ in range(count)]
        for sibling in self.siblings:
            sibling.tell("left", f"{budget} of {budget}")
        self.before, self.most, self.over = used(self.environment), 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def now(self):
        now = self.used(self.environment)
        return None if now is None or self.before is None else now - self.before

    def look(self):
        while not self.over.wait(0.02):
            self.most = max(self.most, self.now() or 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for sibling in self.siblings:
            sibling.end()


def environment_of(budget):
    environment = {**os.environ, **steps.place.environment, "STUB_CUDA_SHARED": str(steps.place.folder / "used")}
    (steps.place.folder / "used").write_bytes(bytes(16))
    command = [steps.place.folder / "bin/weir", "exec", "--budget", f"{budget}MiB", "--quiet", "env", "-0"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True, timeout=30)
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def stub_used(environment):
    """Not of processes that were killed, whose memory stays counted there."""
    with open(environment["STUB_CUDA_SHARED"], "rb") as file:
        return struct.unpack("<QQ", file.read())[0] >> 20


def shared(all_, budget):
    """Of the budget one takes more than half, another one the rest, and then what the first one has idle."""
    a, b, c = all_.siblings
    most, rest = budget * 5 // 8, budget * 3 // 8
    a.tell(f"take {most}", "ok")
    b.tell(f"take {most}", "no")
    b.tell("left", f"{rest} of {budget}")
    b.tell(f"create {rest}", "ok")
    c.tell("take 2", "no")
    c.tell("left", f"0 of {budget}")
    full = all_.now()
    if full is not None and not budget <= full <= budget + SLACK:
        raise Failed(f"{full} MiB were in use, not {budget}")
    a.tell("give", "ok")
    c.tell(f"take {most}", "ok")
    a.tell("take 2", "no")
    b.tell("release", "ok")
    a.tell(f"take {rest}", "ok")
    return f"{full} MiB were in use"


def killed(all_, budget):
    """What a killed process had is the others', no sooner than the driver has it back."""
    a, b, _ = all_.siblings
    for _ in range(3):
        victim = Sibling(all_.environment)
        victim.tell(f"take {budget // 2}", "ok")
        victim.tell(f"create {budget // 4}", "ok")
        a.tell(f"take {budget // 2}", "no")
        victim.kill()
        victim.end()
        a.tell(f"take {budget}", "ok")
        b.tell("take 2", "no")
        a.tell("give", "ok")
    return f"{all_.most} MiB at most"


def forked(all_, budget):
    """Behind a fork: whether the driver has the memory back when the parent is killed, and what weir takes for true."""
    a, victim = all_.siblings[0], Sibling(all_.environment)
    victim.tell(f"take {budget // 2}", "ok")
    victim.send("fork")
    child = int(victim.answer())
    victim.kill()
    steps.running.discard(victim.process.pid)
    left = all_.now()
    a.send("left")
    weirs = int(a.answer().split()[0])
    os.kill(child, signal.SIGKILL)
    if left is not None and left > budget // 4 and weirs == budget:
        raise Failed(f"the driver has {left} MiB as yet, and weir counts none")
    return f"with a forked child alive {left} MiB are in use, and weir counts {budget - weirs}"


def churned(all_, budget):
    for seed, sibling in enumerate(all_.siblings):
        sibling.send(f"churn {seed + 1}")
    if [sibling.answer() for sibling in all_.siblings] != ["ok"] * len(all_.siblings):
        raise Failed("one has not ended well")
    return f"{all_.most} MiB of {budget} at most"


def check(used, budget, context):
    """`used`: MiB of the first GPU that are in use, or None. `context`: MiB that one more process has besides, as those that are killed
    have. A budget of 64 MiB is full most of the time while they churn."""
    stub = steps.place.device == "stub"
    for what, part, much in (("what several processes have together", shared, budget), ("what a killed process had", killed, budget),
                             ("what a killed process with a forked child had", forked, budget), ("at once", churned, 64)):
        if steps.no_time(what):
            return
        counted = stub_used if stub and part in (shared, churned) else (lambda _: None) if stub else (lambda _: used())
        try:
            with Together(counted, much, 3) as all_:
                said = part(all_, much)
            if all_.most > much + (0 if stub else SLACK + context * (part in (killed, forked))):
                raise Failed(f"{all_.most} MiB were in use, {much} of the budget")
            note("passed", what, said)
        except (Failed, OSError, ValueError) as error:
            note("failed", what, str(error))
