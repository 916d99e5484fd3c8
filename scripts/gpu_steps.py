"""What scripts/gpu-check and scripts/gpu-onnx share: steps with a time limit each and one for all, a pack that is carried to a
machine with a GPU, and the answers that come back from there."""

import concurrent.futures
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
AT_ONCE = 6  # programs on the GPU; what measures time or memory is alone
FAILED_BY_TOOL = 86
SKIPPED = 77
TOO_LONG = 124
LEAST = 3  # seconds without which nothing is begun
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
    """Where the programs are, what they need to be found, and until when they may run. `device`: cuda, or stub to rehearse."""

    def __init__(self, folder, seconds, environment, device="cuda"):
        self.folder, self.environment, self.device = folder, environment, device
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


def begin(where):
    global place
    place = where


def say(text):
    print(text, flush=True)
    with open(place.logs / "console.txt", "a", encoding="utf-8") as log:
        log.write(text + "\n")


def note(went, what, remark="", lines=()):
    with telling:
        results.append((went, what, remark, [line[:300] for line in lines]))
        say("\n".join([f"{went:8} {what}{': ' if remark else ''}{remark}", *("    " + line for line in lines)]))


def last_lines(output, most=40):
    return output.rstrip("\n").splitlines()[-most:]


def log_name(what):
    return re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")


def limited(command, env, limit):
    """Exit status and output; at the limit all that it has started is ended, as a child of its own would keep the pipe open."""
    with subprocess.Popen(command, cwd=place.folder, text=True, errors="replace", start_new_session=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as process:
        try:
            return process.communicate(timeout=limit)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0] + f"\nended after {limit:.0f} s\n", TOO_LONG


def run(name, command, env=None, most=120):
    """Exit status, output and seconds; 124 when it took too long."""
    start = time.monotonic()
    try:
        output, status = limited([str(word) for word in command], {**os.environ, **place.environment, **(env or {})},
                                 max(LEAST, min(most, place.left())))
    except OSError as error:
        status, output = 127, f"{error}\n"
    seconds = time.monotonic() - start
    said = f"$ {' '.join(map(str, command))}\n{output}\nexit status {status} after {seconds:.1f} s\n"
    (place.logs / f"{log_name(name)}.log").write_text(said, encoding="utf-8")
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


def summary(name="gpu", out=None):
    text, count = write_summary(name)
    say(text)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(out / f"{name}.tar", "w") as archive:
            archive.add(place.logs, arcname=name)
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


def telling_lines(output, most=30):
    return last_lines("\n".join(line for line in output.splitlines() if not re.match(r"\[ +(RUN|OK) ", line)), most)


def suite(what, command, env=None, most=60):
    """A program whose exit status tells how it went."""
    if no_time(what):
        return TOO_LONG
    status, output, seconds = run(what, command, env, most)
    if status == SKIPPED:
        note("skipped", what, output.strip().splitlines()[-1] if output.strip() else "")
    elif status:
        note("failed", what, f"too long: {seconds:.0f} s" if status == TOO_LONG else f"exit status {status}", telling_lines(output))
    else:
        note("passed", what, ", ".join(filter(None, [counts(output), f"{seconds:.1f} s"])))
    return status


def show_log(what, wanted):
    """Those lines of what a step has said."""
    log = (place.logs / f"{log_name(what)}.log").read_text(encoding="utf-8")
    for line in log.splitlines():
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
    if re.search(r"Device not supported|Unable to find injection|not supported on this", output):
        note("skipped", what, "compute-sanitizer does not work here: " +
             next(line.strip() for line in output.splitlines() if re.search("not supported|injection", line)))
        return SKIPPED
    errors = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", output)
    if status == 0 and errors:
        note("passed", what, ", ".join(filter(None, [errors[-1], counts(output), f"{seconds:.1f} s"])))
    elif status == SKIPPED:
        note("skipped", what, output.strip().splitlines()[-1])
    else:
        note("failed", what, f"too long: {seconds:.0f} s" if status == TOO_LONG else
             f"{errors[-1] if errors else 'no summary'}, exit status {status}", telling_lines(output, 60))
    return status


def at_once(tasks, most=AT_ONCE):
    """Functions, several at a time; each tells by itself how it went."""
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result()


def cuda_packages():
    """Folders of the libraries of CUDA and cuDNN: of the packages that PyTorch brings, and of a toolkit."""
    import sysconfig  # for this alone
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    return [*sorted(packages.glob("*/lib")), *sorted(Path("/usr/local").glob("cuda*/lib64"))]
