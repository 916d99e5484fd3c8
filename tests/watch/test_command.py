"""weir ps and weir top: what they print, and what becomes of the terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from pathlib import Path

import common
from common import MIB, SECONDS

COMMAND = common.BUILD / "bin/weir"
TAKEN, GIVEN = b"\x1b[?1049h", b"\x1b[?1049l"


def columns_of(text):
    """Of a terminal: two of an East Asian character, none of an accent."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class Screen:
    """weir top in a terminal of so many rows and columns. Knows of a terminal's sequences what weir sends."""

    def __init__(self, environment, *words, rows=24, columns=100, keys=True):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([COMMAND, "top", *map(str, words)], env={**environment, "TERM": "xterm"},
                                        stdin=self.slave if keys else subprocess.DEVNULL,
                                        stdout=self.slave, stderr=subprocess.PIPE, preexec_fn=self.lead)
        self.sent = b""

    def lead(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """What has come by now, or comes soon; False: nothing."""
        if not select.select([self.master], [], [], 0.05)[0]:
            return False
        try:
            self.sent += os.read(self.master, 1 << 16)
        except OSError:
            return False
        return True

    def shown(self):
        """The rows, from the last frame that is whole; [] if there is none."""
        frames = self.sent.split(b"\x1b[H")[1:]
        if frames and (GIVEN in frames[-1] or not self.is_whole(frames[-1])):
            frames.pop()
        if len(frames) < 2:  # the first one clears the screen
            return []
        text = frames[-1].decode()
        rows = re.split(r"\r+\n", text)
        return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", row) for row in rows]

    def is_whole(self, frame):
        """The last row is that of the keys, or the only one."""
        return frame.endswith(b"\x1b[K") and (self.rows == 1 or frame.count(b"\n") == self.rows - 1)

    def until(self, condition):
        """Reads until the rows are so, which has to come."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            rows = self.shown()
            if rows and condition(rows):
                return rows
            self.read()
        raise AssertionError("\n".join(self.shown()))

    def until_it_has(self, *texts):
        return self.until(lambda rows: all(any(text in row for row in rows) for text in texts))

    def press(self, keys):
        os.write(self.master, keys)

    def end(self):
        """(exit status, what it said on standard error); everything that it sent is in `sent`."""
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        if self.process.poll() is None:
            self.process.kill()
        while self.read():
            pass
        error = self.process.stderr.read().decode()
        self.process.stderr.close()
        return self.process.wait(), error

    def is_restored(self):
        """The keys as they were, the first screen, the cursor, long lines."""
        last = self.sent.rfind(GIVEN)
        return (termios.tcgetattr(self.slave) == self.before and last > self.sent.rfind(TAKEN) and
                self.sent.rfind(b"\x1b[?25h") > self.sent.rfind(b"\x1b[?25l") and
                self.sent.rfind(b"\x1b[?7h") > self.sent.rfind(b"\x1b[?7l"))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.end()
        os.close(self.master)
        os.close(self.slave)


class Command(common.Case):
    def environment(self, **more):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("WEIR_", "LC_")) and key != "NO_COLOR"}
        kept.update({"XDG_RUNTIME_DIR": str(self.folder), "LC_ALL": "C.UTF-8"})
        kept.update(more)
        return kept

    def weir(self, *words, status=0, **more):
        done = subprocess.run([COMMAND, *map(str, words)], env=self.environment(**more), timeout=SECONDS, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, status, done)
        self.error = done.stderr.decode()
        return done.stdout.decode()

    def processes(self, *words):
        """Those of this test: others of the user may be watched in the other place."""
        own = {process.pid for process in self.watched}
        return [p for p in json.loads(self.weir("ps", "--json", *words))["processes"] if p["pid"] in own]

    def rows(self, process):
        """Its rows in the table, by their columns. The name has no blanks."""
        rows = [re.split(r"  +", row.strip()) for row in self.weir("ps").splitlines()]
        return [row for row in rows if row[0] == str(process.pid)]

    def screen(self, *words, rows=24, columns=100, **more):
        screen = Screen(self.environment(**more), *words, rows=rows, columns=columns)
        self.addCleanup(screen.close)
        return screen


class Guide(Command):
    """What docs/guide/watch.md shows, as it is written. A process of the tests stands for the models of `weir run`, whose command has a
    folder of its own in PATH, and for process 4711; where there is no socat, a few lines of Python are that."""

    SOCAT = """import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[2].partition(":")[2])
    connection.sendall(sys.stdin.buffer.read())
    connection.shutdown(socket.SHUT_WR)
    print(connection.makefile().read(), end="")
