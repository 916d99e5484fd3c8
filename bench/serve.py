#!/usr/bin/env python3
"""What the HTTP server takes: requests a second by wrk, tokens a second of many streams, memory of idle connections.

    serve.py BUILD [--connections 10000] [--streams 1000]

The server has one processor, its clients the others, where there are two."""

import argparse
import os
import re
import resource
import select
import socket
import subprocess
import time

TOKEN = len(b"data: {\"choices\": [{\"index\": 0, \"text\": \" token\"}]}\n\n")


def start(build, *words):
    process = subprocess.Popen([f"{build}/tests/serve-server", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    for task in os.listdir(f"/proc/{process.pid}/task"):
        os.sched_setaffinity(int(task), {min(os.sched_getaffinity(process.pid))})
    return process, int(process.stdout.readline().split()[1])


def stop(process):
    process.stdin.close()
    process.wait()


def resident(process):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def requests(build, path, connections):
    process, port = start(build)
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", "-d4", "--latency", f"http://127.0.0.1:{port}{path}"],
                         capture_output=True, text=True, check=True).stdout
    stop(process)
    return float(re.search(r"Requests/sec:\s*([\d.]+)", out)[1]), re.search(r"99%\s*(\S+)", out)[1]


def tokens(build, streams, seconds=4):
    """Each has 50 a second from one thread that writes to all; answers how many arrived in a second, of how many written."""
    process, port = start(build)
    clients = []
    poll = select.epoll()
    for _ in range(streams):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET /tokens/100000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.setblocking(False)
        poll.register(client, select.EPOLLIN)
        clients.append(client)
    by_file = {c.fileno(): c for c in clients}
    time.sleep(0.5)
    got, began = 0, None
    while began is None or time.monotonic() - began < seconds:
        for file, _ in poll.poll(1):
            data = by_file[file].recv(65536)
            got += len(data) if began else 0
        began = began or time.monotonic()
    for client in clients:
        client.close()
    stop(process)
    return got / (TOKEN + 6) / seconds  # with the chunk's own six bytes


def idle(build, connections):
    process, port = start(build, f"connections={connections + 10}", "idle_ms=600000", "head_ms=600000")
    before = resident(process)
    clients = []
    for i in range(connections):
        client = socket.socket()
        client.bind((f"127.0.0.{1 + i // 20000}", 0))
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        clients.append(client)
    for client in clients:
        client.recv(4096)
    grown = resident(process) - before
    for client in clients:
        client.close()
    stop(process)
    return grown


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    words.add_argument("build")
    words.add_argument("--connections", type=int, default=10000)
    words.add_argument("--streams", type=int, default=1000)
    words = words.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for path, connections in (("/hello", 64), ("/hello", 512), ("/work", 64)):
        each, late = requests(words.build, path, connections)
        print(f"{path}, {connections} connections: {each:,.0f} requests/s, p99 {late}", flush=True)
    print(f"{words.streams} streams of 50 tokens/s: {tokens(words.build, words.streams):,.0f} tokens/s", flush=True)
    grown = idle(words.build, words.connections)
    print(f"{words.connections} idle connections: {grown / 1024:.0f} MiB, {grown / words.connections:.1f} KiB each")


if __name__ == "__main__":
    main()
