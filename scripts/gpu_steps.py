"""What scripts/gpu-check and the others of its kind share: steps with a time limit each and one for all, a pack that is
carried to a machine with a GPU, and the answers that come back from there."""

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
AT_ONCE = 6  # programs on the GPU; what measures time or memory is alone
FAILED_BY_TOOL = 86
SKIPPED = 77
DIFFERS = 3  # of programs that compare answers
TOO_LONG = 124
LEAST = 3  # seconds without which nothing is begun
KILLED = 5  # seconds in which what is killed has ended, if it ever does: a driver may hold it
LONGEST = 4 * MIB  # of a log: more of one would keep all of them from coming back
# What a summary may take of what is shown of a run: its last 12,000 characters.
SUMMARY = 10500
PACK = "pack.tar.xz"
RUN = """#!/bin/bash
# {what}
# Takes at most {seconds} s and ends by itself. Needs {needs}. Answers: one archive in $OUT
HERE=$(cd "$(dirname "$0")" && pwd)
exec python3 -B "$HERE/scripts/{script}" --packed "$HERE" --out "$OUT" --seconds {least} "$@"
"""


class Place:
    """Where the programs are, what they need to be found, and until when they may run. `device`: cuda, or stub to rehearse.
    `answers`: an archive of all logs, written anew with every step, as nobody knows which one is the last."""

    def __init__(self, folder, seconds, environment, device="cuda", answers=None):
        self.folder, self.environment, self.device, self.answers = folder, environment, device, answers
        self.tests, self.logs, self.stub = folder / "tests", folder / "logs", folder / "stub"
        self.sanitizer = find_sanitizer()
        self.end = time.monotonic() + seconds
        self.logs.mkdir(parents=True, exist_ok=True)

    def left(self):
        return self.end - time.monotonic()

    def required(self):
        """The environment under which what finds no GPU has failed."""
        return {"WEIR_REQUIRE_CUDA": "1"} if self.device == "cuda" else {}


place = None  # set by who runs
telling = threading.Lock()
results = []  # (how it went, what, remark, some lines of what it said)
running = set()  # processes, each the first of a session


def begin(where):
    global place
    place = where


def end_early(*_):
    """As if the time were over: what runs is ended, what is left is skipped, and a summary is written."""
    place.end = time.monotonic()
    for process in list(running):
        end_all(process.pid)


def say(text):
    print(text, flush=True)
    with open(place.logs / "console.txt", "a", encoding="utf-8") as log:
        log.write(text + "\n")


def note(went, what, remark="", lines=()):
    with telling:
        results.append((went, what, remark, [line[:300] for line in lines]))
        say("\n".join([f"{went:8} {what}{': ' if remark else ''}{remark}", *("    " + line for line in lines)]))
        with contextlib.suppress(OSError):  # a log may change while it is read; the next step tries again
            keep_answers()


def keep_answers():
    if not place.answers:
        return
    place.answers.parent.mkdir(parents=True, exist_ok=True)
    part = place.answers.with_suffix(".part")
    with tarfile.open(part, "w:gz", compresslevel=3) as archive:
        archive.add(place.logs, arcname=place.answers.name.split(".")[0])
    part.replace(place.answers)


def guarded(*tasks):
    """One after the other. An error in one ends neither the others nor the summary."""
    for task in tasks:
        try:
            task()
        except Exception:  # pylint: disable=broad-except
            note("failed", "an error of this script's own", lines=last_lines(traceback.format_exc()))


def last_lines(output, most=40):
    return output.rstrip("\n").splitlines()[-most:]


def log_name(what):
    return re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")


def log_of(what):
    return place.logs / f"{log_name(what)}.log"


def end_all(pid):
    """It and all that it has started, in sessions of their own too."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rsplit(")", 1)[1].split()[1])
        except OSError:  # it has ended
            pass
    found, more = set(), {pid}
    while more:
        found |= more
        more = {child for child, parent in parents.items() if parent in found} - found
    for signalled, end in ((pid, os.killpg), *((one, os.kill) for one in found)):
        try:
            end(signalled, signal.SIGKILL)
        except ProcessLookupError:
            pass


def limited(command, env, limit, log):
    """Exit status. What it says goes to a file: a pipe is open as long as anything that it started has it."""
    process = subprocess.Popen(command, cwd=place.folder, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT, env=env)
    running.add(process)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        end_all(process.pid)
        try:
            process.wait(KILLED)
        except subprocess.TimeoutExpired:
            pass
        return TOO_LONG
    finally:
        running.discard(process)


def shorten(path):
    """In a file of its own, as the archive may just be read from this one."""
    with open(path, "rb") as file:
        first = file.read(LONGEST // 2)
        file.seek(-(LONGEST // 2), os.SEEK_END)
        short = place.folder / f"{path.name}.short"
        short.write_bytes(first + b"\n... and so on ...\n" + file.read())
    short.replace(path)


def run(name, command, env=None, most=120):
    """Exit status, output and seconds; 124 when it took too long."""
    start, path = time.monotonic(), log_of(name)
    limit = max(LEAST, min(most, place.left()))
    path.unlink(missing_ok=True)
    with open(path, "ab") as log:
        log.write(f"$ {' '.join(map(str, command))}\n".encode())
        begins = log.tell()
        log.flush()
        try:
            status = limited([str(word) for word in command], {**os.environ, **place.environment, **(env or {})}, limit, log)
        except OSError as error:
            log.write(f"{error}\n".encode())
            status = 127
        seconds = time.monotonic() - start
        log.flush()
        if path.stat().st_size > LONGEST:
            shorten(path)
    output = path.read_bytes()[begins:].decode(errors="replace")
    output += f"\nended after {limit:.0f} s\n" if status == TOO_LONG else ""
    with open(path, "a", encoding="utf-8") as log:
        log.write(f"\nexit status {status} after {seconds:.1f} s\n")
    return status, output, seconds


def give_up(what, output=""):
    note("failed", what, lines=last_lines(output))
    summary()


def library_path(*folders):
    """An environment in which libraries are looked for there first, and then where the others of this run's are."""
    known = place.environment.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", ""))
    return {"LD_LIBRARY_PATH": os.pathsep.join([*map(str, folders), *filter(None, [known])])}


