"""ONNX Runtime on a GPU as one run: the suites of the engine onnx, of the bridge and of the command there, the same under
compute-sanitizer, and each part that scripts/gpu-onnx measures.

    scripts/gpu-onnx --pack FOLDER     builds, and puts all that has to be carried into FOLDER
    scripts/gpu-onnx --packed FOLDER   runs what lies there; at most six minutes, or --seconds N, and what there is no time for is
                                       skipped, and said

ONNX Runtime is the store's build for CUDA, trimmed (scripts/engines --cuda --arch 90 --small onnxruntime-cuda). --stub rehearses
over the stub of CUDA's libraries, where there is no GPU: nothing of what is measured then means anything. --models names a folder
with the models, where PyTorch is not there to export them."""

import argparse
import re
import shutil
import signal
import sys
import tarfile
from pathlib import Path

import gpu_steps as steps
from gpu_steps import ROOT, note, suite

# Where programs that are carried look for what lies beside them: a link to it.
ELSEWHERE = Path("/tmp/weir-carried")
TESTS = ("test-onnx-gpu", "test-onnx-providers", "test-onnx-needs", "test-bridge-gpu")
TOOL = "libonnx-left.so"  # preloaded
TARGETS = ["weir_command", "weir-engine-onnx", "onnx-needing", "onnx-left", "stub-provider", "bench-load-speed", "bench-first-answer", *TESTS]
RUNTIME = "ort.tar.xz"
SECONDS = 335
BRIDGED = (("small", 8, 150), ("resnet50", 16, 40), ("bert", 32, 40))  # model, extent, pairs
LIMITS = {"speed": 90, "faults": 110, "loads": 90, "shown": 110}  # of parts; of others a minute
SERVED = 60  # seconds that two models are served at the most
SANITIZING = 10  # seconds for what comes behind that
CYCLES = []  # of the part shown, where they are told
LAST = ["loads", "graph", "concurrency", "witness", "hold", "speed", "faults", "left", "serve"]  # of the parts: what is measured often comes after what is not


# ---- carrying --------------------------------------------------------------------------------------------------------

def pack_runtime(target):
    """As it is made once and takes a minute to be compressed, it stays where it was packed."""
    import store  # for this alone, as no pack has it
    found = sorted(store.Store().path("engines", "onnxruntime-cuda").glob("*-sm*-small"))
    if not found:
        steps.give_up("a trimmed ONNX Runtime: run scripts/engines --cuda --arch 90 --small onnxruntime-cuda")
    name = found[-1].name
    if target.exists() and target.with_suffix(".name").read_text() == name:
        return
    with tarfile.open(target, "w:xz", preset=6) as archive:
        for library in sorted(found[-1].glob("*.so*")):
            archive.add(library, arcname=library.name)
    target.with_suffix(".name").write_text(name)


def pack(folder, tests):
    tree, inside = steps.place.folder / "release", steps.place.folder / "inside"
    shutil.rmtree(inside, ignore_errors=True)
    for what, command in (("configuring", ["cmake", "-S", ROOT, "-B", tree, "-G", "Ninja", "-DCMAKE_C_COMPILER=gcc",
                                           "-DCMAKE_BUILD_TYPE=Release", "-DWEIR_ENGINES=ON",
                                           "-DWEIR_PACKAGES=OFF", f"-DWEIR_TEST_ELSEWHERE={ELSEWHERE}"]),
                          ("building", ["cmake", "--build", tree, "--target", *TARGETS, *tests])):
        status, output, seconds = steps.run(what, command, most=3600)
        if status:
            steps.give_up(what, output)
        note("passed", what, f"{seconds:.0f} s")
    for program in (*(tree / "tests" / name for name in (*TESTS, *tests)), tree / "bin/weir", tree / "bench/bench-load-speed", tree / "bench/bench-first-answer"):
        steps.pack_program(program, inside / program.parent.name, inside / "lib")
    for name in ("tests/needs/libonnx-needing.so", "tests/needs/there/libonnx-needed.so.3", "tests/needs/other/libonnx-needed.so.2",
                 "lib/weir/weir-engine-onnx.so", f"tests/{TOOL}"):
        steps.put(tree / name, inside / name)
    for library in (tree / "stub/cuda").glob("*.so.*"):
        steps.put(library, inside / "stub/cuda" / library.name)
    for name in ("harness.py", "test_run_device.py"):
        steps.put(ROOT / "tests/cli" / name, inside / "tests/cli" / name)
    shutil.copytree(ROOT / "tests/data/onnx", inside / "data/onnx")
    pack_runtime(steps.place.folder / RUNTIME)
    steps.finish_pack(folder, inside, "gpu-onnx", {
        "what": "ONNX Runtime through weir on a GPU: suites, and what is measured.",
        "seconds": SECONDS + 15, "least": SECONDS, "scripts": ["gpu_onnx_steps.py", "gpu_models.py"],
        "needs": "an H100 or H200; PyTorch, torchvision, onnx, cuDNN 9 and cuBLAS of CUDA 13"}, [steps.place.folder / RUNTIME])


