"""What is beside the command for those who run it as a service: the unit of systemd, the container file, their configurations."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

import harness

PACKAGING = harness.SOURCE / "packaging"


class Unit(harness.Case):
    def setUp(self):
        super().setUp()
        self.unit = configparser.ConfigParser(strict=False, interpolation=None)
        self.unit.optionxform = str
        self.unit.read(PACKAGING / "weir.service")

    def test_it_calls_what_there_is(self):
        help_text = self.weir("serve", "--help")[0]
        start = shlex.split(self.unit["Service"]["ExecStart"])
        self.assertEqual(["weir", "serve"], start[:2])
        for option in (word for word in start if word.startswith("--")):
            self.assertRegex(help_text, rf"(?m)^  {option} ")
        self.assertEqual(["weir", "check", start[-1]], shlex.split(self.unit["Service"]["ExecStartPre"]))
        drain = int(re.search(r"--drain .*\(default: (\d+)\)", " ".join(help_text.split())).group(1))
        self.assertGreater(int(self.unit["Service"]["TimeoutStopSec"]), drain)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not here")
    def test_systemd_takes_it(self):
        text = (PACKAGING / "weir.service").read_text()
        self.write("weir.service", re.sub(r"(?m)^(Exec\w+)=weir ", rf"\1={shutil.which('true')} ", text))
        answer = subprocess.run(["systemd-analyze", "verify", self.folder / "weir.service"], text=True, capture_output=True)
        self.assertEqual((0, ""), (answer.returncode, answer.stderr))


class Configurations(harness.Case):
    def test_they_are_good(self):
        for name in ("weir.json", "container.json"):
            content = json.loads((PACKAGING / name).read_text())
            content["folders"] = [str(self.folder)]
            self.write(name, json.dumps(content))
            self.assertEqual(f"{name} is good\n", self.weir("check", name)[0])


class Container(unittest.TestCase):
    def setUp(self):
        text = (PACKAGING / "Containerfile").read_text().replace("\\\n", " ")
        self.lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]

    def of(self, instruction):
        return [rest for word, rest in self.lines if word == instruction]

    def test_what_it_copies_is_there(self):
        copied = [rest.split() for rest in self.of("COPY") if not rest.startswith("--from")]
        self.assertEqual(2, len(copied))
        for words in copied:
            self.assertTrue((harness.SOURCE / words[0]).exists(), words)
        for script in re.findall(r"/source/(\S+)", " ".join(self.of("RUN"))):
            self.assertTrue(os.access(harness.SOURCE / script, os.X_OK), script)

    def test_it_has_what_a_build_needs(self):
        """All that scripts/deps looks for, but what the tests alone need."""
        needed = re.findall(r"^ {8}(?:command|library|file)_of \S+ (\S+)$", (harness.SOURCE / "scripts/deps").read_text().split("lint)")[0], re.M)
        self.assertGreater(len(needed), 10)
        installed = self.of("RUN")[0].split()
        self.assertEqual([], [name for name in needed if name not in installed and name != "libcmocka-dev"])

    def test_it_serves_where_it_says(self):
        port = json.loads((PACKAGING / "container.json").read_text())["port"]
        self.assertEqual([str(port)], self.of("EXPOSE"))
        health = json.loads(self.of("HEALTHCHECK")[0].split("CMD ", 1)[1])
        self.assertIn(f"/{port} ", health[2])
        self.assertEqual(["weir"], json.loads(self.of("ENTRYPOINT")[0]))
        command = json.loads(self.of("CMD")[0])
        self.assertIn(f"COPY packaging/container.json {command[-1]}", (PACKAGING / "Containerfile").read_text())


if __name__ == "__main__":
    unittest.main()