# ---- the end ---------------------------------------------------------------------------------------------------------

def write_summary(name):
    """All steps in a line each, what failed last and with some of what it said; as short as has to be."""
    count = {went: sum(r[0] == went for r in results) for went in ("passed", "failed", "skipped")}
    end = f"{name}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"
    for words, lines in ((160, 6), (60, 3), (0, 2), (0, 0)):
        text = [f"==== {name}"]
        for went in ("passed", "skipped", "failed"):
            for _, what, remark, said in (r for r in results if r[0] == went):
                # A skip without its reason, or a failure, would say nothing.
                kept = remark[:words if went == "passed" else 160]
                text.append(f"{went:8} {what}{': ' if kept else ''}{kept}")
                text += ["    " + line[:200] for line in said[-lines:]] if went == "failed" and lines else []
        text = "\n".join(text)
        if len(text) <= SUMMARY:
            break
    return text[-SUMMARY:] + "\n" + end, count


def summary(name="gpu"):
    text, count = write_summary(name)
    say(text)
    keep_answers()
    sys.exit(1 if count["failed"] else 0)


# ---- carrying --------------------------------------------------------------------------------------------------------

def libraries_of(program):
    """What it needs beside the C library, by name and where it lies."""
    _, output, _ = run(f"ldd {Path(program).name}", ["ldd", program])
    found = re.findall(r"^\s*(\S+) => (/\S+)", output, re.M)
    return [(name, path) for name, path in found if not re.match(r"lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so|ld-", name)]


