#!/usr/bin/env python3
"""package.py BUILD CASE: checks the tree that `cmake --install BUILD` makes."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parent.parent / "include/weir"
BUILD = Path(sys.argv[1])
SCRATCH = BUILD / "package"
PREFIX = SCRATCH / "moved"  # installed as SCRATCH/prefix, then moved: nothing in it may know where it was
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
CC = os.environ.get("CC", "cc")
CXX = {"gcc": "g++", "clang": "clang++"}.get(Path(CC).name, "c++")


def run(*command, **options):
    command = [str(word) for word in command]
    answer = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if answer.returncode:
        sys.exit(f"{shlex.join(command)}: exit status {answer.returncode}\n{answer.stdout}")
    return answer.stdout


def one(pattern):
    found = sorted(PREFIX.glob(pattern))
    if len(found) != 1:
        sys.exit(f"expected exactly one {pattern} below the prefix, found {[str(p) for p in found]}")
    return found[0]


def libdir():
    return one("**/libweir.so").parent


def clean_environment():
    """No search path of the caller's may help the installed programs to find the library."""
    return {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH")}


def install():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    manifest = BUILD / "install_manifest.txt"
    before = manifest.read_bytes() if manifest.exists() else None
    run("cmake", "--install", BUILD, "--prefix", SCRATCH / "prefix")
    manifest.rename(SCRATCH / "manifest.txt")
    if before is not None:  # what a real `make install` noted, for `make uninstall`
        manifest.write_bytes(before)
    (SCRATCH / "prefix").rename(PREFIX)


def cmake(static):
    build = SCRATCH / f"consumer-{'static' if static else 'shared'}"
    programs = ["consumer-c", "consumer-cxx"] + (["consumer-manifest"] if has_manifests() else [])
    shutil.rmtree(build, ignore_errors=True)
    environment = clean_environment()
    run("cmake", "-S", HERE / "consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DSTATIC={'ON' if static else 'OFF'}",
        f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}", env=environment)
    run("cmake", "--build", build, env=environment)
    for program in programs:
        needed = run("readelf", "-d", build / program)
        if ("libweir" in needed) == static:
            sys.exit(f"{program} is linked to the wrong libweir:\n{needed}")
        run(build / program, env=environment)


MODULES = {"weir": "consumer.c", "weir-manifest": "manifest.c"}  # by pkg-config's name, and a program for it


def pkgconfig(static):
    environment = {**clean_environment(), "PKG_CONFIG_PATH": str(libdir() / "pkgconfig")}
    for module, source in MODULES.items():
        if module == "weir" or has_manifests():
            try_module(module, HERE / "consumer" / source, static, environment)


def try_module(module, source, static, environment):
    query = ["pkg-config", *(["--static"] if static else []), "--cflags", "--libs", module]
    flags = shlex.split(run(*query, env=environment))
    if run("pkg-config", "--modversion", module, env=environment).strip() != header_version():
        sys.exit(f"{module}.pc and base.h name different versions")
    program = SCRATCH / f"pkgconfig-{module}-{static}"
    # A static program can still dlopen; the linker warns that it needs the same libc then. What libweir-manifest stands on is
    # not here as static libraries: there it is weir's alone that are static.
    whole = static and module == "weir"
    link = ["-static", "-Wl,--no-warnings"] if whole else [f"-Wl,-rpath,{libdir()}"]
    if whole and "--no-warnings" not in run("ld", "--help"):
        link = ["-static"]
    if static and not whole:
        flags = [f"-l:lib{flag[2:]}.a" if flag.startswith("-lweir") else flag for flag in flags]
    run(CC, "-std=c11", *STRICT, source, "-o", program, *flags, *link, env=environment)
    run(program, env=environment)


def header_version():
    return re.search(r'WEIR_VERSION_STRING\s+"([^"]+)"', (HEADERS / "base.h").read_text())[1]


def declared():
    """The functions that the headers declare WEIR_API."""
    every = "".join(f"#include <{path.relative_to(HEADERS.parent)}>\n" for path in sorted(HEADERS.rglob("*.h"))
                    if "#error" not in path.read_text())
    text = run(CC, "-std=c11", "-E", "-P", "-x", "c", "-I", HEADERS.parent, "-", input=every)
    exported = re.findall(r'__attribute__\(\(visibility\("default"\)\)\)([^;{]*);', text)
    return {re.search(r"\b(weir_\w+)\s*\(", declaration)[1] for declaration in exported}


def symbols_of(name, wanted):
    def names(*options):
        lines = map(str.split, run("nm", "--defined-only", *options).splitlines())
        return {line[-1] for line in lines if len(line) == 3 and line[1] != "A"}  # A: the version nodes themselves

    library = libdir() / f"{name}.so"
    series = ".".join(header_version().split(".")[:2])
    versioned = names("-D", library)
    exported = {symbol.partition("@@")[0] for symbol in versioned}
    complaints = [f"declared and not exported: {', '.join(sorted(wanted - exported))}" if wanted - exported else "",
                  f"exported and not declared: {', '.join(sorted(exported - wanted))}" if exported - wanted else ""]
    other = {symbol for symbol in versioned if symbol.partition("@@")[2] != f"WEIR_{series}"}
    complaints.append(f"not of the version WEIR_{series}: {', '.join(sorted(other))}" if other else "")
    # In the static library what is not static is visible to the whole program: weir_, and for what is internal wi_, and wp_ of the pool.
    loose = {symbol for symbol in names("-g", libdir() / f"{name}.a") if not symbol.startswith(("weir_", "wi_", "wp_"))}
    complaints.append(f"{name}.a defines names besides weir_, wi_ and wp_: {', '.join(sorted(loose))}" if loose else "")
    dynamic = run("readelf", "-d", library)
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    if not soname or soname[1] != f"{name}.so.{series}":
        complaints.append(f"SONAME is {soname and soname[1]}")
    if any(complaints):
        sys.exit("\n".join(filter(None, complaints)))
    print(f"{name}: {len(wanted)} functions, each declared and exported")
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))


