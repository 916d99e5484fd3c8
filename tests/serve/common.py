"""A server for a test, and clients that do what they should not."""

import http.client
import json
import os
import select
import socket
import struct
import subprocess
import time
import unittest

BINARY = os.environ["WEIR_TEST_BINARY"]
DEADLINE = 600  # seconds; sanitizers and other work make everything slow


class Server:
    """The test's own, with these limits; ended with the `with` block, where it has to end by itself and in good order."""

    def __init__(self, *words):
        self.process = subprocess.Popen([f"{BINARY}/tests/serve-server", *words], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.stderr.read())
        self.port = int(line.split()[1])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.end()

    def stop(self):
        """Asks it to end, and does not wait."""
        self.process.stdin.close()

    def end(self):
        if not self.process.stdin.closed:
            self.stop()
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        output, errors = self.process.stdout.read(), self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        if (self.process.returncode, output.strip(), errors) != (0, "ended", ""):
            raise AssertionError(f"exit {self.process.returncode}, {output!r}, {errors}")

    def connect(self, text=b"", small=False):
        client = socket.socket()
        client.settimeout(DEADLINE)
        if small:  # so that little is on its way in the kernel
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.port))
        client.sendall(text)
        return client

    def ask(self, method, path, body=None, headers=None):
        """(status, body, headers) by http.client."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            client.request(method, path, body, headers or {})
            answer = client.getresponse()
            return answer.status, answer.read(), answer
        finally:
            client.close()

    def stats(self):
        return json.loads(self.ask("GET", "/stats")[1])

    def until(self, **wanted):
        """Waits until the numbers are these, and answers all of them."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            stats = self.stats()
            if all(test(stats[name]) if callable(test) else stats[name] == test for name, test in wanted.items()):
                return stats
            time.sleep(0.005)
        raise AssertionError(f"{wanted} did not come: {stats}")

    def memory(self):
        """Kilobytes of the process that are in memory."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def get(path, extra=""):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n".encode()


def post(path, body=b"", extra="", length=None):
    length = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{extra}\r\n".encode() + body


def rest(client):
    """Everything up to the end of the connection; what arrived before a reset counts."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def answer(client):
    """(status, headers, body) of one answer with a Content-Length or in chunks; the connection goes on."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(1)
        if not part:
            raise AssertionError(f"the connection ended after {data!r}")
        data += part
    lines = data.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:]) if name}
    length = int(headers.get("content-length", 0))
    body = b""
    while len(body) < length:
        part = client.recv(length - len(body))
        if not part:
            raise AssertionError("the body is cut")
        body += part
    return int(lines[0].split()[1]), headers, body


def status_of(data):
    return int(data.split(b" ", 2)[1]) if data.startswith(b"HTTP/1.") else None


def reset(client):
    """Ends the connection with RST."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def readable(client, seconds):
    return bool(select.select([client], [], [], seconds)[0])


class Case(unittest.TestCase):
    def serve(self, *words):
        server = Server(*words)
        self.addCleanup(lambda: server.process.poll() is None and server.process.kill())
        return server