def put(source, target):
    """Without what only debuggers read."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(source).resolve(), target)
    with open(target, "rb") as file:
        binary = file.read(4) == b"\x7fELF"
    if binary and shutil.which("strip"):
        run(f"strip {target.name}", ["strip", "--strip-debug", target])


def pack_program(program, folder, libraries=None):
    """With what it needs, beside it or in another folder."""
    put(program, folder / Path(program).name)
    for name, path in libraries_of(program):
        put(path, (libraries or folder) / name)


def finish_pack(folder, inside, script, about, beside=()):
    """What lies in `inside` becomes one archive in `folder`, with the scripts and files that unpack and run it."""
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / PACK, "w:xz", preset=6) as archive:
        for path in sorted(inside.iterdir()):
            archive.add(path, arcname=path.name)
    for name in (script, "gpu_steps.py", *about.pop("scripts", ())):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts" / name)
    for path in beside:
        shutil.copy(path, folder / Path(path).name)
    (folder / "run.sh").write_text(RUN.format(script=script, **about))
    (folder / "run.sh").chmod(0o755)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    note("passed", "packing", f"{size / MIB:.1f} MiB in {folder}")


def unpack(folder):
    """Somewhere of its own, as the folder may be one that only can be read."""
    inside = Path(tempfile.mkdtemp(prefix="weir-gpu-"))
    with tarfile.open(folder / PACK, "r:xz") as archive:
        archive.extractall(inside, **({"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}))
    return inside


# ---- running ---------------------------------------------------------------------------------------------------------

def describe():
    tool = shutil.which("nvidia-smi")
    if not tool:
        say("GPU: nvidia-smi is not here")
        return
    asked = "name,driver_version,memory.total,memory.used,persistence_mode,mig.mode.current"
    status, output, _ = run("nvidia-smi", [tool, f"--query-gpu={asked}", "--format=csv,noheader"], most=30)
    say("GPU: " + (output.strip().replace("\n", "; ") if status == 0 else "nvidia-smi fails: " + output.strip()))


def counts(output):
    passed = sum(map(int, re.findall(r"\[  PASSED  ?\] (\d+) test", output)))
    skipped = sum(map(int, re.findall(r"\[  SKIPPED ?\] (\d+) test", output)))
    return f"{passed} tests" + (f", {skipped} more skipped" if skipped else "") if passed or skipped else ""


def no_time(what):
    if place.left() >= LEAST:
        return False
    note("skipped", what, "there is no time left")
    return True


def over(what, status, seconds):
    """Whether it was ended because the time for all is over; that is no failure of its own, and is told here."""
    if place.left() > 0 or status not in (TOO_LONG, -signal.SIGKILL):
        return False
    note("skipped", what, f"the time for all was over after {seconds:.0f} s of it")
    return True


def telling_lines(output, most=30):
    return last_lines("\n".join(line for line in output.splitlines() if not re.match(r"\[ +(RUN|OK) ", line)), most)


def unlike(output):
    """The lines of JSON that say of answers that they are not the same, and not by rounding alone: bench/ties.h tells which."""
    return [line for line in output.splitlines() if re.search(r'"faults": [1-9]', line) or (
        re.search(r'"same": false', line) and not re.search(r'"ties": [1-9][0-9]*, "faults": 0\b', line))]


def suite(what, command, env=None, most=60):
    """A program whose exit status tells how it went; one that says that answers differ has failed, whatever its status."""
    if no_time(what):
        return TOO_LONG
    status, output, seconds = run(what, command, env, most)
    if over(what, status, seconds):
        return TOO_LONG
    if status == SKIPPED:
        note("skipped", what, output.strip().splitlines()[-1] if output.strip() else "")
    elif status:
        note("failed", what, f"too long: {seconds:.0f} s" if status == TOO_LONG else f"exit status {status}", telling_lines(output))
    elif unlike(output):
        status = DIFFERS
        note("failed", what, "answers are not the same", telling_lines(output))
    else:
        note("passed", what, ", ".join(filter(None, [counts(output), f"{seconds:.1f} s"])))
    return status


def show_log(what, wanted):
    """Those lines of what a step has said."""
    for line in log_of(what).read_text(encoding="utf-8", errors="replace").splitlines():
        if re.search(wanted, line):
            say("    " + line[:200])


def find_sanitizer():
    for path in (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer",
                 "/usr/local/cuda/compute-sanitizer/compute-sanitizer"):
        if path and os.access(path, os.X_OK):
            return path
    return None


def sanitized(tool, what, command, env=None, most=60):
    """A program under a tool of compute-sanitizer: it succeeds, and the tool has nothing to say."""
    what = f"{what} under {tool}"
    if no_time(what):
        return TOO_LONG
    # The suites provoke errors of the interface on purpose; what is looked for are wrong accesses.
    words = [place.sanitizer, "--tool", tool, "--error-exitcode", FAILED_BY_TOOL]
    words += ["--report-api-errors", "no"] if tool == "memcheck" else []
    status, output, seconds = run(what, [*words, *command], {**place.required(), "WEIR_SANITIZED": tool, **(env or {})}, most)
    if over(what, status, seconds):
        return TOO_LONG
    if re.search(r"Device not supported|Unable to find injection|not supported on this", output):
        note("skipped", what, "compute-sanitizer does not work here: " +
             next(line.strip() for line in output.splitlines() if re.search("not supported|injection", line)))
        return SKIPPED
    errors = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", output)
    if status == 0 and errors and unlike(output):
        status = DIFFERS
        note("failed", what, "answers are not the same", telling_lines(output))
    elif status == 0 and errors:
        note("passed", what, ", ".join(filter(None, [errors[-1], counts(output), f"{seconds:.1f} s"])))
    elif status == SKIPPED:
        note("skipped", what, output.strip().splitlines()[-1])
    else:
        note("failed", what, f"too long: {seconds:.0f} s" if status == TOO_LONG else
             f"{errors[-1] if errors else 'no summary'}, exit status {status}", telling_lines(output, 60))
    return status


@dataclass
class Step:
    """A program on the GPU. In its words {in} is where the pack was unpacked, {logs} the folder of logs, {seconds} what is left for
    it; who runs it knows others. `tool`: of compute-sanitizer. `show`: lines of what it says that are told. `stub`: its words in a
    rehearsal, where others are wanted."""
    name: str
    words: str
    seconds: int = 60
    environment: dict = field(default_factory=dict)
    tool: str = ""
    show: str = ""
    stub: str = ""


def run_step(step, values, stub):
    limit = min(step.seconds, max(0, int(place.left()) - 5))
    known = {"in": place.folder, "logs": place.logs, "seconds": max(1, limit - 15), **values}
    command = [word.format(**known) for word in (step.stub if stub and step.stub else step.words).split()]
    what = step.name
    if step.tool and not place.sanitizer:
        note("skipped", what, "compute-sanitizer is not here")
        return
    if step.tool:
        sanitized(step.tool, what, command, step.environment, step.seconds)
        what = f"{what} under {step.tool}"
    else:
        suite(what, command, step.environment, step.seconds)
    if step.show and log_of(what).exists():
        show_log(what, step.show)


def at_once(tasks, most=AT_ONCE):
    """Functions, several at a time; each tells by itself how it went."""
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        for done in [pool.submit(guarded, task) for task in tasks]:
            done.result()


def cuda_packages():
    """Folders of the libraries of CUDA and cuDNN: of the packages that PyTorch brings, and of a toolkit."""
    import sysconfig  # for this alone
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    return [*sorted(packages.glob("*/lib")), *sorted(Path("/usr/local").glob("cuda*/lib64"))]
