"""A process that can be watched: what it tells, to whom, and that nobody can keep it from its work."""

import os
import random
import resource
import signal
import socket
import stat
import tempfile
import time
import unittest
from pathlib import Path

import common
from common import MIB, asked, connected, received

# Users that are not there, other ones for each process that runs these.
THEM, OTHERS, HOSTILE = (10000 + 3 * (os.getpid() % 16000) + i for i in range(3))


def needs_other_users(test):
    """Root may become them, and they can enter the folders above those of the tests."""
    return unittest.skipUnless(os.getuid() == 0 and all(
        folder.stat().st_mode & stat.S_IXOTH for folder in [Path(tempfile.gettempdir()), *Path(tempfile.gettempdir()).parents]),
        "needs root, and a folder for temporary files that all can enter")(test)


class Tells(common.Case):
    def test_what_its_own_snapshot_tells(self):
        process = self.with_two_clients()
        process.do("outside", 1, 12345)
        answer = asked(process.socket)
        self.assertEqual(list(answer), ["weir", "pid", "command", "runtimes", "cores", "left_out"])
        self.assertEqual((answer["pid"], answer["left_out"]), (process.pid, 0))
        self.assertEqual(answer["command"], str(common.BUILD / "tests/watched"))
        runtime, = answer["runtimes"]
        self.assertEqual((runtime.pop("device"), runtime.pop("own"), runtime.pop("resource")), ("host", False, "budget(mapped)"))
        self.assertEqual(runtime, process.json("snapshot", 0))
        self.assertEqual([c["name"] for c in runtime["clients"]], ["bert", "llama"])
        self.assertEqual((runtime["refusals"], runtime["clients"][0]["refusals"], runtime["clients"][1]["refusals"]), (1, 1, 0))
        self.assertEqual(runtime["clients"][1]["live_class"]["kv"], 20 * MIB)
        self.assertEqual(runtime["clients"][1]["outside"], 12345)
        self.assertGreater(runtime["peak"], runtime["live"])
        self.ended(process)

    def test_layout_on_request(self):
        process = self.with_two_clients()
        runtime, = asked(process.socket, b"layout\n")["runtimes"]
        self.assertEqual(runtime["layout"], process.json("layout", 0))
        self.assertEqual(runtime["layout"]["held"], runtime["held"])
        self.assertNotIn("layout", asked(process.socket)["runtimes"][0])
        self.ended(process)

    def test_looking_changes_nothing(self):
        process = self.with_two_clients()
        before = process.json("snapshot", 0)
        for _ in range(20):
            asked(process.socket, b"layout\n")
        self.assertEqual(process.json("snapshot", 0), before)
        self.ended(process)

    def test_who_computes_with_what(self):
        process = self.started(WEIR_CORES="4")
        process.do("get", "host")
        self.assertEqual({"cores": 4, "leased": 0, "peak": 0, "waiting": 0, "coupled": 4, "models": []}, asked(process.socket)["cores"])
        process.do("cores", "bert", 3)
        process.do("cores", "llama", 0)
        self.assertEqual({"cores": 4, "leased": 3, "peak": 3, "waiting": 0, "coupled": 4, "models": [
            {"name": "bert", "least": 3, "most": 3, "now": 3, "last": 3, "leases": 1, "waits": 0, "waited": 0},
            {"name": "llama", "least": 1, "most": 0, "now": 0, "last": 0, "leases": 0, "waits": 0, "waited": 0}]}, asked(process.socket)["cores"])
        self.ended(process)

    def test_several_runtimes(self):
        process = self.started()
        process.do("own", "host")
        process.do("get", "host")
        process.do("client", "a", 0, 0)
        process.do("client", "b", 0, 1)
        process.do("alloc", 1, MIB, 1)
        runtimes = {r["own"]: r for r in asked(process.socket)["runtimes"]}
        self.assertEqual(len(runtimes), 2)
        self.assertEqual((runtimes[True]["budget"], runtimes[False]["budget"]), (64 * MIB, 1024 * MIB))
        self.assertEqual((runtimes[True]["live"], runtimes[False]["live"]), (0, MIB))
        self.ended(process)

    def test_more_clients_than_there_is_room_for(self):
        process = self.started()
        process.do("get", "host")
        for i in range(300):
            process.do("client", f"client-{i}", 0)
        answer = asked(process.socket)
        runtime, = answer["runtimes"]
        self.assertEqual(runtime["client_count"], 300)
        self.assertGreater(len(runtime["clients"]), 200)
        self.assertLessEqual(len(runtime["clients"]), 256)
        self.ended(process)

    def test_more_clients_of_three_runtimes_than_there_is_room_for(self):
        process = self.started(WEIR_RANGE="1GiB")
        for runtime in range(3):
            process.do("own", "host")
            for i in range(256):
                process.do("client", f"client-{i}", 0, runtime)
        answer = asked(process.socket)
        self.assertEqual([runtime["client_count"] for runtime in answer["runtimes"]], [256] * 3)
        told = [len(runtime["clients"]) for runtime in answer["runtimes"]]
        self.assertEqual(told[:2], [256] * 2)
        self.assertIn(told[2], range(10, 250))
        self.assertEqual(answer["left_out"], 0)
        self.ended(process)

    def test_more_runtimes_than_there_is_room_for(self):
        process = self.started(WEIR_RANGE="1GiB")
        for i in range(60):
            process.do("own", "host")
            for k in range(10):
                process.do("client", f"client-{i}-{k}", 0, i)
        for i in range(300):
            process.do("cores", "model" * 12, 0)
        with connected(process.socket) as connection:
            connection.sendall(b"stats\n")
            text = received(connection)
        self.assertLessEqual(len(text), 256 * 1024)
        answer = common.json.loads(text)
        self.assertGreater(answer["left_out"], 0)
        self.assertEqual(len(answer["runtimes"]) + answer["left_out"], 60)
        self.assertLess(len(answer["cores"]["models"]), 300)
        self.ended(process)

    def test_names_of_any_bytes(self):
        process = self.started()
        process.do("get", "host")
        names = ['a"b\\c', "\x01\x1b[31m", "größe-模型-😀", b"\xff\xfe\xc3(".decode("latin-1")]
        process.process.stdin.reconfigure(encoding="utf-8")
        for name in names:
            process.do("client", name, 0)
        told = [c["name"] for c in asked(process.socket)["runtimes"][0]["clients"]]
        self.assertEqual(told[:3], names[:3])
        self.ended(process)


