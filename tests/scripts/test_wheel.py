#!/usr/bin/env python3
"""What is in the wheel that scripts/wheel builds: its files, their list, its tag and versions, and nothing of the machine it was built on.

    test_wheel.py [WHEEL | --arch arm64]

Without a WHEEL one is built into a folder of its own, and used as scripts/wheel --check does: in an empty environment of each
Python that is here, or under qemu."""

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEEL = None
LIBRARIES = {"lib/libweir.so.0.2", "lib/libweir-seams.so.0.2", "lib/libweir-manifest.so.0.2", "lib/libweir-preload.so",
             "lib/weir/weir-engine-onnx.so", "lib/weir/weir-engine-llm.so"}
GGUF = "lib/weir/weir-engine-gguf.so"
SCRIPTS = {"weir-engines": "engines", **{name: name for name in ("store.py", "pins.json", "cuda_trim.py", "llama_cuda.py")}}
MACHINES = {"x86_64": 62, "aarch64": 183}  # in ELF's words
PROGRAMS = {"bin/weir", "bin/weir-sim", "bin/weir-bench"}


def setUpModule():
    global WHEEL
    if len(GIVEN):
        WHEEL = Path(GIVEN[0])
        return
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    done = subprocess.run([ROOT / "scripts/wheel", "--check", *ARCH, "--out", folder.name], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    print(done.stdout)
    if done.returncode:
        raise AssertionError("scripts/wheel failed")
    [WHEEL] = Path(folder.name).iterdir()


class Wheel(unittest.TestCase):
    def setUp(self):
        self.archive = zipfile.ZipFile(WHEEL)
        self.addCleanup(self.archive.close)
        self.name, self.version, self.tag = WHEEL.stem.split("-", 2)
        self.info = f"weir-{self.version}.dist-info"
        self.names = self.archive.namelist()

    def text(self, name):
        return self.archive.read(name).decode()

    def elf_files(self):
        return {name: data for name in self.names if (data := self.archive.read(name))[:4] == b"\x7fELF"}

    def test_the_package_is_whole(self):
        sources = {f"weir/{path.relative_to(ROOT / 'python/weir')}" for path in (ROOT / "python/weir").rglob("*")
                   if path.suffix == ".py" or path.name == "py.typed"}
        inside = {name for name in self.names if name.startswith("weir/")}
        files = {**{name: ROOT / "python" / name for name in sources}, **{f"weir/scripts/{name}": ROOT / "scripts" / source
                                                                        for name, source in SCRIPTS.items()}}
        self.assertEqual(set(files), inside - set(self.elf_files()))
        for name, source in files.items():
            self.assertEqual(source.read_bytes(), self.archive.read(name), name)

    def test_what_is_compiled_is_the_same_for_every_machine_and_no_engine(self):
        carried = [name for name in self.elf_files() if re.fullmatch(r"weir/lib/lib(jansson|nettle)\.so\.\d+", name)]
        self.assertEqual(2, len(carried), carried)
        llama = Path(os.environ.get("WEIR_HOME") or "/nonexistent", "engines/llama/current/include/llama.h").exists()
        compiled = {f"weir/{name}" for name in LIBRARIES | PROGRAMS | ({GGUF} if llama else set())}
        self.assertEqual(compiled, set(self.elf_files()) - set(carried))

    def test_every_file_is_for_the_machine_of_the_tag(self):
        machine = next(name for name in MACHINES if self.tag.endswith(name))
        self.assertEqual({MACHINES[machine]}, {int.from_bytes(data[18:20], "little") for data in self.elf_files().values()})
        if ARCH:
            self.assertEqual("aarch64", machine)

    def test_messages_name_the_command_of_the_wheel(self):
        for name, data in self.elf_files().items():
            for place in (b"../scripts/weir-engines", b"/../scripts/engines", b"/weir/scripts/engines"):  # where weir engines get looks
                data = data.replace(place, b"")
            for other in (b"scripts/engines", b"weir-engines"):
                self.assertNotIn(other, data, name)

    def test_the_record_lists_every_file_once(self):
        rows = list(csv.reader(self.text(f"{self.info}/RECORD").splitlines()))
        self.assertEqual(sorted(self.names), sorted(row[0] for row in rows))
        self.assertEqual(len(set(self.names)), len(self.names))
        for name, digest, size in rows:
            if name == f"{self.info}/RECORD":
                self.assertEqual(("", ""), (digest, size))
                continue
            data = self.archive.read(name)
            known = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.assertEqual((f"sha256={known}", str(len(data))), (digest, size), name)

    def test_the_tag_is_that_of_what_the_files_ask_for(self):
        wheel = self.text(f"{self.info}/WHEEL")
        self.assertEqual([self.tag], re.findall(r"^Tag: (.+)$", wheel, re.M))
        self.assertIn("Root-Is-Purelib: false\n", wheel)
        least = re.fullmatch(r"py3-none-manylinux_2_(\d+)_(x86_64|aarch64)", self.tag)
        self.assertTrue(least, self.tag)
        asked = {int(minor) for data in self.elf_files().values() for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=\0|\.)", data)}
        self.assertEqual(int(least.group(1)), max(asked))

    def test_the_versions_are_one(self):
        cmake = re.search(r"project\(weir VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual(cmake, self.version)
        self.assertEqual([self.version], re.findall(r"^Version: (.+)$", self.text(f"{self.info}/METADATA"), re.M))
        minor = ".".join(self.version.split(".")[:2])
        self.assertIn(f'VERSION = "{minor}"', self.text("weir/_c/library.py"))
        self.assertIn(f"weir/lib/libweir.so.{minor}", self.names)
        self.assertIn(f"\0{self.version}\0".encode(), self.archive.read(f"weir/lib/libweir.so.{minor}"))

    def test_libweir_can_be_opened_late(self):
        """Its thread-local storage is small and of no static kind: what is left for libraries that come late is a kilobyte or two."""
        with tempfile.TemporaryDirectory() as folder:
            for name in self.elf_files():
                path = self.archive.extract(name, folder)
                told = subprocess.run(["readelf", "-lWd", path], text=True, check=True, capture_output=True).stdout
                self.assertNotIn("STATIC_TLS", told, name)
                sizes = [int(line.split()[5], 16) for line in told.splitlines() if line.split()[:1] == ["TLS"]]
                self.assertLessEqual(sum(sizes), 1024, name)

    def test_nothing_names_the_build_machine(self):
        for name, data in self.elf_files().items():
            for folder in (str(ROOT), os.path.expanduser("~") + "/", os.environ.get("WEIR_HOME") or str(ROOT)):
                self.assertNotIn(folder.encode(), data, name)

    def test_files_find_each_other_relative_to_themselves(self):
        wanted = {"bin": "$ORIGIN/../lib", "weir": "$ORIGIN/.."}
        with tempfile.TemporaryDirectory() as folder:
            for name in self.elf_files():
                path = Path(self.archive.extract(name, folder))
                paths = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", subprocess.run(["readelf", "-dW", path], text=True, check=True,
                                                                             capture_output=True).stdout)
                alone = re.search(r"lib(weir|jansson|nettle)\.so", name)
                self.assertEqual([] if alone else [wanted.get(path.parent.name, "$ORIGIN")], paths, name)
                sections = subprocess.run(["readelf", "-SW", path], text=True, check=True, capture_output=True).stdout
                self.assertNotIn(".debug_info", sections, name)
                self.assertNotIn(".symtab", sections, name)

    def test_programs_can_be_executed_and_licences_are_there(self):
        scripts = {f"weir-{self.version}.data/scripts/{name}" for name in ("weir", "weir-engines")}
        self.assertEqual(scripts, {name for name in self.names if ".data/" in name})
        for script in scripts:
            self.assertTrue(self.text(script).startswith("#!python\n"))  # which an installer replaces by its Python
        for name in (*(f"weir/{program}" for program in PROGRAMS), *scripts):
            self.assertEqual(0o755, self.archive.getinfo(name).external_attr >> 16 & 0o777, name)
        listed = re.findall(r"^License-File: (.+)$", self.text(f"{self.info}/METADATA"), re.M)
        held = {name.rsplit("/", 1)[1] for name in self.names if name.startswith(f"{self.info}/licenses/")}
        self.assertEqual({"LICENSE", "jansson", "nettle", "libarchive", "zlib", "nanopb"}, held)
        self.assertEqual(held, set(listed))
        [expression] = re.findall(r"^License-Expression: (.+)$", self.text(f"{self.info}/METADATA"), re.M)
        self.assertEqual({"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "LGPL-3.0-or-later", "GPL-2.0-or-later"},
                         set(re.findall(r"[\w.-]+", expression)) - {"AND", "OR"})


GIVEN = [word for word in sys.argv[1:] if word.endswith(".whl")]
ARCH = ["--arch", "arm64"] if "--arch" in sys.argv else []

if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word not in (*GIVEN, *ARCH)])