# ---- running ---------------------------------------------------------------------------------------------------------

def unpack_runtime(folder, inside):
    """As a store has it, for CUDA and for the processor."""
    engines = inside / "store/engines"
    (engines / "onnxruntime-cuda/carried").mkdir(parents=True)
    with tarfile.open(folder / RUNTIME, "r:xz") as archive:
        archive.extractall(engines / "onnxruntime-cuda/carried",
                           **({"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}))
    (engines / "onnxruntime-cuda/current").symlink_to("carried")
    (engines / "onnxruntime").symlink_to("onnxruntime-cuda")
    return engines / "onnxruntime/current/libonnxruntime.so"


def link_elsewhere(inside):
    if ELSEWHERE.is_symlink():
        ELSEWHERE.unlink()  # of a run that was ended
    ELSEWHERE.symlink_to(inside)


def program(name):
    return steps.place.tests / name


def suites():
    """Which providers are here, with and without the libraries of CUDA; the engine; the command."""
    alone = {"LD_LIBRARY_PATH": str(steps.place.folder / "lib")}
    suite("providers without CUDA's libraries", [program("test-onnx-providers")], alone, 40)
    suite("providers", [program("test-onnx-providers")], most=40)
    suite("what libraries need", [program("test-onnx-needs")], alone, 40)
    suite("devices, explain and run", [sys.executable, "-B", steps.place.tests / "cli/test_run_device.py"], most=90)
    status, output, _ = steps.run("devices", [steps.place.folder / "bin/weir", "devices"], most=20)
    note("failed" if status else "passed", "weir devices", lines=steps.last_lines(output))


def get_models(given):
    folder = given or steps.place.folder / "models"
    script = Path(__file__).parent / "gpu_models.py"
    failed = not given and suite("exporting models", [sys.executable, "-W", "ignore", "-B", script, folder], most=90)
    return None if failed else folder


def copies():
    """The bridge's suite, with a model that has few kernels."""
    return "bridge with copies", [program("test-bridge-gpu"), steps.place.folder / "data/onnx/copies.onnx", 100, 10]


def bridge(models, runtime):
    """A program's own sessions: what they answer, and how fast."""
    data = steps.place.folder / "data/onnx"
    runs = [(data / "copies.onnx", 1000, 200)]
    if steps.place.device == "cuda":  # kernels of the stub answer with what was there before
        runs.append((data / "picked.onnx", 1000, 200))
        runs += [(models / f"{name}.onnx", *rest) for name, *rest in BRIDGED] if models else []
    for model, extent, pairs in runs:
        what = f"bridge with {model.stem}"
        if suite(what, [program("test-bridge-gpu"), model, extent, pairs], {"WEIR_ONNXRUNTIME": runtime}, 40) == 0:
            steps.show_log(what, r"ratio|ms$|MiB|a run takes")


def sanitizers(runtime):
    """Races, and wrong accesses where weir loads the model. A tool makes each kernel many times slower: where one step took too
    long, so would the others."""
    data = steps.place.folder / "data/onnx"
    cycles = ("cycles of chain", [program("test-onnx-gpu"), "cuda", "weir", "cycles", data / "chain.onnx", 1, 16, 3])
    for tool, (what, command) in (("memcheck", cycles), ("racecheck", copies()), ("racecheck", cycles)):
        if steps.sanitized(tool, what, command, {"WEIR_ONNXRUNTIME": runtime}, 40) == steps.TOO_LONG:
            break


def serving_in(seconds):
    """How long two models are served: that is done twice, once half as long and once for 15 s, with 5 s to begin each time, and all
    of it has to end within these seconds."""
    return max(5, min(SERVED, int((seconds - 15 - 4 * 5) / 2.5)))


def measure(part, models):
    """A part of scripts/gpu-onnx, with its goals."""
    words = ["--program", program("test-onnx-gpu"), "--out", steps.place.logs / part, "--models", models, "--parts", part]
    limit = LIMITS.get(part, 60)
    if part == "shown" and CYCLES:
        words += ["--cycles", CYCLES[-1]]
        limit += CYCLES[-1] // 2
    if part == "serve":
        serving = serving_in(steps.place.left() - SANITIZING)
        words += ["--seconds", serving]
        limit = 3 * serving + 60
    what = f"measuring: {part}"
    if steps.no_time(what):
        return
    script = Path(__file__).parent / "gpu-onnx"
    status, output, seconds = steps.run(what, [sys.executable, "-W", "ignore", "-u", "-B", script, *words], most=limit)
    lines = [line for line in output.splitlines() if re.match("ok |MISS|FAILED|     ", line)]
    missed, broken = ([line for line in lines if line.startswith(word)] for word in ("MISS", "FAILED"))
    # What the stub's kernels take and answer is no goal.
    if steps.over(what, status, seconds):
        for line in lines:
            steps.say("    " + line)
        return
    good = status == 0 or (steps.place.device == "stub" and status == 1 and missed and not broken)
    note("passed" if good else "failed", what, f"too long: {seconds:.0f} s" if status == steps.TOO_LONG else
         f"{len(missed)} goals missed, {len(broken)} runs failed, {seconds:.0f} s",
         lines if good or missed or broken else steps.last_lines(output, 10))


def in_order(parts):
    return sorted(parts, key=lambda part: LAST.index(part) if part in LAST else -1)


def everything(folder, given, parts):
    runtime = unpack_runtime(folder, steps.place.folder)
    steps.describe()
    models = []
    steps.at_once([*([] if given.parts else [suites]), lambda: models.append(get_models(given.models))])
    models = models[0] if models else None
    if not given.parts:
        steps.guarded(lambda: bridge(models, runtime))
        if steps.place.sanitizer:
            steps.sanitized("memcheck", *copies(), {"WEIR_ONNXRUNTIME": runtime}, 40)
    left_out = given.without.split(",")
    for part in in_order([part for part in (given.parts.split(",") if given.parts else parts) if part not in left_out]):
        if models:
            steps.guarded(lambda part=part: measure(part, models))
        else:
            note("skipped", f"measuring: {part}", "there are no models")
    if steps.place.sanitizer and not given.parts:
        steps.guarded(lambda: sanitizers(runtime))
    elif not given.parts:
        note("skipped", "compute-sanitizer", "it is not here")


def main(parts, tests):
    """The parts that are measured, and the test programs that one of them runs."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--pack", type=Path, metavar="FOLDER")
    words.add_argument("--packed", type=Path, metavar="FOLDER")
    words.add_argument("--out", type=Path, metavar="FOLDER", help="where the logs go, as one archive")
    words.add_argument("--models", type=Path, metavar="FOLDER")
    words.add_argument("--parts", metavar="LIST", help="only these are measured, and nothing else is done: " + ",".join(parts))
    words.add_argument("--cycles", type=int, action="append", default=CYCLES, help="of the part shown")
    words.add_argument("--without", metavar="LIST", default="", help="parts that are not measured")
    words.add_argument("--seconds", type=int, default=SECONDS)
    words.add_argument("--stub", action="store_true", help="rehearse without a GPU")
    given = words.parse_args()
    if given.pack:
        folder = given.pack.resolve()
        steps.begin(steps.Place(folder.with_name(folder.name + ".build"), 3600, {}))
        pack(folder, tests)
        steps.summary("gpu-onnx")
    inside = steps.unpack(given.packed.resolve())
    answers = given.out.resolve() / "gpu-onnx.tgz" if given.out else None
    steps.begin(steps.Place(inside, given.seconds, {}, "stub" if given.stub else "cuda", answers))
    signal.signal(signal.SIGTERM, steps.end_early)
    found = [inside / "stub/cuda"] if given.stub else steps.cuda_packages()
    store = str(inside / "store")
    steps.place.environment = {**steps.library_path(inside / "lib", *found), **steps.place.required(), "WEIR_HOME": store,
                               "WEIR_TEST_STORE": store, "WEIR_ENGINE_PATH": str(inside / "lib/weir"),
                               "WEIR_TEST_BINARY": str(inside), "STUB_CUDA_TOTAL": hex(4 << 30)}
    link_elsewhere(inside)
    try:
        steps.guarded(lambda: everything(given.packed.resolve(), given, parts))
        steps.summary("gpu-onnx")
    finally:
        ELSEWHERE.unlink()
        shutil.rmtree(inside)
