"""What requests are answered, whole and well-formed or not."""

import gzip
import unittest
import zlib

from common import Case, answer, get, post, rest, status_of


class Requests(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Case().serve()

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def ask(self, *words, **more):
        return self.server.ask(*words, **more)

    def raw(self, text):
        with self.server.connect(text) as client:
            return answer(client)

    def test_methods(self):
        self.assertEqual((200, b"hello\n"), self.ask("GET", "/hello")[:2])
        self.assertEqual((200, b"hello\n"), self.ask("GET", "/work")[:2])
        self.assertEqual((200, b"abc"), self.ask("POST", "/echo", b"abc")[:2])
        status, body, head = self.ask("DELETE", "/echo", b"abc")
        self.assertEqual((200, b"abc", "DELETE"), (status, body, head.headers["X-Method"]))
        status, body, head = self.ask("HEAD", "/hello")
        self.assertEqual((200, b"", "6"), (status, body, head.headers["Content-Length"]))
        status, body, head = self.ask("OPTIONS", "/hello")
        self.assertEqual((204, b"", "GET, HEAD"), (status, body, head.headers["Allow"]))
        self.assertEqual("POST, DELETE", self.ask("OPTIONS", "/echo")[2].headers["Allow"])
        self.assertEqual(204, self.raw(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")[0])
        status, body, head = self.ask("POST", "/hello")
        self.assertEqual((405, "GET, HEAD"), (status, head.headers["Allow"]))
        self.assertEqual(405, self.ask("BREW", "/hello")[0])
        self.assertEqual(404, self.ask("GET", "/nowhere")[0])
        self.assertEqual(500, self.ask("GET", "/nothing")[0])
        self.assertEqual(405, self.ask("HEAD", "/echo")[0])

    def test_a_connection_goes_on(self):
        with self.server.connect() as client:
            for text, wanted in (("/hello", 200), ("/nowhere", 404), ("/work", 200), ("/segments/%00/and/b", 400), ("/hello", 200)):
                client.sendall(get(text))
                self.assertEqual(wanted, answer(client)[0], text)
            client.sendall(post("/small", b"x" * 5000))  # refused, and small enough to be read and dropped
            self.assertEqual(413, answer(client)[0])
            client.sendall(get("/hello"))
            self.assertEqual(200, answer(client)[0])

    def test_pipelines(self):
        with self.server.connect(b"".join(get(p) for p in ["/hello", "/work", "/nowhere", "/work"] * 20)) as client:
            for _ in range(20):
                self.assertEqual([200, 200, 404, 200], [answer(client)[0] for _ in range(4)])
        text = post("/echo", b"one") + post("/echo", b"two") + get("/hello", "Connection: close\r\n")
        with self.server.connect(text) as client:
            data = rest(client)
        self.assertEqual(3, data.count(b"HTTP/1.1 200"))
        self.assertLess(data.index(b"one"), data.index(b"two"))

    def test_old_clients(self):
        with self.server.connect(b"GET /hello HTTP/1.0\r\n\r\n") as client:
            data = rest(client)
        self.assertEqual(200, status_of(data))
        self.assertTrue(data.endswith(b"hello\n"))
        with self.server.connect(b"GET /pieces/3 HTTP/1.0\r\n\r\n") as client:
            data = rest(client)
        self.assertTrue(data.endswith(b"\r\n\r\ndata: 0\n\ndata: 1\n\ndata: 2\n\n"), data)
        with self.server.connect(get("/hello", "Connection: close\r\n")) as client:
            self.assertIn(b"Connection: close", rest(client))

    def test_paths(self):
        def segments(path):
            return self.ask("GET", path)[:2]

        self.assertEqual((200, b"a\nb\n/segments/a/and/b\n"), segments("/segments/a/and/b"))
        self.assertEqual((200, b"a\nb\n/segments/a/and/b/\n"), segments("/segments/a/and/b/"))
        self.assertEqual((200, b"a\nb\n/segments/a/and/b\n"), segments("/segments/a/and/b?c=%zz/../"))
        self.assertEqual(b"org/model\n%\n", segments("/segments/org%2fmodel/and/%25")[1][:12])
        self.assertEqual("ä€😀\n".encode(), segments("/segments/%C3%a4%E2%82%AC%F0%9F%98%80/and/b")[1][:10])
        for path in ("/segments//and/b", "/segments/a/and/", "/segments/a/and", "/segments/a/and/b/c", "//hello", "/hello//",
                     "/Hello", "/%48ello/x"):
            self.assertEqual(404, segments(path)[0], path)
        self.assertEqual(200, segments("/%68ello")[0])
        for path in ("/segments/../and/b", "/segments/%2e%2E/and/b", "/./hello", "/segments/a/and/.", "/segments/%/and/b",
                     "/segments/%1/and/b", "/segments/%1g/and/b", "/segments/a%00b/and/c", "/segments/%0a/and/c",
                     "/segments/%7f/and/c", "/segments/%ff/and/c", "/segments/%c0%ae/and/c", "/segments/%ed%a0%80/and/c",
                     "/" + "/".join("abcdefghijklmnopqrstuvw"), "hello", "http://localhost/hello"):
            self.assertEqual(400, self.raw(get(path))[0], path)

    def test_malformed(self):
        def status(text):
            with self.server.connect(text) as client:
                return status_of(rest(client))

        self.assertEqual(400, status(b"GET /hello HTTP/1.1\r\n\r\n"))
        self.assertEqual(400, status(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"))
        self.assertEqual(400, status(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n"))
        self.assertIn(status(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), (400, 505, None))
        self.assertIn(status(b"GET /hello HTTP/9.1\r\nHost: localhost\r\n\r\n"), (400, 505))
        twice = "Content-Length: 3\r\n"
        self.assertEqual(400, status(post("/echo", b"abc", twice)))
        self.assertEqual(400, status(post("/echo", b"abc" + get("/hello"), "Content-Length: 40\r\n")))
        self.assertEqual(400, status(post("/echo", b"0\r\n\r\n" + get("/hello"), "Transfer-Encoding: chunked\r\n")))
        for length in ("-1", "+3", "3x", "0x3", "", "99999999999999999999999"):
            self.assertIn(status(post("/echo", b"abc", length=length)), (400, 413), length)
        head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: %s\r\n\r\n"
        for coding in ("gzip, chunked", "identity", "xchunked"):
            self.assertIn(status((head % coding).encode()), (400, 501), coding)
        for body in (b"zz\r\nabc\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"fffffffffffffffff\r\n"):
            self.assertIn(status((head % "chunked").encode() + body), (400, 413), body)

    def test_uploads(self):
        head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(b"abcdefg", self.raw(head + b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrailer: 1\r\n\r\n")[2])
        self.assertEqual(b"", self.raw(head + b"0\r\n\r\n")[2])
        self.assertEqual(b"", self.raw(b"POST /echo HTTP/1.1\r\nHost: localhost\r\n\r\n")[2])
        big = bytes(range(256)) * 4096
        self.assertEqual((200, big), self.ask("POST", "/echo", big)[:2])
        self.assertEqual(0, self.server.until(body_bytes=0)["body_bytes"])

    def test_limits_of_bodies(self):
        self.assertEqual((200, b"0123456789"), self.ask("POST", "/small", b"0123456789")[:2])
        self.assertEqual(413, self.ask("POST", "/small", b"0123456789a")[0])
        head = b"POST /small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        with self.server.connect(head + b"5\r\nabcde\r\n5\r\nabcde\r\n1\r\na\r\n0\r\n\r\n") as client:
            self.assertEqual(413, answer(client)[0])
        # A client that never stops is answered all the same, and its connection closed.
        with self.server.connect(head) as client:
            sent = 0
            try:
                while sent < 64 << 20:
                    client.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                    sent += 65536
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertEqual(413, status_of(rest(client)))
        with self.server.connect(get("/hello", "Content-Length: 5\r\n") + b"abcde") as client:
            self.assertEqual(413, answer(client)[0])

    def test_refused_by_its_head(self):
        """Before the body, which is 256 MiB that never come; the answer arrives though the client is sending."""
        for extra in ("", "Expect: 100-continue\r\n"):
            with self.server.connect(post("/small", extra=extra, length=256 << 20)) as client:
                status, _, body = answer(client)
                self.assertEqual(413, status)
                self.assertIn(b"larger", body)
        with self.server.connect(post("/small", length=256 << 20)) as client:
            try:
                for _ in range(64):
                    client.sendall(b"x" * 65536)
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertEqual(413, status_of(rest(client)))
        with self.server.connect(post("/small", b"0123456789a")) as client:
            self.assertEqual(413, answer(client)[0])
            client.sendall(get("/hello"))
            self.assertEqual(200, answer(client)[0])

    def test_expectations(self):
        with self.server.connect(post("/echo", extra="Expect: 100-continue\r\n", length=3)) as client:
            self.assertEqual(100, answer(client)[0])
            client.sendall(b"abc")
            self.assertEqual((200, b"abc"), answer(client)[::2])
        with self.server.connect(post("/small", extra="Expect: 100-continue\r\n", length=300)) as client:
            self.assertEqual(413, answer(client)[0])

    def test_compressed(self):
        text = b"weir " * 20000
        for name, body in (("gzip", gzip.compress(text)), ("deflate", zlib.compress(text)), ("GZIP", gzip.compress(text))):
            self.assertEqual((200, text), self.ask("POST", "/echo", body, headers={"Content-Encoding": name})[:2])
        def status(body, path="/echo", name="gzip"):
            return self.ask("POST", path, body, headers={"Content-Encoding": name})[0]

        self.assertEqual(415, status(b"abc", name="br"))
        self.assertEqual(200, status(b"abc", name="identity"))
        self.assertEqual(400, status(b"not gzip at all"))
        whole = gzip.compress(text)
        self.assertEqual(400, status(whole[:-4]))
        self.assertEqual(400, status(whole[:9]))
        self.assertEqual(400, status(whole + b"more"))
        self.assertEqual(413, status(gzip.compress(bytes(64 << 20), 9)))  # 64 KiB that become 64 MiB
        self.assertEqual(413, status(gzip.compress(b"0" * 5000, 9), "/small"))

    def test_who_may_ask(self):
        def status(host, extra=""):
            return self.raw(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n".encode())[0]

        for host in ("localhost", "localhost:80", "127.0.0.1:8", "[::1]:8", "a.localhost", "192.168.1.2", "LocalHost"):
            self.assertEqual(200, status(host), host)
        for host in ("evil.example", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", "", "1.2.3.4x"):
            self.assertEqual(403, status(host), host)
        for origin, wanted in (("http://localhost:3000", 200), ("https://127.0.0.1", 200), ("http://[::1]:1", 200),
                               ("https://evil.example", 403), ("null", 403), ("http://127.0.0.1.evil.example", 403)):
            self.assertEqual(wanted, status("localhost", f"Origin: {origin}\r\n"), origin)


class Keys(Case):
    def test_keys(self):
        with self.serve("key=sesame", "key=second") as server:
            def status(path, key=None, host="evil.example"):
                headers = {"Host": host} | ({"Authorization": key} if key is not None else {})
                return server.ask("GET", path, headers=headers)[0]

            self.assertEqual([200, 200, 200], [status("/hello", k) for k in ("Bearer sesame", "bearer sesame", "Bearer second")])
            for key in (None, "", "sesame", "Bearer", "Bearer ", "Bearer sesam", "Bearer sesamee", "Bearer sesamesesame", "Bearer Sesame", "Basic sesame"):
                self.assertEqual(401, status("/hello", key), key)
                self.assertEqual(401, status("/nowhere", key), key)
            self.assertEqual(404, status("/nowhere", "Bearer sesame"))
            self.assertEqual(200, status("/open"))
            self.assertEqual("Bearer", server.ask("GET", "/hello")[2].headers["WWW-Authenticate"])
            with server.connect(post("/echo", length=1 << 20)) as client:  # not a byte of a stranger's body is waited for
                self.assertEqual(401, answer(client)[0])


if __name__ == "__main__":
    unittest.main()
