"""weir serve on a bad day: honest clients beside those that go away, send what is none, read slowly, ask for models that fail, and
models that do not fit together; then it is killed and begins again. Honest clients get right answers or an honest refusal, nothing
is kept when all is over, and no thread, connection or request is lost. WEIR_TEST_SECONDS says for how long (the long test: 30
minutes); it ends at once where an honest client is answered wrongly."""

import http.client
import json
import os
import random
import signal
import socket
import threading
import time
import unittest

import harness
from test_serve import DEADLINE, Served

SECONDS = float(os.environ.get("WEIR_TEST_SECONDS", "6"))
CLIENTS = 24
REFUSALS = (429, 503)


class Hostile(Served):
    def setUp(self):
        super().setUp()
        for i in range(4):  # of which two have room at once
            self.write(f"m{i}.echo", f"input t text -1\nweights {24 << 20}\nscratch 65536\nslow {i}\n")
        self.write("said.echo", "input text text -1\ngenerate one two three\n")
        self.write("sick.echo", "input t text -1\nweights 4096\nleaks what\n")
        self.write("large.echo", "input t text -1\nweights 8589934592\n")
        self.begin()
        self.stop, self.wrong, self.answered = threading.Event(), [], {}
        self.lock = threading.Lock()

    def begin(self):
        names = ("m0", "m1", "m2", "m3", "said", "sick", "large")
        self.write("weir.json", json.dumps({
            "budget": "64MiB", "workers": 8, "queue": 32, "drain": 5, "defaults": {"minimum_stay": 0},
            "models": {name: {"path": f"{name}.echo"} for name in names}}))
        self.process = self.serve("--config", "weir.json")

    def note(self, who, answer):
        with self.lock:
            self.answered[who] = self.answered.get(who, 0) + 1
            if answer is not None:
                self.wrong.append((who, answer))
        if answer is not None:
            self.stop.set()

    # ---- those that are honest

    def infer(self, pick):
        text = f"{pick.random()}"
        body = {"inputs": [{"name": "t", "shape": [1], "datatype": "BYTES", "data": [text]}]}
        status, answer = self.ask_here("POST", f"/v2/models/m{pick.randrange(4)}/infer", body)
        right = status == 200 and answer["outputs"][0]["data"] == [text] or status in REFUSALS and answer["error"]
        self.note(f"infer {status}", None if right else answer)

    def stream(self, pick):
        body = {"model": "said", "prompt": "x", "max_tokens": 64, "stream": True}
        status, data = self.ask_here("POST", "/v1/completions", body)
        if status == 200:
            events = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
            text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])
            self.note("stream", None if (text, events[-1]) == ("one two three", "[DONE]") else data)
        else:
            self.note(f"stream {status}", None if status in REFUSALS else data)

    def never_fits(self, pick):
        status, answer = self.ask_here("POST", "/v2/models/large/infer", {"inputs": [{"name": "t", "shape": [1], "datatype": "BYTES", "data": ["x"]}]})
        right = status == 429 or status == 503 and "8" in answer["error"]
        self.note(f"large {status}", None if right else answer)

    def look(self, pick):
        path = pick.choice(["/weir/state", "/v2/models/stats", "/v1/models", "/api/ps", "/healthz"])
        status, answer = self.ask_here("GET", path)
        self.note("look", None if status == 200 or status == 429 and answer["error"] else answer)

    def ask_here(self, method, path, body=None):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            client.request(method, path, json.dumps(body) if body is not None else None)
            answer = client.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if answer.headers["Content-Type"] == "application/json" else data
        finally:
            client.close()

    # ---- those that are not

    def raw(self, data, read=0, linger=0.0):
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end
            try:
                client.sendall(data)
                got = client.recv(read) if read else b""
                self.stop.wait(linger)
                return got
            except OSError:
                return b""

    def goes_away(self, pick):
        body = json.dumps({"inputs": [{"name": "t", "shape": [1], "datatype": "BYTES", "data": ["x" * pick.randrange(4000)]}]})
        head = f"POST /v2/models/m{pick.randrange(4)}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        whole = (head + body).encode()
        self.raw(whole[:pick.randrange(1, len(whole) + 1)], linger=pick.random() * 0.01)
        self.note("goes away", None)

    def is_none(self, pick):
        what = pick.choice([b"\0\1\2\3\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"POST /v2/models/m0/infer HTTP/1.1\r\n\r\n",
                            b"GET /" + b"a" * 20000, b"GET /%zz%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
                            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
                            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                            b"GET /weir/state HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n"])
        got = self.raw(what, read=4096)
        self.note("is none", got if got and not got.split(b" ", 2)[1].startswith(b"4") and b" 505 " not in got else None)

    def wrong_json(self, pick):
        body = pick.choice([b"[" * 10000, b"{}", b'{"model": 1}', b'{"model": "said", "prompt": ' + b"[" * 20 + b"]" * 20 + b"}", b"\xff\xfe",
                            b'{"inputs": [{"name": "t", "shape": [-1], "datatype": "BYTES", "data": [1]}]}'])
        path = pick.choice(["/v1/completions", "/v2/models/m0/infer", "/api/generate", "/v1/embeddings"])
        got = self.raw(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body, read=4096)
        status = got.split(b" ", 2)[1] if got else b""
        self.note("wrong JSON", None if status in (b"", b"400", b"404", b"429", b"503") else got)

    def reads_slowly(self, pick):
        body = json.dumps({"model": "said", "prompt": "x" * 1000, "max_tokens": 64, "stream": True}).encode()
        self.raw(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body, read=1, linger=0.05)
        self.note("reads slowly", None)

    def moves_models(self, pick):
        action = pick.choice(["load", "unload", "suspend", "pin", "unpin"])
        status, answer = self.ask_here("POST", f"/weir/models/{pick.choice(['m0', 'm1', 'sick', 'none'])}/{action}")
        self.note("moves models", None if status in (200, 400, 404, 429, 503) else (status, answer))

    def live(self, seed):
        pick = random.Random(seed)
        ways = [self.infer] * 6 + [self.stream] * 3 + [self.never_fits, self.look, self.goes_away, self.goes_away, self.is_none, self.wrong_json,
                                                      self.reads_slowly, self.moves_models]
        while not self.stop.is_set():
            try:
                pick.choice(ways)(pick)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.note("error", repr(error))

    def a_day(self, seconds):
        threads = [threading.Thread(target=self.live, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds / 5)
        before = self.resident()
        self.stop.wait(seconds * 4 / 5)
        self.stop.set()
        for thread in threads:
            thread.join()
        if os.environ.get("WEIR_TEST_TELL"):
            print(self.answered)
        if self.process.poll() is not None:
            self.fail(self.process.communicate()[1])
        self.assertEqual([], self.wrong[:3])
        if seconds >= 60 and not harness.SANITIZED:
            self.assertLess(self.resident() - before, 32 << 20)
        for who in ("infer 200", "stream", "goes away", "is none", "wrong JSON", "reads slowly", "moves models"):
            self.assertIn(who, self.answered)

    def resident(self):
        """Bytes of its process."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def comes_to_rest(self):
        """Nothing is left of those that are gone, and all memory comes back."""
        end = time.monotonic() + DEADLINE
        while True:
            http_now = self.ask("GET", "/weir/state")[1]["http"]
            if (http_now["waiting"], http_now["handled"], http_now["streams"]) == (0, 1, 0) and http_now["connections"] == 1:
                break
            self.assertLess(time.monotonic(), end, http_now)
            time.sleep(0.02)
        for name in self.names:
            self.assertEqual(200, self.ask("POST", f"/weir/models/{name}/unpin")[0])
            status, answer = self.ask("POST", f"/weir/models/{name}/unload")
            self.assertEqual((200, True), (status, answer["receipt"]["complete"]), (name, answer))
        state = self.ask("GET", "/weir/state")[1]
        self.assertEqual([], state["requests"])
        self.assertEqual((0, 0), (state["devices"][0]["live"], state["devices"][0]["taken"]))

    def test_a_day(self):
        self.a_day(SECONDS)
        self.comes_to_rest()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE)
        self.assertEqual(0, self.process.returncode)

    def test_it_is_killed_and_begins_again(self):
        for _ in range(2):
            threads = [threading.Thread(target=self.until_it_dies, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            while self.answered.get("alive", 0) < 50 and any(thread.is_alive() for thread in threads):
                time.sleep(0.01)
            alive = self.process.poll() is None
            self.process.kill()
            error = self.process.communicate()[1]
            for thread in threads:
                thread.join()
            self.assertTrue(alive and self.answered.get("alive", 0) >= 50, (self.answered, self.wrong[:3], error))
            self.answered.clear()
            self.begin()
            self.assertEqual(200, self.ask("POST", "/v2/models/m0/infer", {"inputs": [{"name": "t", "shape": [1], "datatype": "BYTES", "data": ["a"]}]})[0])
            self.comes_to_rest()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE)
        self.assertEqual(0, self.process.returncode)

    def until_it_dies(self, seed):
        pick = random.Random(seed)
        while True:
            try:
                self.infer(pick)
                self.note("alive", None)
            except (OSError, http.client.HTTPException):
                return


if __name__ == "__main__":
    unittest.main()
