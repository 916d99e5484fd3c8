#!/usr/bin/env python3
"""snippets.py SOURCE BUILD: tries what README.md, CONTRIBUTING.md and docs/**/*.md show.

    ```c            compiled with the strictest warnings and linked. Without a `main` it is the inside of a function that
                    returns a weir_status and is given `rt`, `client` and `stream`; #include lines and functions of its
                    own (from column 0, up to a closing brace in column 0) stay outside
    ```c run        a whole program, also run; it must exit with 0
    ```c norun      a fragment that does not compile by itself: only for declarations quoted from headers
    ```sh run       run by sh in a scratch folder with the build's `weir` first in PATH; each must exit with 0
    ```sh run engines   the same, skipped where the store has no engines and models, or not the models that are named
    ```sh run packages  the same, skipped where libarchive was not there when weir was built
    ```python run   run by Python in a scratch folder with the package of python/ over the build's libweir; it must exit with 0
    ```python run engines   the same, by the store's Python, which has NumPy, with the models that are named in the folder
    ```python torch         tests/python/test_torch.py runs it with a stand-in for PyTorch, gpu_torch.py with PyTorch
    ```json         must parse
Also every link to a file of the repository must lead somewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE, BUILD = Path(sys.argv[1]), Path(sys.argv[2])
SCRATCH = BUILD / "docs"
PACKAGES = (BUILD / "tests/test-manifest-packages").exists()  # which is built where libarchive is
STORE = Path(os.environ.get("WEIR_HOME") or SCRATCH)
# A fragment may leave what it got to the reader.
STRICT = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable"]
# A fragment is given every header; a whole program names those that it needs.
HEADERS = sorted(str(path.relative_to(SOURCE / "include")) for path in (SOURCE / "include/weir").rglob("*.h")
                 if "#error" not in path.read_text())  # which names what is there now
MODELS = re.compile(r"\b(minilm\.onnx|minilm\.gguf|tiny-llama\.gguf|tiny-llm)(?![\w.-])")
PRELUDE = "".join(f"#include <{header}>\n" for header in HEADERS) + "#include <stdio.h>\n#include <string.h>"


def wrapped(code):
    """A whole program of a fragment. In an inner block, so that it may declare `rt`, `client` and `stream` itself."""
    if re.search(r"^int main\(", code, re.M):
        return code
    outside, inside, function = [], [], False
    for line in code.splitlines():
        function = function or re.match(r"(?!if|for|while|switch|else|return)\w[\w *]*\w\([^;]*$", line)
        (outside if function or line.startswith("#include") else inside).append(line)
        function = function and line != "}"
    return "\n".join([PRELUDE, *outside,
                      "static weir_status fragment(weir_runtime *rt, weir_client *client, weir_stream stream)",
                      "{", "(void)rt, (void)client, (void)stream;", "{", *inside, "}", "return WEIR_OK;", "}",
                      "int main(void) { return fragment(NULL, NULL, WEIR_STREAM_HOST) == WEIR_OK ? 0 : 1; }", ""])


def call(command, **options):
    answer = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            errors="replace", timeout=1000, **options)
    return "" if answer.returncode == 0 else f"exit status {answer.returncode}\n{answer.stdout}"


def try_c(code, words, name):
    source, program = SCRATCH / f"{name}.c", SCRATCH / name
    source.write_text(wrapped(code))
    libraries = ["-lweir-manifest", "-lweir"] if "weir/manifest.h" in code else ["-lweir"]
    complaint = call([os.environ.get("CC", "cc"), "-std=c11", *STRICT, "-D_GNU_SOURCE", "-I", SOURCE / "include", source,
                      "-o", program, "-L", BUILD / "lib", *libraries, f"-Wl,-rpath,{BUILD / 'lib'}", "-pthread"])
    return complaint or (call([program], cwd=SCRATCH) if "run" in words else "")


def try_sh(code, words, name):
    folder = SCRATCH / name
    folder.mkdir()
    lines = [line[2:] if line.startswith("$ ") else line for line in code.splitlines() if not line.startswith("> ")]
    path = f"{BUILD / 'bin'}:{os.environ['PATH']}"
    return call(["sh", "-euc", "\n".join(lines)], cwd=folder, env={**os.environ, "PATH": path})


def try_python(code, words, name):
    folder = SCRATCH / name
    folder.mkdir()
    for model in set(MODELS.findall(code)):
        (folder / model).symlink_to(STORE / "models" / model)
    python = STORE / "venv/bin/python" if "engines" in words else sys.executable
    return call([python, "-B", "-c", code], cwd=folder, env={**os.environ, "PYTHONPATH": str(SOURCE / "python"),
                                                             "WEIR_LIBRARY": str(BUILD / "lib/libweir.so")})


def blocks(path):
    """(line, words after the fence, text) of each fenced block."""
    start = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if start is None and line.startswith("```"):
            start, words, text = number, line[3:].split() or [""], []
        elif start is not None and line == "```":
            yield start, words, "\n".join(text) + "\n"
            start = None
        elif start is not None:
            text.append(line)


def links(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not (path.parent / target).exists():
            yield target


def lacks_models(text):
    named = {STORE / "models" / name for name in MODELS.findall(text)}
    if STORE / "models/tiny-llm" in named:
        named.add(STORE / "engines/onnxruntime-genai/current")
    return not list(STORE.glob("models/*.onnx")) or not all(path.exists() for path in named)


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    passed, failures, skipped = 0, [], 0
    pages = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]
    for page in (page for page in pages if page.exists()):
        where = page.relative_to(SOURCE)
        for target in links(page):
            failures.append(f"{where}: a link leads nowhere: {target}")
        for line, words, text in blocks(page):
            name = re.sub(r"\W", "-", f"{where}-{line}")
            complaint = None
            if words[0] == "c" and "norun" not in words:
                complaint = try_c(text, words, name)
            elif words[0] == "sh" and "run" in words:
                if not (BUILD / "bin/weir").exists() or ("engines" in words and lacks_models(text)) or ("packages" in words and not PACKAGES):
                    skipped += 1
                    continue
                complaint = try_sh(text, words, name)
            elif words[0] == "python" and "run" in words:
                if "engines" in words and (lacks_models(text) or not (STORE / "venv/bin/python").exists()):
                    skipped += 1
                    continue
                complaint = try_python(text, words, name)
            elif words[0] == "json":
                try:
                    complaint = json.loads(text) and ""
                except ValueError as error:
                    complaint = str(error)
            if complaint:
                failures.append(f"{where}:{line}: {complaint}")
            elif complaint is not None:
                passed += 1
    for failure in failures:
        print(failure)
    # As cmocka says it, for those who count.
    for kind, count in (("PASSED ", passed), ("SKIPPED", skipped), ("FAILED ", len(failures))):
        if count:
            print(f"[  {kind} ] {count} test(s).")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