@common.needs_the_stub
class Yields(common.Case):
    def until_it_is_busy(self, process):
        """Its memory comes back when the budget has risen, by looks of its own thread."""
        end = time.monotonic() + common.SECONDS
        while not process.tell("busy", 0).startswith("WEIR_OK"):
            self.assertLess(time.monotonic(), end)

    def residencies(self, process):
        return [client["residency"] for client in process.json("snapshot", 0)["clients"][:2]]

    def test_idle_clients_leave_and_come_back(self):
        process = self.on_the_stub()
        answer = asked(process.socket, b"yield 220MiB\n")
        self.assertEqual((list(answer), answer["pid"]), (["weir", "pid", "command", "runtimes"], process.pid))
        runtime, = answer["runtimes"]
        self.assertEqual((runtime["device"], runtime["own"], runtime["asked"]), ("cuda:0", False, 220 * MIB))
        self.assertEqual((runtime["suspends"], runtime["lacks"], runtime["why"]), (1, 0, ""))
        self.assertGreaterEqual(runtime["available"], 220 * MIB)
        self.assertEqual(runtime["given"], runtime["trimmed"] + runtime["suspended"] + runtime["called"])
        self.assertEqual(self.residencies(process), ["suspended", "resident"])
        self.assertTrue(process.tell("busy", 0).startswith("WEIR_ERR_OUT_OF_MEMORY"))
        outside, = (runtime["outside"] for runtime in asked(process.socket)["runtimes"] if runtime["device"] == "cuda:0")
        self.assertEqual((outside["asked"], outside["suspends"], outside["watched"]), (220 * MIB, 1, False))
        self.assertEqual(asked(process.socket, b"yield 0\n")["runtimes"][0]["lacks"], 0)
        self.until_it_is_busy(process)
        self.assertEqual(self.residencies(process), ["resident", "resident"])
        self.ended(process)

    def test_what_stays_is_told(self):
        process = self.on_the_stub()
        runtime, = asked(process.socket, b"yield 250MiB cuda:0 3600\n")["runtimes"]
        self.assertEqual((runtime["suspends"], runtime["live"]), (1, 20 * MIB))
        self.assertEqual(runtime["lacks"], 250 * MIB - runtime["available"])
        self.assertGreater(runtime["lacks"], 0)
        self.ended(process)

    def test_the_devices_that_are_meant(self):
        process = self.on_the_stub()
        process.do("get", "host")
        devices = [[r["device"] for r in asked(process.socket, request)["runtimes"]]
                   for request in (b"yield 1MiB\n", b"yield 1MiB *\n", b"yield 1MiB host\n", b"yield 1MiB cuda:1\n")]
        self.assertEqual(devices, [["cuda:0"], ["cuda:0"], ["host"], []])
        self.ended(process)
        process = self.started()
        process.do("get", "host")
        self.assertEqual([r["device"] for r in asked(process.socket, b"yield 1MiB\n")["runtimes"]], ["host"])
        self.ended(process)

    def test_clients_by_name(self):
        process = self.on_the_stub()
        process.do("client", "idle", 0)  # another one of that name, which is not offered
        process.do("alloc", 2, 4 * MIB, 1)
        for verb, state in ((b"suspend idle\n", "suspended"), (b"resume idle\n", "resident")):
            answer = asked(process.socket, verb)
            moved, = (client for runtime in answer["runtimes"] for client in runtime["clients"])
            self.assertEqual(moved, {"name": "idle", "moved": True, "bytes": 40 * MIB, "why": ""})
            self.assertEqual(self.residencies(process), [state, "resident"])
        asked(process.socket, b"suspend idle\n")
        again, = (client for runtime in asked(process.socket, b"suspend idle\n")["runtimes"] for client in runtime["clients"])
        self.assertEqual((again["moved"], again["bytes"]), (False, 0))
        self.assertIn("suspended already", again["why"])
        process.do("busy", 0)
        for name in (b"idle", b"busy", b"nobody", b"idl"):  # who is not offered is left alone
            self.assertEqual([r["clients"] for r in asked(process.socket, b"suspend " + name + b"\n")["runtimes"] if r["clients"]], [])
        self.assertEqual(self.residencies(process), ["resident", "resident"])
        self.ended(process)

    @needs_other_users
    def test_of_nobody_but_its_owner(self):
        theirs = self.folder / "theirs"
        theirs.mkdir(mode=0o700)
        os.chmod(self.folder, 0o711)
        os.chown(theirs, THEM, THEM)
        process = self.on_the_stub(THEM, folder=theirs)
        self.assertIn("own user", asked(process.socket, b"yield 220MiB\n")["error"]["detail"])  # root is not that
        self.assertEqual(self.residencies(process), ["resident", "resident"])
        self.assertEqual(asked(process.socket)["pid"], process.pid)
        self.ended(process)

    def test_other_words_are_refused(self):
        process = self.on_the_stub()
        for request in ("yield", "yield 8GiBs", "yield -1", "yield 1MiB cuda:0 1 2", "yield 1MiB cuda:0 3601", "yield 1MiB cuda:0 x",
                        "yield 1MiB " + "d" * 16, "yield 1MiB cuda:0 " + "9" * 30, "yields 1MiB", "suspend", "yield\t1MiB"):
            with self.subTest(request=request):
                self.assertIn("a request is one line", asked(process.socket, request.encode() + b"\n")["error"]["detail"])
        self.assertEqual(self.residencies(process), ["resident", "resident"])
        self.ended(process)

    def test_words_in_any_order(self):
        process = self.on_the_stub()
        chance = random.Random(36)
        words = ("yield", "yield", "suspend", "resume", "busy", "1MiB", "230MiB", "0", "cuda:0", "*", "host", "1", "3600", "stats", "layout", " ", "é", "18446744073709551615",
                 "99999999999999999999GiB", "\\", '"')
        for _ in range(200):
            request = " ".join(chance.choices(words, k=chance.randrange(1, 5)))
            answer = asked(process.socket, request.encode()[:63] + b"\n")
            self.assertTrue("error" in answer or "runtimes" in answer, request)
        asked(process.socket, b"yield 0\n")
        self.until_it_is_busy(process)
        self.ended(process)

    def test_readers_that_leave_and_many_at_a_time(self):
        process = self.on_the_stub()
        for _ in range(40):
            with connected(process.socket) as connection:
                connection.sendall(b"yield 255MiB\n")  # waits for the rest in vain
        readers = [connected(process.socket) for _ in range(30)]
        for reader in readers:
            reader.sendall(b"yield 220MiB\n")
        for reader in readers:
            self.assertIn("runtimes", common.json.loads(received(reader)))
            reader.close()
        self.assertEqual(asked(process.socket)["pid"], process.pid)
        self.ended(process)

    def test_a_program_that_ends_meanwhile(self):
        process = self.on_the_stub()
        with connected(process.socket) as connection:
            connection.sendall(b"yield 255MiB\n")
            self.ended(process)
            received(connection)


