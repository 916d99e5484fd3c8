"""What the tests of watching share: a process that does what it is told, and its socket."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["WEIR_TEST_BINARY"])
STUB = BUILD / "stub/cuda"
needs_the_stub = unittest.skipUnless((STUB / "libcuda.so.1").exists(), "needs the stub of CUDA")
SANITIZED = os.environ.get("WEIR_TEST_SANITIZE", "")
MIB = 1 << 20
SECONDS = int(os.environ.get("S", 600))  # for what has to come; nothing is measured


class Watched:
    """The program watched.c."""

    def __init__(self, runtime_folder, *words, watch="1", **more):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("WEIR_")}
        environment.update({"XDG_RUNTIME_DIR": str(runtime_folder), "WEIR_BUDGET": "1GiB", "WEIR_WATCH": watch, "WEIR_LOG": "error", "WEIR_SERVER": ""})
        environment.update(more)
        self.folder = Path(runtime_folder) / "weir"
        self.errors = tempfile.TemporaryFile("w+")  # not a pipe, which a child would keep open
        self.process = subprocess.Popen([BUILD / "tests/watched", *map(str, words)], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.pid = self.process.pid
        self.said = ""

    @property
    def socket(self):
        return self.folder / f"{self.pid}.sock"

    def tell(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def do(self, *words):
        answer = self.tell(*words)
        assert answer == "WEIR_OK", (words, answer)

    def json(self, *words):
        return json.loads(self.tell(*words))

    def end(self):
        """Its exit status; what it has said on standard error is in `said`."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        status = self.process.wait(SECONDS)
        self.process.stdout.close()
        self.errors.seek(0)
        self.said = self.errors.read()
        self.errors.close()
        return status

    def kill(self):
        self.process.kill()
        self.end()


def connected(path):
    """A connection. Paths of sockets are short, so it is made from within the folder."""
    connection = socket.socket(socket.AF_UNIX)
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(folder)
    connection.settimeout(SECONDS)  # now, as with one nobody waits for a place in the queue
    return connection


def received(connection):
    """All that comes, until the other side is gone."""
    text = b""
    while True:
        try:
            more = connection.recv(1 << 16)
        except ConnectionResetError:  # it had not read all that it was sent
            return text
        if not more:
            return text
        text += more


def asked(path, request=b"stats\n"):
    with connected(path) as connection:
        connection.sendall(request)
        text = received(connection)
    assert text.endswith(b"\n") and text.count(b"\n") == 1, text
    return json.loads(text)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-watch-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.watched = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.watched:
            if process.process.poll() is None:
                process.process.kill()
                process.end()

    def started(self, *words, folder=None, **environment):
        process = Watched(folder or self.folder, *words, **environment)
        self.watched.append(process)
        return process

    def ended(self, process, said=""):
        """It ends in good order, and has complained of nothing else."""
        self.assertEqual(process.end(), 0, process.said)
        self.assertIn(said, process.said)
        if not said:
            self.assertEqual(process.said, "")

    def all_ended(self, processes):
        """The same of many, which end beside one another: each may take a while."""
        for process in processes:
            process.process.stdin.close()
        for process in processes:
            self.ended(process)

    def on_the_stub(self, *words, **environment):
        """On a device of 256 MiB, of which a client that may leave has 40 and one that may not has 20."""
        process = self.started(*words, LD_LIBRARY_PATH=str(STUB), STUB_CUDA_TOTAL=str(256 * MIB), **environment)
        process.do("get", "cuda:0")
        process.do("client", "idle", 0)
        process.do("client", "busy", 0)
        process.do("alloc", 0, 40 * MIB, 1)
        process.do("alloc", 1, 20 * MIB, 1)
        process.do("idle", 0)
        return process

    def with_two_clients(self, **environment):
        """One with two clients, of which one was refused something."""
        process = self.started(**environment)
        process.do("get", "host")
        process.do("client", "bert", 64 * MIB)
        process.do("client", "llama", 0)
        process.do("alloc", 0, 8 * MIB, 1)
        process.do("alloc", 0, 3 * MIB + 1, 2)
        process.do("alloc", 1, 20 * MIB, 4)
        process.do("alloc", 1, 700, 0)
        process.do("free", 1)
        self.assertTrue(process.tell("alloc", 0, 100 * MIB, 3).startswith("WEIR_ERR_OUT_OF_MEMORY"))
        return process


def main():
    """Runs the calling file's tests; says at the end how many, as cmocka's programs do."""
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stderr).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    for kind, count in (("PASSED ", max(0, result.testsRun - bad - skipped)), ("SKIPPED", skipped), ("FAILED ", bad)):
        if count:
            print(f"[  {kind} ] {count} test(s).")
    sys.exit(1 if bad else 0)