"""

    def setUp(self):
        super().setUp()
        self.page = (Path(__file__).resolve().parents[2] / "docs/guide/watch.md").read_text()
        self.blocks = [(kind, text.splitlines()) for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", self.page, re.M | re.S)]
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "weir").write_text(f'#!/bin/sh\ntest "$1" = run && echo "$WEIR_WATCH" "$@" >{self.folder}/ran && exit\nexec {COMMAND} "$@"\n')
        (programs / "socat").write_text(f"#!{sys.executable}\n{self.SOCAT}")
        for program in programs.iterdir():
            program.chmod(0o755)
        self.path = f"{programs}{os.pathsep}{os.environ['PATH']}"

    def given(self, line):
        done = subprocess.run(["sh", "-euc", line], env=self.environment(PATH=self.path, WEIR_SERVER=""), timeout=SECONDS, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return done.stdout

    def test_its_first_commands(self):
        process = self.with_two_clients()
        commands = next(lines for kind, lines in self.blocks if kind == "sh")
        self.given(f"{commands[0]}\nwait")
        self.assertEqual((self.folder / "ran").read_text(), "1 run minilm.onnx minilm.gguf --repeat 1000\n")
        listed, once = map(self.given, commands[1:])
        shown = next(lines for kind, lines in self.blocks if not kind and lines[0].split()[:2] == ["pid", "command"])
        self.assertEqual(listed.splitlines()[0].split(), shown[0].split())
        self.assertRegex(listed, rf"(?m)^ *{process.pid} ")
        top = next(lines for kind, lines in self.blocks if not kind and lines[0].startswith("weir top "))
        headings = next(line.split() for line in top if line.split()[:2] == ["client", "live"])
        self.assertIn(str(process.pid), once)
        self.assertEqual([word for word in headings if word not in once], [])

    def test_its_protocol(self):
        process = self.with_two_clients()
        line = next(lines[0] for kind, lines in self.blocks if kind == "sh" and "socat" in lines[0])
        answer = json.loads(self.given(line.replace("4711", str(process.pid))))
        self.assertEqual(answer["pid"], process.pid)
        keys = set(re.findall(r"`(\w+)(?:\[\])?`", " ".join(re.findall(r"(?m)^\| (`[^|]*)\|", self.page[self.page.index("| key | is |"):]))))
        self.assertEqual(keys - {"clients", "layout"}, set(answer))
        self.assertIn("clients", answer["runtimes"][0])


@common.needs_the_stub
class Yields(Command):
    def test_a_process_gives(self):
        process = self.on_the_stub()
        said = self.weir("yield", "220MiB", process.pid)
        self.assertRegex(said, rf"^{process.pid} cuda:0: gave [0-9.]+ MiB \([^)]*of idle clients\); [0-9.]+ MiB are free\n$")
        runtime, = json.loads(self.weir("yield", "230MiB", process.pid, "--device", "cuda:0", "--hold", 60, "--json"))["processes"][0]["runtimes"]
        self.assertEqual((runtime["asked"], runtime["lacks"]), (230 * MIB, 0))
        self.ended(process)

    def test_what_cannot_be_given(self):
        process = self.on_the_stub()
        said = self.weir("yield", "250MiB", process.pid, status=1)
        self.assertRegex(said, r"lacking [0-9.]+ MiB: it keeps 20 MiB in use")
        self.assertIn("has nothing on that device", self.weir("yield", "1MiB", process.pid, "--device", "cuda:7", status=1))
        self.ended(process)

    def test_clients_are_moved_by_name(self):
        process = self.on_the_stub()
        self.assertEqual(self.weir("suspend", "idle", "--process", process.pid), "idle on cuda:0: 40 MiB have left\n")
        self.assertIn("suspended already", self.weir("suspend", "idle", "--process", process.pid, status=1))
        self.assertEqual(self.weir("resume", "idle", "--process", process.pid), "idle on cuda:0: 40 MiB came back\n")
        answer, = json.loads(self.weir("suspend", "idle", "--process", process.pid, "--json"))["processes"]
        self.assertEqual(answer["pid"], process.pid)
        self.weir("suspend", "busy", "--process", process.pid, status=1)
        self.assertIn("no idle client 'busy'", self.error)
        self.weir("suspend", "idle", "--process", 2 ** 31 - 1, status=1)
        self.assertIn("does not answer", self.error)
        self.ended(process)

    def test_one_after_the_other(self):
        first, second = self.on_the_stub(), self.on_the_stub()
        found = json.loads(self.weir("yield", "200MiB", "--json"))["processes"]
        own = [process["pid"] for process in found if process["pid"] in (first.pid, second.pid)]
        self.assertEqual(sorted(own), sorted((first.pid, second.pid)))
        self.all_ended([first, second])

    def test_bad_usage(self):
        for words in ((), ("8GiBs",), ("1GiB", "x"), ("1GiB", 1, 2), ("1GiB", "--hold", "0")):
            self.weir("yield", *words, status=2)
        self.weir("yield", "1GiB", 2 ** 31 - 1, status=1)
        self.assertIn("cannot be watched", self.error)


class Lists(Command):
    def test_a_process_exactly(self):
        process = self.with_two_clients()
        own = process.json("snapshot", 0)
        found, = self.processes()
        self.assertTrue(found["answers"])
        runtime, = found["runtimes"]
        self.assertEqual({key: runtime[key] for key in own}, own)
        self.assertEqual(set(runtime) - set(own), {"device", "own", "resource"})
        self.assertEqual(self.rows(process), [[str(process.pid), str(common.BUILD / "tests/watched")[:40], "host", "1 GiB", "28 MiB",
                                               "31.1 MiB", "31 MiB", "2", "1"]])
        self.ended(process)

    def test_a_suspended_client(self):
        process = self.with_two_clients()
        self.assertNotIn("away", self.weir("ps"))
        process.do("suspend", 0)
        own = process.json("snapshot", 0)
        runtime = self.processes()[0]["runtimes"][0]
        self.assertEqual({key: runtime[key] for key in own}, own)
        bert, llama = runtime["clients"]
        self.assertEqual((bert["away"], bert["live"], bert["residency"]), (8 * MIB, 0, "suspended"))
        self.assertEqual((llama["away"], llama["residency"], runtime["away"]), (0, "resident", 8 * MIB))
        self.assertRegex(self.weir("ps").splitlines()[0], r"held +peak +away +clients")
        self.assertEqual(self.rows(process)[0][6:], ["31 MiB", "8 MiB", "2", "1"])
        process.do("resume", 0)
        self.assertEqual(self.processes()[0]["runtimes"][0]["clients"][0]["residency"], "resident")
        self.assertEqual(self.rows(process)[0][6:], ["31 MiB", "2", "1"])
        self.ended(process)

    def test_cores(self):
        process = self.started(WEIR_CORES="4")
        process.do("get", "host")
        process.do("cores", "llama", 0)
        self.assertNotIn("cores of ", self.weir("ps"))
        process.do("cores", "bert", 3)
        self.assertIn(f"cores of {process.pid}: 4, 3 leased, 0 waiting; bert computes with 3\n", self.weir("ps"))
        self.assertEqual(3, self.processes()[0]["cores"]["leased"])
        self.ended(process)

    def test_layout(self):
        process = self.with_two_clients()
        self.assertEqual(self.processes("--layout")[0]["runtimes"][0]["layout"], process.json("layout", 0))
        self.assertNotIn("layout", self.processes()[0]["runtimes"][0])
        self.ended(process)

    def test_format(self):
        process = self.with_two_clients()
        self.assertEqual(json.loads(self.weir("ps", "--format", "json")), json.loads(self.weir("ps", "--json")))
        self.assertEqual(self.weir("ps", "--format", "table"), self.weir("ps"))
        self.weir("ps", "--format", "xml", status=2)
        self.assertIn("json or table", self.error)
        self.ended(process)

    def test_a_row_for_each_device_and_one_without(self):
        process = self.started()
        process.do("own", "host")
        process.do("own", "host")
        self.assertEqual(len(self.rows(process)), 2)
        process.do("drop", 0)
        process.do("drop", 1)
        self.assertEqual(self.rows(process)[0][2:], ["none"])
        self.ended(process)

    def test_sockets_of_the_dead_are_removed(self):
        dead, alive = [self.with_two_clients() for _ in range(3)], self.with_two_clients()
        for process in dead:
            process.kill()
        (alive.folder / "99999999.sock").write_text("no socket")
        (alive.folder / "notes").write_text("of the user's")
        early = common.socket.socket(common.socket.AF_UNIX)
        early.bind(str(alive.folder / f"{dead[0].pid}.new"))
        early.close()
        self.assertEqual([p["pid"] for p in self.processes()], [alive.pid])
        self.assertEqual({p.name for p in alive.folder.iterdir()}, {alive.socket.name, "99999999.sock", "notes"})
        self.ended(alive)

    def test_one_that_does_not_answer(self):
        stopped, alive = self.with_two_clients(), self.with_two_clients()
        stopped.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)  # all of its threads
        found = {p["pid"]: p for p in self.processes()}
        self.assertEqual((found[stopped.pid]["answers"], found[stopped.pid]["runtimes"]), (False, []))
        self.assertEqual(found[stopped.pid]["command"], str(common.BUILD / "tests/watched"))
        self.assertTrue(found[alive.pid]["answers"])
        self.assertEqual(self.rows(stopped)[0][2:], ["does not answer"])
        self.assertTrue(stopped.socket.exists())
        stopped.process.send_signal(signal.SIGCONT)
        self.assertEqual(len(self.processes()[0]["runtimes"]), 1)
        self.ended(stopped)
        self.ended(alive)

    def test_hostile_answers(self):
        folder = self.folder / "weir"
        folder.mkdir(mode=0o700)
        self.assertEqual(self.processes(), [])
        for answer in (b"", b"x\n", b"[]\n", b"{}\n", b'{"runtimes": 1}\n', b'{"runtimes": [1]}\n', b'{"runtimes": [{"clients": [[]]}]}\n',
                       b"[" * 100000 + b"\n", b"x" * (3 << 20), b'{"runtimes": [{"clients": []}]}'):
            with self.subTest(answer=answer[:20]), common.socket.socket(common.socket.AF_UNIX) as server:
                server.bind(str(folder / "7.sock"))
                server.listen(1)
                asking = subprocess.Popen([COMMAND, "ps", "--json"], env=self.environment(), stdout=subprocess.PIPE)
                connection = server.accept()[0]
                self.assertEqual(connection.recv(100), b"stats\n")
                try:
                    connection.sendall(answer)
                except OSError:
                    pass
                connection.close()
                found = [p for p in json.loads(asking.communicate(timeout=SECONDS)[0])["processes"] if p["pid"] == 7]
                self.assertEqual([(p["answers"], p["runtimes"]) for p in found], [(False, [])])
                (folder / "7.sock").unlink()

    def test_hostile_names_do_not_reach_the_terminal(self):
        process = self.started()
        process.do("get", "host")
        process.do("client", "\x1b[31mred\x07", 0)
        for words in (["ps"], ["top", process.pid, "--once"]):
            self.assertNotIn("\x1b", self.weir(*words))
            self.assertNotIn("\x07", self.weir(*words))
        self.ended(process)

    def test_nobody_there(self):
        self.assertEqual(self.processes(), [])
        self.weir("top", 4194303, status=1)
        self.assertIn("process 4194303 cannot be watched", self.error)
        self.assertIn("cannot be watched", json.loads(self.weir("top", 4194303, "--json", status=1))["error"]["detail"])

    def test_a_folder_that_is_not_the_users_alone_is_said(self):
        (self.folder / "weir").mkdir(mode=0o750)
        if os.path.exists(f"/tmp/weir-{os.getuid()}") and os.listdir(f"/tmp/weir-{os.getuid()}"):
            self.skipTest("the other place has processes")
        self.weir("ps", status=1)
        self.assertIn("can be entered by others: its mode is 750", self.error)

    def test_a_hundred_processes(self):
        processes = [self.started() for _ in range(100)]
        for i, process in enumerate(processes):
            process.do("get", "host")
            process.do("client", f"client-{i}", 0)
            process.do("alloc", 0, (i + 1) * 4096, 1)
        found = {p["pid"]: p for p in self.processes()}
        for i, process in enumerate(processes):
            runtime, = found[process.pid]["runtimes"]
            self.assertEqual((runtime["live"], runtime["clients"][0]["name"]), ((i + 1) * 4096, f"client-{i}"))
        for process in processes[:70]:
            process.kill()
        self.assertEqual(len(self.processes()), 30)
        self.assertEqual(len(list(processes[0].folder.iterdir())), 30)
        self.all_ended(processes[70:])

    def test_bad_words(self):
        for words, said in ((["ps", "1"], "'1'"), (["top", "x"], "'x'"), (["top", "0"], "'0'"), (["top", "1", "2"], "one process"),
                            (["top", "--interval", "0"], "100ms"), (["top", "--interval", "1h"], "100ms"),
                            (["top", "--interval", "nan"], "100ms"),
                            (["top", "--interval", "-1s"], "100ms"), (["top", "--format", "x"], "json or screen")):
            with self.subTest(words=words):
                self.weir(*words, status=2)
                self.assertIn(said, self.error)


class Plain(Command):
    def test_without_a_terminal_there_is_one_look(self):
        process = self.with_two_clients()
        for words, more in (([], {}), (["--once"], {}), ([], {"TERM": "dumb"})):
            out = self.weir("top", process.pid, *words, **more)
            self.assertIn(f"({process.pid})\nhost  budget 1 GiB  live 28 MiB  pending 0 B  held 31.1 MiB  peak 31 MiB  refusals 1\n", out)
            self.assertRegex(out, r"llama +20 MiB  █+  20 MiB +1 GiB +0 +- +- +- +20 MiB +768 B")
            self.assertRegex(out, r"bert +8 MiB  █+[▏▎▍▌▋▊▉]? +11 MiB +64 MiB +1 +8 MiB +- +- +- +-")
            self.assertLess(out.index("llama"), out.index("bert"))
            self.assertRegex(out, r"kv +20 MiB  █+\n")
            self.assertIn("3 % live, 3 % held", out)
            self.assertNotIn("\x1b", out)
        self.ended(process)

    def test_a_suspended_client(self):
        process = self.with_two_clients()
        process.do("suspend", 1)
        out = self.weir("top", process.pid)
        self.assertRegex(out, r"host  budget 1 GiB  live 8 MiB  .*  peak 31 MiB  away 20 MiB  refusals 1\n")
        self.assertRegex(out, r"client +live +away +state +peak")
        self.assertRegex(out, r"llama +- +20 MiB +suspended +20 MiB +1 GiB +0 +-")
        self.assertRegex(out, r"bert +8 MiB  █+ +- +- +11 MiB +64 MiB")
        process.do("resume", 1)
        out = self.weir("top", process.pid)
        self.assertNotIn("away", out)
        self.assertNotIn("state", out)
        self.ended(process)

    def test_ascii_where_the_locale_has_nothing_else(self):
        process = self.with_two_clients()
        process.process.stdin.reconfigure(encoding="utf-8")
        process.do("client", "größe", 0)
        out = self.weir("top", process.pid, LC_ALL="C")
        self.assertTrue(out.isascii())
        self.assertRegex(out, r"llama +20 MiB  #+  20 MiB")
        self.assertIn("gr??e", out)
        self.assertRegex(out, r"  #+=\.+ 3 % live")
        self.assertIn("größe", self.weir("top", process.pid))
        self.ended(process)

    def test_json_in_one_object_and_in_lines(self):
        process = self.with_two_clients()
        answer = json.loads(self.weir("top", process.pid, "--json"))
        self.assertEqual([p["pid"] for p in answer["processes"]], [process.pid])
        once = self.weir("top", process.pid, "--format", "json", "--once")
        self.assertEqual(once.count("\n"), 1)
        self.assertEqual(json.loads(once)["processes"], answer["processes"])
        lines = subprocess.Popen([COMMAND, "top", str(process.pid), "--format", "json", "--interval", "100ms"], env=self.environment(),
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(json.loads(lines.stdout.readline())["processes"], answer["processes"])
        process.do("free", 0)
        while json.loads(lines.stdout.readline())["processes"][0]["runtimes"][0]["live"] != 20 * MIB + 768:
            pass
        self.ended(process)
        lines.stdout.read()
        self.assertEqual(lines.wait(SECONDS), 0)  # it ends with the process
        lines.stdout.close()


class Shows(Command):
    def test_contents_follow_the_process(self):
        process = self.with_two_clients()
        screen = self.screen(process.pid, "--interval", "100ms", columns=140)
        rows = screen.until_it_has("live 28 MiB", "llama", "bert")
        self.assertEqual(len(rows), 24)
        self.assertTrue(rows[0].startswith("weir top  "))
        self.assertIn(f"({process.pid})  1/1  every 100 ms", rows[0])
        self.assertTrue(rows[-1].startswith("q quit  s sort: live  c classes  p pause"))
        process.do("free", 2)
        rows = screen.until_it_has("live 8 MiB")
        self.assertTrue(any(re.match(r"  live [▁▂▃▄▅▆▇█]+$", row) for row in rows), rows)
        lines = [row for row in screen.until(lambda rows: len(rows[3]) > 9) if re.match(r"  (live|held) ", row)]
        self.assertEqual(len(lines), 2)
        self.assertGreater(lines[0][7], lines[0][-1])  # it went down
        screen.press(b"q")
        self.assertEqual(screen.end(), (0, ""))
        self.assertTrue(screen.is_restored())
        self.ended(process)

    def test_keys(self):
        process = self.with_two_clients()
        screen = self.screen(process.pid, "--interval", "100ms")
        screen.until_it_has("sort: live", "llama")
        names = lambda rows: [row.split()[0] for row in rows if row.startswith(("  llama", "  bert"))]
        self.assertEqual(names(screen.shown()), ["llama", "bert"])
        for order, first in (("peak", "llama"), ("refusals", "bert"), ("name", "bert"), ("live", "llama")):
            screen.press(b"s")
            rows = screen.until_it_has(f"sort: {order}")
            self.assertEqual(names(rows)[0], first, order)
        screen.press(b"c")
        rows = screen.until_it_has("activations", "c clients")
        self.assertEqual(names(rows), [])
        screen.press(b"c")
        screen.until_it_has("llama", "c classes")
        screen.press(b"p")
        screen.until_it_has("paused", "p go on")
        process.do("free", 2)
        frames = screen.sent.count(b"\x1b[H")
        screen.press(b"sxyz\x1b[1;5Q")  # what means nothing ends nothing
        screen.until(lambda rows: screen.sent.count(b"\x1b[H") >= frames + 5)
        self.assertTrue(any("live 28 MiB" in row for row in screen.shown()))
        screen.press(b"p")
        screen.until_it_has("live 8 MiB", "every 100 ms")
        screen.press(b"q")
        self.assertEqual(screen.end(), (0, ""))
        self.ended(process)

    def test_arrows(self):
        processes = [self.started() for _ in range(2)]
        for i, process in enumerate(processes):
            process.do("get", "host")
            for k in range(30):
                process.do("client", f"p{i}-{k:02}", 0)
        screen = self.screen("--interval", "100ms")
        order = sorted(processes, key=lambda p: p.pid)
        count = json.loads(self.weir("ps", "--json"))["processes"]
        places = [[p["pid"] for p in count].index(p.pid) for p in order]
        for _ in range(places[0]):
            screen.press(b"\x1b[C")
        screen.until_it_has(f"({order[0].pid})", "-00", "-15")
        screen.press(b"\x1b[B" * 3)
        screen.until(lambda rows: not any("budget" in row for row in rows) and any("-16" in row for row in rows))
        screen.press(b"\x1bOB" * 100)
        screen.until_it_has("-29")
        screen.press(b"\x1b[A" * 100)
        screen.until_it_has("budget", "-00")
        screen.press(b"\x1b[C")
        screen.until_it_has(f"({order[1].pid})")
        screen.press(b"\x1b[D")
        screen.until_it_has(f"({order[0].pid})")
        self.ended(order[0])  # the next one is shown
        screen.until(lambda rows: f"({order[0].pid})" not in rows[0])
        screen.press(b"q")
        self.assertEqual(screen.end(), (0, ""))
        self.ended(order[1])

    def test_sizes(self):
        process = self.with_two_clients()
        screen = self.screen(process.pid, "--interval", "100ms")
        screen.until_it_has("llama")
        for rows, columns in ((10, 40), (50, 200), (3, 20), (2, 5), (1, 1), (24, 80), (5, 300)):
            with self.subTest(rows=rows, columns=columns):
                screen.resize(rows, columns)
                shown = screen.until(lambda there: len(there) == rows and max(map(len, there)) <= columns)
                if columns >= 40:
                    self.assertIn("budget 1 GiB", shown[1])
        screen.press(b"q")
        self.assertEqual(screen.end(), (0, ""))
        self.assertTrue(screen.is_restored())
        self.ended(process)

    def test_fifty_clients_with_wide_names_in_narrow_terminals(self):
        process = self.started()
        process.do("get", "host")
        names = ["日本語のモデル", "한국어", "e\u0301t\u00e9-cafe\u0301", "😀😀", "x" * 60, "Ａ" * 20]
        for i in range(50):
            process.do("client", f"{i:02}{names[i % len(names)]}", 0)
            process.do("alloc", i, (50 - i) * MIB // 4, i % 5)
        screen = self.screen(process.pid, "--interval", "100ms", rows=70, columns=160)
        rows = screen.until_it_has("00日本語のモデル", "49한국어")
        ends = {columns_of(row[:row.index("MiB")]) for row in rows if re.match(r"  \d\d\D", row) and "MiB" in row}
        self.assertEqual(len(ends), 1, rows)  # however wide the names
        for columns in (40, 41, 20, 9):
            screen.resize(30, columns)
            screen.until(lambda there: len(there) == 30 and max(map(columns_of, there)) <= columns)
        screen.press(b"q")
        self.assertEqual(screen.end(), (0, ""))
        self.assertTrue(screen.is_restored())
        lines = self.weir("top", "--once", process.pid).splitlines()
        self.assertEqual(sum(bool(re.match(r"  \d\d\D", line)) for line in lines), 50)
        self.ended(process)

    def test_the_locale_and_colours(self):
        process = self.with_two_clients()
        screen = self.screen(process.pid, LC_ALL="C", NO_COLOR="1")
        screen.until_it_has("llama", "left/right process")
        self.assertTrue(screen.sent.isascii())
        self.assertNotRegex(screen.sent.decode(), r"\x1b\[[0-9;]+m")
        screen.press(b"q")
        screen.end()
        self.ended(process)


class Ends(Command):
    def test_signals(self):
        process = self.with_two_clients()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV):
            if common.SANITIZED and number in (signal.SIGABRT, signal.SIGSEGV):
                continue  # the sanitizer's own handler is there
            with self.subTest(number=number):
                screen = self.screen(process.pid)
                screen.until_it_has("llama")
                self.assertNotEqual(termios.tcgetattr(screen.slave), screen.before)
                screen.process.send_signal(number)
                self.assertEqual(screen.end(), (-number, ""))
                self.assertTrue(screen.is_restored())
        self.ended(process)

    def test_the_interrupt_key(self):
        process = self.with_two_clients()
        screen = self.screen(process.pid)
        screen.until_it_has("llama")
        screen.press(b"\x03")
        self.assertEqual(screen.end(), (-signal.SIGINT, ""))
        self.assertTrue(screen.is_restored())
        self.ended(process)

    def test_stopped_and_going_on(self):
        process = self.with_two_clients()
        screen = self.screen(process.pid, "--interval", "100ms")
        screen.until_it_has("llama")
        # A process whose group has no parent in the session is not stopped by SIGTSTP; it goes on, with the screen taken again.
        screen.process.send_signal(signal.SIGTSTP)
        end = time.monotonic() + SECONDS
        while screen.sent.count(GIVEN) == 0 and time.monotonic() < end:
            screen.read()
        screen.process.send_signal(signal.SIGCONT)
        while screen.sent.count(TAKEN) < 2 and time.monotonic() < end:
            screen.read()
        self.assertEqual((screen.sent.count(TAKEN), screen.sent.count(GIVEN)), (2, 1))
        process.do("free", 2)
        screen.until_it_has("live 8 MiB")
        screen.press(b"q")
        self.assertEqual(screen.end(), (0, ""))
        self.assertTrue(screen.is_restored())
        self.ended(process)

    def test_the_process_ends(self):
        for dies in (False, True):
            process = self.with_two_clients()
            screen = self.screen(process.pid, "--interval", "100ms")
            screen.until_it_has("llama")
            process.kill() if dies else self.ended(process)
            self.assertEqual(screen.end(), (0, ""))
            self.assertTrue(screen.is_restored())
            self.assertRegex(screen.sent[screen.sent.rfind(GIVEN):].decode(), rf"watched\S* \({process.pid}\) has ended")

    def test_the_terminal_goes(self):
        process = self.with_two_clients()
        screen = self.screen(process.pid, "--interval", "100ms")
        screen.until_it_has("llama")
        os.close(screen.slave)
        os.close(screen.master)
        screen.master, screen.slave = pty.openpty()  # for the end of the test
        self.assertIn(screen.process.wait(SECONDS), (-signal.SIGHUP, 0, 1))
        screen.process.stderr.close()
        self.ended(process)

    def test_without_keys(self):
        process = self.with_two_clients()
        screen = Screen(self.environment(), process.pid, "--interval", "100ms", keys=False)
        self.addCleanup(screen.close)
        screen.until_it_has("llama")
        screen.process.terminate()
        self.assertEqual(screen.end()[0], -signal.SIGTERM)
        self.ended(process)


if __name__ == "__main__":
    common.main()
