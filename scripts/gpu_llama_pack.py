"""llama.cpp and its CUDA module as what is carried to a machine with a GPU: scripts/gpu-llama and scripts/gpu-three."""

import shutil
import sys
import tarfile
from pathlib import Path

import gpu_steps as steps

MODULE = "llama-cuda.tar.xz"


# ---- carrying --------------------------------------------------------------------------------------------------------

def of_store(name, how):
    """The folder in the store that `current` points at."""
    import store  # for this alone, as no pack has it
    current = store.Store().path("engines", name, "current")
    if not (current / "commit").exists():
        steps.give_up(f"{name} in the store: run scripts/engines {how}")
    return current.resolve()


def commit_of(folder):
    facts = dict(line.split("=", 1) for line in (folder / "commit").read_text().splitlines() if "=" in line)
    return facts.get("commit", "")


def find_both():
    """The libraries and the module of the store, which are of one commit."""
    llama, module = of_store("llama", "llama"), of_store("llama-cuda", "--cuda --arch 90 llama-cuda")
    if commit_of(llama) != commit_of(module):
        steps.give_up(f"llama.cpp in the store: the module is of {commit_of(module)[:12]}, "
                      f"the libraries are of {commit_of(llama)[:12]}")
    return llama, module


def pack_module(source, target):
    """As it is made once and takes a quarter of a minute to be compressed, it stays where it was packed."""
    mark = f"{source.name} {(source / 'lib/libggml-cuda.so').stat().st_size}"
    name = target.with_suffix(".name")
    if target.exists() and name.exists() and name.read_text() == mark:
        return
    with tarfile.open(target, "w:xz", preset=6) as archive:
        for path in ("commit", "lib/libggml-cuda.so"):
            archive.add(source / path, arcname=f"{source.name}/{path}")
    name.write_text(mark)


def pack_llama(source, inside):
    """The libraries by the names that they are looked for: links stay links."""
    target = inside / "store/engines/llama" / source.name
    (target / "lib").mkdir(parents=True)
    shutil.copy(source / "commit", target / "commit")
    for library in sorted((source / "lib").glob("lib*.so*")):
        shutil.copy2(library, target / "lib", follow_symlinks=False)
    (inside / "store/engines/llama/current").symlink_to(source.name)


def build(tree, targets):
    configure = ["cmake", "-S", steps.ROOT, "-B", tree, "-G", "Ninja", "-DCMAKE_C_COMPILER=gcc", "-DCMAKE_BUILD_TYPE=Release",
                 "-DWEIR_ENGINES=ON", "-DWEIR_PACKAGES=OFF"]
    for what, command in (("configuring", configure), ("building", ["cmake", "--build", tree, "-j2", "--target", *targets])):
        status, output, seconds = steps.run(what, command, most=3600)
        if status:
            steps.give_up(what, output)
        steps.note("passed", what, f"{seconds:.0f} s")


def pack_programs(tree, inside, programs, beside, carried):
    """Programs with what they need, other files of the build, the stub of CUDA's libraries, and files of the sources."""
    for name in programs:
        steps.pack_program(tree / name, inside / Path(name).parent, inside / "lib")
    for name in (*beside, *(path.relative_to(tree) for path in (tree / "stub/cuda").glob("*.so.*"))):
        steps.put(tree / name, inside / name)
    for name in carried:
        steps.put(steps.ROOT / name, inside / name)


# ---- running ---------------------------------------------------------------------------------------------------------

def unpack_module(folder, inside):
    modules = inside / "store/engines/llama-cuda"
    modules.mkdir()
    with tarfile.open(folder / MODULE, "r:xz") as archive:
        archive.extractall(modules, **({"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}))
    (modules / "current").symlink_to(next(modules.iterdir()).name)


def python_with_numpy():
    """This one, or a store's."""
    for python in (sys.executable, Path.home() / ".cache/weir/venv/bin/python"):
        if steps.run("numpy", [python, "-c", "import numpy"], most=60)[0] == 0:
            return python
    return sys.executable


def make_model(python, script, path, shape, kind):
    """Whether it is there: a llama of random weights."""
    what = f"model {path.stem}"
    good = steps.suite(what, [python, "-B", script, path, "--shape", shape, "--type", kind], most=90) == 0
    if good:
        steps.show_log(what, "million parameters")
    return good


def environment(inside, stub):
    """Of programs that find weir, its engines and llama.cpp in what was unpacked."""
    found = [inside / "stub/cuda"] if stub else steps.cuda_packages()
    return {**steps.library_path(inside / "lib", *found), **steps.place.required(), "WEIR_HOME": str(inside / "store"),
            "WEIR_ENGINE_PATH": str(inside / "lib/weir"),
            "WEIR_LIBRARY": str(next((inside / "lib").glob("libweir.so*"), "")), "PYTHONPATH": str(inside / "python"),
            "WEIR_LLAMA_CUDA": str(inside / "store/engines/llama-cuda/current")}
