"""Clients that are slow, that go away, that are many; and the end of the server beside them. Counts, no times."""

import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from common import DEADLINE, Case, answer, get, post, readable, reset, rest, status_of


class Slow(Case):
    def test_heads(self):
        with self.serve("head_ms=200") as server:
            silent, slow, between = server.connect(), server.connect(get("/hello")[:-2]), server.connect(get("/hello"))
            self.assertEqual(200, answer(between)[0])
            between.sendall(b"GET /hello HTTP/1.1\r\n")
            self.assertEqual(b"", rest(silent))
            self.assertEqual([408, 408], [status_of(rest(c)) for c in (slow, between)])
            self.assertEqual(3, server.until(timed_out=3, connections=1)["timed_out"])
            for client in (silent, slow, between):
                client.close()

    def test_bodies(self):
        with self.serve("body_ms=200") as server:
            slow, chunked = server.connect(post("/echo", b"ab", length=3)), server.connect(
                b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            refused = server.connect(post("/small", b"ab", length=300))
            self.assertEqual([408, 408, 413], [status_of(rest(c)) for c in (slow, chunked, refused)])
            server.until(timed_out=3, connections=1, body_bytes=0)
            for client in (slow, chunked, refused):
                client.close()

    def test_idle(self):
        with self.serve("idle_ms=200") as server:
            with server.connect(get("/hello")) as client:
                self.assertEqual(200, answer(client)[0])
                self.assertEqual(b"", rest(client))
            self.assertEqual(0, server.stats()["timed_out"])

    def test_readers(self):
        """Who takes nothing for a second is given up."""
        with self.serve("stall_ms=1000", "idle_ms=1000", "head_ms=1000", "body_ms=1000") as server:
            with server.connect(get("/flood"), small=True):
                server.until(flooded=1, streams=0, cancelled=1)

    def test_large_heads(self):
        with self.serve("head_bytes=4096") as server:
            for text in (get("/" + "a" * 5000), get("/hello", "X: " + "a" * 5000 + "\r\n"), get("/hello", "X: a\r\n" * 900)):
                with server.connect(text) as client:
                    self.assertIn(status_of(rest(client)), (413, 414, 431))
            self.assertEqual(200, server.ask("GET", "/hello", headers={"X": "a" * 2000})[0])


class Gone(Case):
    def setUp(self):
        self.server = self.serve("workers=2", "waiting=2")
        self.clients = []

    def tearDown(self):
        for client in self.clients:
            client.close()
        self.server.end()

    def connect(self, text, small=False):
        self.clients.append(self.server.connect(text, small))
        return self.clients[-1]

    def test_while_handled(self):
        """By a close, a half-close and a reset; of a request that waits for its answer with nothing to read or write."""
        for number, leave in enumerate((lambda c: c.close(), lambda c: c.shutdown(socket.SHUT_WR), reset), 1):
            client = self.connect(post("/held", b"abc"))
            self.server.until(waits=1)
            leave(client)
            stats = self.server.until(cancelled=number, cancels=number, waits=0, handled=1)
            self.assertEqual(0, stats["cancelled_waiting"])
        self.assertEqual(b"", rest(self.clients[1]))

    def test_while_waiting(self):
        """Two are handled, two wait: the fifth is refused. Of those that wait one goes, and no handler ever sees it."""
        first = [self.connect(post("/wait")) for _ in range(2)]
        self.server.until(waits=2)
        second = [self.connect(post("/wait")) for _ in range(2)]
        self.server.until(waiting=2)
        refused = self.connect(post("/wait"))
        status, head, _ = answer(refused)
        self.assertEqual((429, "1"), (status, head["retry-after"]))
        reset(second[0])
        self.server.until(waiting=1, cancelled_waiting=1, cancelled=1, cancels=0)
        self.assertEqual(200, self.server.ask("POST", "/release/on")[0])
        self.assertEqual([200] * 3, [answer(c)[0] for c in (*first, second[1])])
        self.assertEqual(1, self.server.until(waits=0, waiting=0)["cancelled"])

    def test_when_it_has_its_answer(self):
        """While the handler has work still: that is no request whose client went."""
        with self.server.connect(get("/early")) as client:
            self.assertEqual(200, answer(client)[0])
            client.sendall(get("/hello"))
            self.assertEqual(200, answer(client)[0])
        self.server.until(connections=1, handled=2, cancelled=0)
        self.assertEqual(200, self.server.ask("POST", "/release/on")[0])
        self.server.until(handled=1, cancelled=0)

    def test_while_sending(self):
        reset(self.connect(post("/echo", b"ab", length=3)))
        self.connect(post("/echo", b"ab", length=3)).shutdown(socket.SHUT_WR)
        reset(self.connect(get("/hello")[:-2]))
        reset(self.connect(b""))
        self.server.until(connections=1, body_bytes=0, handled=1, cancelled=0)

    def test_in_a_stream(self):
        for number, leave in enumerate((lambda c: c.close(), lambda c: c.shutdown(socket.SHUT_WR), reset), 1):
            client = self.connect(get("/flood"))
            self.server.until(streams=1)
            leave(client)
            self.server.until(flooded=number, streams=0, cancelled=number)
        self.server.until(stream_bytes=0)

    def test_in_a_stream_that_it_does_not_read(self):
        """The server cannot send, and is not told by its socket's room that the client went."""
        client = self.connect(get("/flood"), small=True)
        full = 0
        while full < 50:  # looks: the queue stays full where nothing can be sent
            full = full + 1 if self.server.stats()["stream_bytes"] == 65536 else 0
        client.shutdown(socket.SHUT_WR)
        self.server.until(flooded=1, streams=0, cancelled=1, stream_bytes=0, connections=1)

    def test_after_its_answer(self):
        """A half-closed client gets what is answered at once."""
        with self.server.connect(get("/hello")) as client:
            client.shutdown(socket.SHUT_WR)
            self.assertTrue(rest(client).endswith(b"hello\n"))


class Many(Case):
    def test_idle_connections(self):
        with self.serve() as server:
            clients = [server.connect(get("/hello")) for _ in range(1000)]
            self.assertEqual({200}, {answer(c)[0] for c in clients})
            self.assertEqual(1001, server.stats()["connections"])
            for client in clients[::2]:
                client.close()
            server.until(connections=501)
            for client in clients[1::2]:
                client.sendall(get("/work"))
            self.assertEqual({200}, {answer(c)[0] for c in clients[1::2]})
            for client in clients:
                client.close()

    def test_more_than_there_may_be(self):
        """The third waits in the kernel's queue until one of two goes."""
        with self.serve("connections=2") as server:
            first, second = server.connect(get("/hello")), server.connect(get("/hello"))
            self.assertEqual([200, 200], [answer(c)[0] for c in (first, second)])
            third = server.connect(get("/hello"))
            self.assertFalse(readable(third, 0.1))
            first.close()
            self.assertEqual(200, answer(third)[0])
            second.close()
            third.close()

    def test_slow_readers_of_streams(self):
        """200 streams that nobody reads, each of which would never end, hold what their queues may hold."""
        with self.serve("stream_bytes=16384") as server:
            clients = [server.connect(get("/flood"), small=True) for _ in range(200)]
            server.until(streams=200, stream_bytes=lambda n: n >= 200 * 12288)
            before = server.memory()
            for _ in range(20):
                self.assertLessEqual(server.stats()["stream_bytes"], 200 * 16384)
            self.assertLess(server.memory() - before, 20 << 10)
            self.assertIn(b"200 OK", clients[0].recv(4096))
            for client in clients:
                client.close()
            server.until(flooded=200, streams=0, stream_bytes=0)

    def test_whole_streams(self):
        """200 at once; all that is written arrives, once and in order, in chunks that the connection survives."""
        with self.serve("workers=8", "waiting=200", "stream_bytes=1000") as server:
            wanted = b"".join(b"data: %d\n\n" % i for i in range(500))
            got = [None] * 200

            def read(place):
                got[place] = server.ask("GET", "/pieces/500")[1]

            threads = [threading.Thread(target=read, args=(i,)) for i in range(200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual({wanted}, set(got))
            self.assertEqual(b"", server.ask("GET", "/pieces/0")[1])
            self.assertEqual(0, server.until(streams=0)["cancelled"])

    def test_bodies_together(self):
        with self.serve("bodies=100000") as server:
            first = server.connect(post("/echo", b"x" * 60000, length=60001))
            server.until(body_bytes=lambda n: n >= 60000)
            self.assertEqual(503, server.ask("POST", "/echo", b"x" * 60000)[0])
            first.sendall(b"x")
            self.assertEqual(200, answer(first)[0])
            first.close()
            server.until(body_bytes=0)
            self.assertEqual(200, server.ask("POST", "/echo", b"x" * 60000)[0])


class End(Case):
    def test_idle(self):
        """Connections that have nothing under way are closed at once."""
        server = self.serve("drain=600000")
        clients = [server.connect(), server.connect(get("/hello"))]
        self.assertEqual(200, answer(clients[1])[0])
        server.end()
        self.assertEqual([b"", b""], [rest(c) for c in clients])
        for client in clients:
            client.close()

    def test_what_runs_is_answered(self):
        server = self.serve("drain=600000", "workers=1")
        handled, waiting, control = server.connect(post("/wait")), server.connect(), server.connect(get("/hello"))
        self.assertEqual(200, answer(control)[0])
        server.until(waits=1)
        waiting.sendall(post("/wait"))
        server.until(waiting=1)
        busy = server.connect(post("/release/on", length=0)[:-2])
        control.sendall(post("/held"))
        server.until(waits=2)
        server.stop()
        busy.settimeout(DEADLINE)
        # The listening socket goes first.
        while True:
            with socket.socket() as late:
                if late.connect_ex(("127.0.0.1", server.port)) != 0:
                    break
        busy.sendall(b"\r\n")
        for client in (busy, handled, waiting, control):
            status, head, _ = answer(client)
            self.assertEqual((200, "close"), (status, head["connection"]))
            self.assertEqual(b"", rest(client))
            client.close()
        server.end()

    def test_what_lasts_is_cancelled(self):
        server = self.serve("drain=50", "workers=1")
        texts = (post("/wait"), post("/wait"), post("/held"), get("/flood"), post("/echo", b"a", length=2), get("/hello")[:-2])
        clients = [server.connect(text) for text in texts]
        server.until(waits=2, waiting=1, streams=1)
        server.end()
        for client in clients:
            rest(client)
            client.close()


class Sealed(Case):
    def test_tls(self):
        tool = shutil.which("openssl")
        if not tool:
            self.skipTest("openssl makes the certificate")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([tool, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                            f"{folder}/key", "-out", f"{folder}/cert", "-subj", "/CN=localhost", "-days", "2"], check=True,
                           capture_output=True)
            with self.serve(f"certificate={folder}/cert", f"private={folder}/key") as server:
                context = ssl.create_default_context(cafile=f"{folder}/cert")
                context.check_hostname = False
                with context.wrap_socket(server.connect()) as client:
                    client.sendall(get("/hello"))
                    self.assertEqual(200, answer(client)[0])
                    client.sendall(post("/echo", b"x" * 100000))
                    self.assertEqual(b"x" * 100000, answer(client)[2])
                    client.sendall(post("/held"))
                with server.connect(get("/hello")) as client:
                    self.assertIsNone(status_of(rest(client)))
            bad = subprocess.run([server.process.args[0], f"certificate={folder}/key", f"private={folder}/cert"], check=False,
                                 capture_output=True, text=True, stdin=subprocess.DEVNULL)
            self.assertEqual(1, bad.returncode)
            self.assertIn("certificate", bad.stderr)


if __name__ == "__main__":
    unittest.main()
