"""llama.cpp's CUDA module, libggml-cuda.so: what building it needs on this machine, and what a built one is to be like."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from store import Failed, apt

TOOLKIT = Path("/usr/local/cuda/bin")
# Kernels are most of the build. NCCL is for several devices that compute one graph; the quantised caches of flash attention
# are many more kernels, of which the default has those in use.
OPTIONS = {"GGML_CUDA": "ON", "GGML_CUDA_NCCL": "OFF", "GGML_CUDA_FA_ALL_QUANTS": "OFF",
           # Not linked into the module: what it asks for could not be redirected then.
           "CMAKE_CUDA_RUNTIME_LIBRARY": "Shared"}
# What comes from CUDA's libraries, which the dynamic linker finds where CUDA is; the rest every machine has.
FROM_CUDA = re.compile(r"lib(cudart|cublas|cublasLt)\.so\.\d+$|libcuda\.so\.1$")
FROM_SYSTEM = re.compile(r"lib(stdc\+\+|m|gcc_s|c|dl|rt|pthread)\.so\.\d+$|ld-linux[\w-]*\.so\.\d+$")
BASE = "libggml-base.so.0"
EXPORTED = ("ggml_backend_cuda_reg", "ggml_backend_cuda_buffer_type", "ggml_backend_cuda_host_buffer_type")
REDIRECTED = ("cudaMalloc", "cudaFree", "cudaMallocHost", "cudaFreeHost", "cudaMemGetInfo", "cuDeviceGetAttribute")


def ask(command):
    """What it says on standard output; None where it cannot or will not."""
    try:
        answer = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def find_nvcc():
    """Of CUDACXX, of PATH, or where CUDA is installed by default."""
    named = os.environ.get("CUDACXX")
    if named:
        found = shutil.which(named)
        if not found:
            raise Failed(f"llama-cuda: CUDACXX names {named}, which is no program")
        return Path(found)
    found = shutil.which("nvcc") or shutil.which("nvcc", path=str(TOOLKIT))
    if not found:
        raise Failed(f"llama-cuda: building needs CUDA's compiler, and nvcc is neither in PATH nor in {TOOLKIT}; install "
                     "CUDA's toolkit (13.0 and 12.8 are known to do), or name the compiler by CUDACXX")
    return Path(found)


def version_of(nvcc):
    found = re.search(r"release (\d+\.\d+)", ask([nvcc, "--version"]) or "")
    if not found:
        raise Failed(f"llama-cuda: {nvcc} does not say its version: it is no nvcc that works")
    return found[1]


def need_arch(nvcc, archs):
    known = {int(number) for number in re.findall(r"compute_(\d+)", ask([nvcc, "--list-gpu-arch"]) or "")}
    unknown = [arch for arch in archs if known and arch not in known]
    if unknown:
        raise Failed(f"llama-cuda: {nvcc} has no architecture {', '.join(map(str, unknown))}; "
                     f"it has {', '.join(map(str, sorted(known)))}")


def archs_here():
    """Of the GPUs that nvidia-smi knows, each once: 90 for compute capability 9.0."""
    answer = ask(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]) or ""
    return sorted({int(major + minor) for major, minor in re.findall(r"^(\d+)\.(\d+)\s*$", answer, re.M)})


def archs_of(variant, commit12):
    """Of the folder that `current` points at, when it is of that commit."""
    found = re.fullmatch(re.escape(commit12) + r"((?:-sm\d+)+)", variant)
    return [int(number) for number in re.findall(r"\d+", found[1])] if found else []


def chosen_archs(asked, current, commit12):
    """That which is asked for, those here, or those that a module is there for already; [] where none is known."""
    if asked is not None:
        return [asked]
    return archs_here() or (archs_of(os.readlink(current), commit12) if current.is_symlink() else [])


def variant_of(commit12, archs):
    return commit12 + ("".join(f"-sm{arch}" for arch in archs) or "-smNN")


def options(archs, nvcc):
    real = ";".join(f"{arch}-real" for arch in archs)
    return {**OPTIONS, "CMAKE_CUDA_ARCHITECTURES": real, "CMAKE_CUDA_COMPILER": str(nvcc)}


def rpath(commit12):
    """From engines/llama-cuda/COMMIT-smNN/lib to the libraries of the same commit that are built for the processor."""
    return f"$ORIGIN/../../../llama/{commit12}/lib"


# ---- what was built --------------------------------------------------------------------------------------------------

def dynamic(library):
    """(libraries it needs, its run path, symbols it defines, symbols it wants), as the ELF file says it."""
    section, table = (ask(["readelf", "-W", words, library]) for words in ("-d", "--dyn-syms"))
    if section is None or table is None:
        raise Failed(f"llama-cuda: {library.name} cannot be read by readelf; is binutils here? {apt('binutils')}")
    needed = re.findall(r"\(NEEDED\)\s+.*\[(.+)\]", section)
    path = re.findall(r"\((?:RUNPATH|RPATH)\)\s+.*\[(.*)\]", section)
    defined, wanted = set(), set()
    for place, name in re.findall(r"^ *\d+:(?: +\S+){5} +(\w+) +([^\s@]+)", table, re.M):
        (wanted if place == "UND" else defined).add(name)
    return needed, path[0] if path else "", defined, wanted


def check_file(library, commit12):
    """By reading it alone: that it is what the engine opens, and nothing that this machine has by chance."""
    needed, path, defined, wanted = dynamic(library)
    strange = [name for name in needed if name != BASE and not FROM_CUDA.match(name) and not FROM_SYSTEM.match(name)]
    wrong = [what for what, bad in (
        (f"needs {', '.join(strange)}, which other machines may not have", strange),
        (f"does not need {BASE}", BASE not in needed),
        ("has CUDA's runtime linked into it", not any(name.startswith("libcudart.so.") for name in needed)),
        (f"looks for libraries in '{path}'", path != rpath(commit12)),
        (f"lacks {', '.join(sorted(set(EXPORTED) - defined))}", set(EXPORTED) - defined),
        (f"does not call {', '.join(sorted(set(REDIRECTED) - wanted))}", set(REDIRECTED) - wanted)) if bad]
    if wrong:
        raise Failed(f"llama-cuda: {library.name} {'; it '.join(wrong)}")
    return needed


OPEN = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
module = ctypes.CDLL(sys.argv[2])
module.ggml_backend_cuda_get_device_count.restype = ctypes.c_int
print(module.ggml_backend_cuda_get_device_count())
"""


def check_opened(library, base):
    """Opened in a process of its own beside the libraries that it belongs to. What was seen, as words: without CUDA's libraries
    there is nothing to open it with."""
    if not base.exists():
        return f"was not opened: {base} is not there; scripts/engines llama makes it"
    answer = subprocess.run([sys.executable, "-c", OPEN, base, library], capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return f"finds {answer.stdout.split()[-1]} devices"
    said = (answer.stderr.strip().split("\n") or [""])[-1]
    missing = re.search(r"(lib\S+): cannot open shared object file", said)
    if missing and FROM_CUDA.match(missing[1]):
        return f"was checked by reading it alone: it cannot be opened here, without {missing[1]}"
    raise Failed(f"llama-cuda: {library.name} cannot be opened: {said or answer.returncode}")