def symbols():
    all_of_them = declared()
    libweir = {function for function in all_of_them if not function.startswith("weir_manifest_")}
    needed = {name for name in symbols_of("libweir", libweir) if not re.match(r"libc\.|ld-linux|libpthread|libdl|libgcc_s", name)}
    if needed:
        sys.exit(f"libweir needs {', '.join(sorted(needed))}")
    if has_manifests():
        symbols_of("libweir-manifest", all_of_them - libweir)


def has_manifests():
    return (libdir() / "libweir-manifest.so").exists()


def files():
    """What is there, that nothing points outside, and that the command runs where it was moved to."""
    for pattern in ("include/weir/weir.h", f"**/libweir.so.{header_version()}", "**/libweir.a", "**/cmake/weir/weirConfig.cmake",
                    "**/cmake/weir/weirTargets.cmake", "**/pkgconfig/weir.pc", "share/doc/weir/LICENSE"):
        one(pattern)
    installed = {str(path.relative_to(PREFIX / "include/weir")) for path in (PREFIX / "include/weir").rglob("*.h")}
    if installed != {str(path.relative_to(HEADERS)) for path in HEADERS.rglob("*.h")}:
        sys.exit(f"the installed headers are {sorted(installed)}")
    foreign = [str(BUILD), str(SCRATCH / "prefix"), str(HERE.parent.parent)]
    for path in PREFIX.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if content[:4] == b"\x7fELF":
            for entry in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", run("readelf", "-d", path)):
                if not all(re.fullmatch(r"\$ORIGIN(/\.\.)?(/\w[\w-]*)*", part) for part in entry.split(":")):
                    sys.exit(f"{path} looks for libraries in {entry}")
        elif content[:7] != b"!<arch>":
            for place in foreign:
                if place.encode() in content:
                    sys.exit(f"{path} names {place}")
    environment = {**clean_environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    for command in (PREFIX / "bin/weir", PREFIX / "bin/weir-bench", *sorted((PREFIX / "share/weir/scripts").iterdir())):
        if os.access(command, os.X_OK):
            run(command, "--help", env=environment)


def plugin():
    """The gguf plug-in from its installed sources, as scripts/engines builds it where weir is installed."""
    build = SCRATCH / "plugin"
    shutil.rmtree(build, ignore_errors=True)
    run("cmake", "-S", PREFIX / "share/weir/gguf/engine", "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}",
        f"-DWEIR_LLAMA={os.environ['WEIR_LLAMA']}", f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}")
    run("cmake", "--build", build, "-j", "2")
    if not list(build.rglob("weir-engine-gguf.so")):
        sys.exit("it was built and is not there")


def example(name, *wanted):
    """What a program brings of its own, built from its example outside of the tree, and run."""
    build = SCRATCH / name
    shutil.rmtree(build, ignore_errors=True)
    environment = clean_environment()
    run("cmake", "-S", HERE.parent.parent / "examples" / name, "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}",
        f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_C_FLAGS={shlex.join(STRICT)}", env=environment)
    run("cmake", "--build", build, env=environment)
    said = run(build / name, env=environment)
    for line in wanted:
        if line not in said:
            sys.exit(f"{name} did not say \"{line}\":\n{said}")


def own_base():
    example("own-base", "refused without asking the base: mine asked for 2 MiB", "the base has 0 bytes")


def own_adaptor():
    example("own-adaptor", "refused: mine: request 3 of 1048576 bytes is made to fail", "query: at most 2097152 bytes",
            "value: at most 1048576 bytes")


def own_driver():
    example("own-driver", "toy:1 has budget(segments)", "the work saw 7 and 9")


def uninstall():
    """Removes every file it installed, and nothing else."""
    root = SCRATCH / "undo"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(PREFIX, root / "root/opt/weir-test", symlinks=True)
    (root / "root/opt/weir-test/bin/other").parent.mkdir(exist_ok=True)
    (root / "root/opt/weir-test/bin/other").write_text("not weir's\n")
    lines = (SCRATCH / "manifest.txt").read_text().replace(str(SCRATCH / "prefix"), "/opt/weir-test")
    (root / "install_manifest.txt").write_text(lines)
    run("cmake", "-P", HERE.parent.parent / "cmake/uninstall.cmake", cwd=root, env={**os.environ, "DESTDIR": str(root / "root")})
    left = [str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()]
    if sorted(left) != ["install_manifest.txt", "root/opt/weir-test/bin/other"]:
        sys.exit(f"left after uninstall: {left}")
    if (root / "root/opt/weir-test/include/weir").exists():
        sys.exit("uninstall left an empty include/weir")


CASES = {"install": install, "cmake-shared": lambda: cmake(False), "cmake-static": lambda: cmake(True),
         "pkgconfig-shared": lambda: pkgconfig(False), "pkgconfig-static": lambda: pkgconfig(True),
         "symbols": symbols, "files": files, "plugin": plugin, "own-base": own_base, "own-adaptor": own_adaptor, "own-driver": own_driver, "uninstall": uninstall}
CASES[sys.argv[2]]()
