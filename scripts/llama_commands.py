"""llama.cpp's own commands, llama-bench and llama-completion, for scripts/gpu-exec: built from the archive in the store over the
store's libraries of the same commit, with nothing of weir's. That takes four minutes of a processor."""

import tarfile
from pathlib import Path

import gpu_llama_pack as packs
import gpu_steps as steps
from gpu_steps import ROOT

COMMANDS = {"llama-bench": "llama-bench", "completion": "llama-completion"}  # folder in tools: program
PARTS = ("common", "vendor", *(f"tools/{folder}" for folder in COMMANDS))
HEADERS = ("src/llama-ext.h",)  # of the library's own, which they include
# llama.cpp's own lists of sources, without the libraries: those are the store's.
LISTS = """cmake_minimum_required(VERSION 3.18)
project(commands C CXX)
set(LLAMA_BUILD_COMMON ON)
set(LLAMA_VERSION_BASE 0)
set(LLAMA_VERSION_MAJOR 0)
function(license_add_file)
endfunction()
function(llama_add_compile_flags)
endfunction()
add_library(llama INTERFACE)
target_include_directories(llama INTERFACE ${LIBRARIES}/include)
foreach(library llama ggml ggml-base)
  target_link_libraries(llama INTERFACE ${LIBRARIES}/lib/lib${library}.so)
endforeach()
foreach(part vendor common %s)
  add_subdirectory(${SOURCE}/${part} ${part})
endforeach()
""" % " ".join(f"tools/{folder}" for folder in COMMANDS)


def unpack(archive, folder):
    prefix = "vendor/llama.cpp/"
    with tarfile.open(archive) as tar:
        for member in tar:
            inside = member.name.partition("/")[2]
            inside = inside[len(prefix):] if inside.startswith(prefix) else ""
            if member.isfile() and (inside.startswith(tuple(part + "/" for part in PARTS)) or inside in HEADERS) and ".." not in inside:
                member.name = inside
                tar.extract(member, folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def archive_of_store():
    found = sorted(Path.home().glob(".cache/weir/downloads/llama_cpp_python-*.tar.gz"))
    if not found:
        steps.give_up("llama.cpp's archive in the store: run scripts/engines llama")
    return found[-1]


def build(libraries, place):
    """The folder in which they lie."""
    source, tree, lists = place / "llama.cpp", place / "llama-commands", place / "llama-lists"
    if not source.exists():
        unpack(archive_of_store(), source)
    lists.mkdir(exist_ok=True)
    (lists / "CMakeLists.txt").write_text(LISTS)
    configure = ["cmake", "-S", lists, "-B", tree, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DSOURCE={source}", f"-DLIBRARIES={libraries}",
                 "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_NUMBER=0", f"-DLLAMA_BUILD_COMMIT={packs.commit_of(libraries)[:12]}",
                 "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN/../store/engines/llama/current/lib"]
    for what, command in (("configuring llama.cpp's commands", configure),
                          ("building llama.cpp's commands", ["cmake", "--build", tree, "-j2", "--target", *COMMANDS.values()])):
        status, output, seconds = steps.run(what, command, most=3600)
        if status:
            steps.give_up(what, output)
        steps.note("passed", what, f"{seconds:.0f} s")
    return tree


def pack(archive, place, inside):
    """All that running them takes but the CUDA module, which lies beside the pack as `archive` has it."""
    libraries = packs.of_store("llama", "llama")
    with tarfile.open(archive) as tar:
        named = tar.getnames()[0].split("/")[0]
    if named.split("-")[0] != packs.commit_of(libraries)[:12]:
        steps.give_up(f"{archive}: the module is of {named}, the libraries are of {packs.commit_of(libraries)[:12]}")
    tree = build(libraries, place)
    for folder, name in COMMANDS.items():
        steps.put(tree / "tools" / folder / name, inside / "llama" / name)
    status, output, _ = steps.run("compiling the entry of the module", ["gcc", "-O2", "-shared", "-fPIC", "-o", inside / "llama/module.so",
                                                                       ROOT / "bench/exec/llama_module.c", "-ldl"])
    if status:
        steps.give_up("compiling the entry of the module", output)
    packs.pack_llama(libraries, inside)


def command(model):
    """The words and the environment of bench/exec/llama.py, where the pack was unpacked."""
    inside = steps.place.folder
    library = inside / "store/engines/llama-cuda/current/lib/libggml-cuda.so"
    return ([inside / "bench/llama.py", inside / "llama", model],
            {"GGML_BACKEND_PATH": str(inside / "llama/module.so"), "WEIR_LLAMA_CUDA_LIBRARY": str(library)})
