#!/usr/bin/env python3
"""Every pin in the way in which it is fetched, on every machine that it is for: pip itself takes a small file of the pinned
name from a folder, without a network.

Run with any python3: python3 tests/scripts/test_pins.py
"""

import copy
import io
import os
import re
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True

import store as st  # noqa: E402

MACHINES = ("x86_64", "aarch64")
PINS = st.pins()
# What the value of an option of pip's may be, and nothing else is an option here.
VALUES = {"--python-version": r"\d+\.\d+(\.\d+)?", "--implementation": r"py|cp|pp", "--abi": r"none|abi3|cp\d+",
          "--platform": r"(manylinux\d*|musllinux)(_\d+_\d+)?_(x86_64|aarch64)", "--only-binary": r":all:", "--no-binary": r":all:"}
ALONE = {"--no-build-isolation"}


class Quiet:
    terminal = False

    def say(self, *_):
        pass

    clear = progress = say


def metadata(pin):
    return f"Metadata-Version: 2.1\nName: {pin['project']}\nVersion: {pin['version']}\n"


def plant(folder, pin, name):
    """A file of the pinned name that pip takes for what the name says."""
    if not name.endswith(".whl"):
        inside = name[: -len(".tar.gz")]
        with tarfile.open(folder / name, "w:gz") as tar:
            for path, text in ((f"{inside}/PKG-INFO", metadata(pin)),
                               (f"{inside}/pyproject.toml", '[build-system]\nrequires = ["nothing-that-exists"]\n'
                                                            'build-backend = "scikit_build_core.build"\n')):
                member = tarfile.TarInfo(path)
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
        return
    words = name[: -len(".whl")].split("-")
    inside = "-".join(words[:2]) + ".dist-info"
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr(f"{inside}/METADATA", metadata(pin))
        archive.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: " + "-".join(words[-3:]) + "\n")
        archive.writestr(f"{inside}/RECORD", "")


def every_file():
    """(pin's name, machine, file) of everything that pip fetches."""
    for name, pin in PINS.items():
        if "pool" in pin:
            continue
        for machine in MACHINES:
            file = pin["files"].get("any") or pin["files"].get(machine)
            if file:
                yield name, machine, file


class Commands(unittest.TestCase):
    def test_every_machine_of_a_pin_is_one_that_exists(self):
        for name, pin in PINS.items():
            self.assertTrue(pin["files"], name)
            self.assertLessEqual(set(pin["files"]), {"any", *MACHINES}, name)

    def test_options_are_whole(self):
        for name, machine, file in every_file():
            with self.subTest(name=name, machine=machine):
                words = st.download_words(file["name"])
                while words:
                    option, *words = words
                    if option in ALONE:
                        continue
                    self.assertIn(option, VALUES)
                    self.assertTrue(words, f"{option} has no value")
                    self.assertTrue(re.fullmatch(VALUES[option], words[0]), f"{option} {words[0]!r}")
                    words = words[1:]

    def test_platforms_are_of_the_machine(self):
        for name, machine, file in every_file():
            with self.subTest(name=name, machine=machine):
                words = st.download_words(file["name"])
                platforms = [words[i + 1] for i, word in enumerate(words) if word == "--platform"]
                self.assertEqual("any" in PINS[name]["files"], not platforms)
                for platform in platforms:
                    self.assertTrue(platform.endswith("_" + machine), platform)

    def test_pip_takes_every_pin(self):
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder) / "index"
            index.mkdir()
            planted = copy.deepcopy(PINS)
            for name, pin in planted.items():
                for file in pin["files"].values() if "pool" not in pin else ():
                    plant(index, pin, file["name"])
                    file.update(sha256=st.sha256_of(index / file["name"]), size=1)
            offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
            for name, machine, file in every_file():
                home = Path(folder) / machine
                with self.subTest(name=name, machine=machine), mock.patch.object(st, "pins", return_value=planted), \
                        mock.patch.object(st, "machine", return_value=machine), mock.patch.dict(os.environ, offline):
                    try:
                        store = st.Store(home, Quiet())
                        with store.lock():
                            got = store.fetch(name)
                    except st.Failed as error:
                        log = home / "logs" / f"download-{name}.log"
                        self.fail(f"{error}\n{log.read_text()}")
                    self.assertEqual(got, home / "downloads" / file["name"])
                    self.assertEqual(st.sha256_of(got), st.sha256_of(index / file["name"]))

    @unittest.skipUnless(st.APT_HELPER.exists(), "apt is not here")
    def test_apt_takes_what_is_debians(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, pin in PINS.items():
                if "pool" not in pin:
                    continue
                planted = {name: copy.deepcopy(pin)}
                file = planted[name]["files"]["any"]
                there = Path(folder) / pin["pool"] / file["name"]
                there.parent.mkdir(parents=True)
                there.write_text("what Debian has")
                file.update(sha256=st.sha256_of(there), size=1)
                with mock.patch.object(st, "pins", return_value=planted), mock.patch.object(st, "debian_mirror", return_value=f"file://{folder}/"):
                    store = st.Store(Path(folder) / "home", Quiet())
                    with store.lock():
                        self.assertEqual(store.fetch(name).read_text(), "what Debian has")
                        there.write_text("something else")
                        (store.path("downloads") / file["name"]).unlink()
                        with self.assertRaisesRegex(st.Failed, "cut off, or with another hash"):
                            store.fetch(name)


if __name__ == "__main__":
    unittest.main()