class Refuses(common.Case):
    def test_off_there_is_no_thread_and_no_socket(self):
        counts = {}
        for watch in ("0", "1", "on"):
            process = self.started(watch=watch)
            before = int(process.tell("threads")), int(process.tell("sockets"))
            process.do("get", "host")
            counts[watch] = int(process.tell("threads")) - before[0], int(process.tell("sockets")) - before[1]
            self.assertEqual(process.socket.exists(), watch == "1")
            self.assertEqual(process.end(), 0)
        more = common.SANITIZED == "thread"  # has one of its own beside the program's first
        self.assertEqual(counts, {"0": (0, 0), "1": (1 + more, 1), "on": (0, 0)})

    def test_the_option_counts_when_a_runtime_is_made(self):
        process = self.started(watch="0")
        process.do("own", "host")
        process.do("option", "1")
        self.assertFalse(process.socket.exists())
        process.do("own", "host")
        self.assertEqual(len(asked(process.socket)["runtimes"]), 2)
        threads = process.tell("threads")
        process.do("own", "host")
        self.assertEqual(process.tell("threads"), threads)
        self.ended(process)

    def test_the_thread_takes_no_signals(self):
        process = self.started()
        process.do("get", "host")
        for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGPIPE):
            self.assertEqual(process.tell("takers", int(number)), "1")
        self.ended(process)

    def test_folder_and_socket_are_the_users_alone(self):
        os.umask(0)
        self.addCleanup(os.umask, 0o022)
        process = self.started()
        process.do("get", "host")
        self.assertEqual(stat.S_IMODE(process.folder.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(process.socket.stat().st_mode), 0o600)
        self.ended(process)
        self.assertEqual(list(process.folder.iterdir()), [])

    def test_a_folder_that_others_enter_is_not_used(self):
        (self.folder / "weir").mkdir(mode=0o755)
        process = self.started()
        process.do("get", "host")
        self.assertFalse(process.socket.exists())
        self.assertEqual(len(asked(Path(f"/tmp/weir-{os.getuid()}/{process.pid}.sock"))["runtimes"]), 1)  # the other place
        self.ended(process)

    def test_a_link_is_not_followed(self):
        (self.folder / "elsewhere").mkdir(mode=0o700)
        (self.folder / "weir").symlink_to(self.folder / "elsewhere")
        process = self.started()
        process.do("get", "host")
        self.assertEqual(list((self.folder / "elsewhere").iterdir()), [])
        self.ended(process)

    @needs_other_users
    def test_other_users_are_refused(self):
        self.folder.chmod(0o777)
        theirs = self.folder / "theirs"
        theirs.mkdir()
        os.chown(theirs, THEM, THEM)
        process = self.started(THEM, folder=theirs)
        process.do("get", "host")
        self.assertEqual(process.socket.stat().st_uid, THEM)
        self.assertEqual(len(asked(process.socket)["runtimes"]), 1)  # root
        child = os.fork()
        if child == 0:  # the folder keeps them out
            os.setuid(OTHERS)
            try:
                connected(process.socket)
            except PermissionError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        theirs.chmod(0o777)
        process.folder.chmod(0o777)
        process.socket.chmod(0o666)
        child = os.fork()
        if child == 0:  # and where it is opened up, the process does
            os.setuid(OTHERS)
            with connected(process.socket) as connection:
                try:
                    connection.sendall(b"stats\n")
                except OSError:
                    pass
                os._exit(0 if received(connection) == b"" else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        child = os.fork()
        if child == 0:
            os.setuid(THEM)
            os._exit(0 if len(asked(process.socket)["runtimes"]) == 1 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.ended(process)

    @needs_other_users
    def test_a_runtime_folder_of_another_user_is_left_alone(self):
        self.folder.chmod(0o777)
        process = self.started(THEM)
        process.do("get", "host")
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertTrue(Path(f"/tmp/weir-{THEM}/{process.pid}.sock").exists())
        self.ended(process)
        Path(f"/tmp/weir-{THEM}").rmdir()

    @needs_other_users
    def test_a_hostile_folder_is_said_and_the_program_goes_on(self):
        hostile = Path(f"/tmp/weir-{HOSTILE}")
        hostile.mkdir(mode=0o700)
        self.addCleanup(hostile.rmdir)
        process = self.started(HOSTILE)
        before = process.tell("threads")
        process.do("get", "host")
        process.do("client", "bert", 0)
        process.do("alloc", 0, MIB, 1)
        self.assertEqual(process.tell("threads"), before)
        self.assertEqual(list(hostile.iterdir()), [])
        self.ended(process, f"cannot be watched: the folder /tmp/weir-{HOSTILE} is user 0's, not user {HOSTILE}'s")


class Withstands(common.Case):
    def exact(self, process):
        runtime, = asked(process.socket)["runtimes"]
        for key in ("device", "own", "resource"):
            runtime.pop(key)
        self.assertEqual(runtime, process.json("snapshot", 0))

    def test_garbage(self):
        process = self.with_two_clients()
        for request in (b"\n", b"STATS\n", b"stats \n", b"stats\0\n", b"GET / HTTP/1.1\r\n\r\n", os.urandom(40) + b"\n", b"x" * 64,
                        b"x" * 100000, b"\0" * 64, b"stats\r\n", b"statsx\n"):
            with self.subTest(request=request[:20]):
                with connected(process.socket) as connection:
                    try:
                        connection.sendall(request)
                    except OSError:
                        pass
                    answer = received(connection)
                self.assertIn(b"a request is one line", answer)
        self.exact(process)
        self.ended(process)

    def test_a_request_in_pieces(self):
        process = self.with_two_clients()
        with connected(process.socket) as connection:
            for byte in b"stats\n":
                connection.sendall(bytes([byte]))
            self.assertEqual(common.json.loads(received(connection))["pid"], process.pid)
        with connected(process.socket) as connection:  # what follows the line is not looked at
            connection.sendall(b"stats\nlayout\n")
            self.assertNotIn("layout", common.json.loads(received(connection))["runtimes"][0])
        self.ended(process)

    def test_half_a_line_and_silence_end(self):
        process = self.with_two_clients()
        with connected(process.socket) as silent, connected(process.socket) as half:
            half.sendall(b"sta")
            for connection in (silent, half):
                self.assertEqual(received(connection), b"")  # it is closed after some seconds
        with connected(process.socket) as connection:
            connection.sendall(b"sta")
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(received(connection), b"")
        self.exact(process)
        self.ended(process)

    def test_more_silent_ones_than_there_are_places(self):
        process = self.with_two_clients()
        sockets = int(process.tell("sockets"))
        silent = [connected(process.socket) for _ in range(24)]
        self.assertLessEqual(int(process.tell("sockets")), sockets + 16)
        self.exact(process)  # when some have been closed
        for connection in silent:
            connection.close()
        self.exact(process)
        self.assertEqual(int(process.tell("sockets")), sockets)
        self.ended(process)

    def test_who_never_reads(self):
        process = self.started()
        process.do("get", "host")
        for i in range(256):
            process.do("client", "x" * 50 + str(i), 0)
        unread = []
        for _ in range(40):
            connection = connected(process.socket)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"stats\n")
            unread.append(connection)
        self.exact(process)
        for connection in unread:
            connection.close()
        self.exact(process)
        self.ended(process)

    def test_who_leaves_before_the_answer(self):
        process = self.with_two_clients()
        for _ in range(200):
            with connected(process.socket) as connection:
                connection.sendall(b"layout\n")
        self.exact(process)
        self.ended(process)

    def test_ten_thousand_one_after_the_other(self):
        process = self.with_two_clients()
        sockets, threads = process.tell("sockets"), process.tell("threads")
        memory = Path(f"/proc/{process.pid}/status")
        for i in range(10000):
            with connected(process.socket) as connection:
                if i % 10 == 0:
                    connection.sendall(b"stats\n")
                    self.assertEqual(received(connection)[-1:], b"\n")
            if i == 1000:
                before = held(memory)
        self.exact(process)
        self.assertEqual((process.tell("sockets"), process.tell("threads")), (sockets, threads))
        if "WEIR_SANITIZED" not in os.environ:  # AddressSanitizer keeps what was freed
            self.assertLess(held(memory) - before, 2048)  # KiB
        self.ended(process)

    def test_a_hundred_at_once(self):
        process = self.with_two_clients()
        connections = []
        for _ in range(16):
            connections.append(connected(process.socket))
        for _ in range(6):  # more than the places; those that wait in the queue are served when others are done
            connections += [connected(process.socket) for _ in range(14)]
            for connection in connections:
                connection.sendall(b"stats\n")
            for connection in connections:
                self.assertEqual(common.json.loads(received(connection))["pid"], process.pid)
                connection.close()
            connections = []
        self.exact(process)
        self.ended(process)

    def test_no_file_left_for_a_connection(self):
        process = self.with_two_clients()
        process.tell("files", 4)
        connections = [connected(process.socket) for _ in range(3)]
        for connection in connections:
            connection.sendall(b"stats\n")
        self.assertEqual(process.tell("files", 0), "done")
        for connection in connections:
            self.assertEqual(common.json.loads(received(connection))["pid"], process.pid)
            connection.close()
        self.ended(process)

    @unittest.skipIf(common.SANITIZED == "thread", "closing another thread's file is a race, which is what is tested")
    def test_a_program_that_closes_all_files(self):
        process = self.with_two_clients()
        threads = int(process.tell("threads"))
        process.tell("close")
        with self.assertRaises(OSError):
            for _ in range(1000):  # the thread finds out by the first one that comes
                with connected(process.socket) as connection:
                    connection.sendall(b"stats\n")
                    self.assertEqual(received(connection), b"")
        self.assertEqual(process.tell("nulls"), "32")
        end = time.monotonic() + common.SECONDS
        while int(process.tell("threads")) == threads and time.monotonic() < end:  # it ends behind the answer
            time.sleep(.01)
        self.assertEqual(int(process.tell("threads")), threads - 1)
        self.ended(process)


def held(status):
    """KiB of the process's memory."""
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


class Ends(common.Case):
    def test_the_socket_goes_at_exit(self):
        for how in ("exit", None):
            process = self.with_two_clients()
            self.assertTrue(process.socket.exists())
            if how:
                print(how, file=process.process.stdin, flush=True)
            self.ended(process)
            self.assertFalse(process.socket.exists())

    def test_it_stays_when_the_process_is_killed_and_the_next_of_that_number_takes_it(self):
        process = self.with_two_clients()
        process.kill()
        self.assertTrue(process.socket.exists())
        with self.assertRaises(ConnectionRefusedError):
            connected(process.socket)

    def test_the_child_of_a_fork_has_no_part_in_it(self):
        process = self.with_two_clients()
        with connected(process.socket) as open_one:
            self.assertIn(b"a request", self.answered(process, b"?\n"))
            child, sockets = map(int, process.tell("fork", 0).split())
            self.addCleanup(os.kill, child, signal.SIGKILL)
            self.assertEqual(sockets, 0)
            open_one.sendall(b"stats\n")
            self.assertEqual(common.json.loads(received(open_one))["pid"], process.pid)
        self.assertEqual(asked(process.socket)["pid"], process.pid)
        self.assertFalse((process.folder / f"{child}.sock").exists())
        process.kill()
        with self.assertRaises(ConnectionRefusedError):  # the child has not kept it
            connected(process.socket)

    def test_a_child_that_exits_leaves_the_socket(self):
        process = self.with_two_clients()
        process.tell("fork", 1)
        self.assertEqual(asked(process.socket)["pid"], process.pid)
        self.assertEqual(process.end(), 0)  # the search for leaks says of the child that it found no threads

    def test_a_program_that_is_executed_does_not_answer(self):
        process = self.with_two_clients()
        self.assertEqual(process.tell("exec"), "done")
        self.assertEqual(process.tell("cat is here"), "cat is here")
        with self.assertRaises(ConnectionRefusedError):
            connected(process.socket)
        self.ended(process)

    def answered(self, process, request):
        with connected(process.socket) as connection:
            connection.sendall(request)
            return received(connection)

    def test_a_hundred_processes(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        processes = [self.started() for _ in range(100)]
        for i, process in enumerate(processes):
            process.do("get", "host")
            process.do("client", f"client-{i}", 0)
            process.do("alloc", 0, (i + 1) * 4096, 1)
        for i, process in enumerate(processes):
            runtime, = asked(process.socket)["runtimes"]
            self.assertEqual((runtime["live"], runtime["clients"][0]["name"]), ((i + 1) * 4096, f"client-{i}"))
        self.all_ended(processes)
        self.assertEqual(list(processes[0].folder.iterdir()), [])


if __name__ == "__main__":
    common.main()
