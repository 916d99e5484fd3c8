#!/usr/bin/env python3
"""Tokens a second of one and of several streams at once, over HTTP: `weir serve`, and llama.cpp's own server beside it.

    serve_streams.py BUILD MODEL [--server llama-server] [--streams 1,8] [--tokens 64] [--prompt 32] [--threads N] [--rounds 3]

Every stream has a prompt of its own and gets all its tokens. Both servers have as many sequences as there are streams at the
most, and the same threads; they run by turns, one at a time."""

import argparse
import http.client
import json
import os
import select
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

WORDS = "the cat sat on a mat and then went out to see what there was in the wide world beyond its old door".split()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def weir(build, model, words, folder):
    """By a manifest, which says how many threads compute."""
    manifest = {"name": "model", "framework": "gguf", "model_file": str(Path(model).resolve()), "tuning": {
        "threads": words.threads, "context": words.context, "sequences": max(words.streams)}}
    path = Path(folder) / "model.json"
    path.write_text(json.dumps(manifest))
    port = free_port()
    return [f"{build}/bin/weir", "serve", str(path), "--port", str(port), "--load", "--workers", "64"], port


def llama(server, model, words, _):
    port, sequences = free_port(), max(words.streams)
    return [server, "-m", model, "--port", str(port), "-np", str(sequences), "-c", str(words.context * sequences), "-t", str(words.threads),
            "-tb", str(words.threads), "-b", "512", "-ub", "512", "--no-warmup", *words.server_words.split()], port


def wait_for(port, process):
    while process.poll() is None:
        try:
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            client.request("GET", "/health")
            if client.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"it ended with {process.returncode}")


def request(port, number, words):
    text = " ".join(WORDS[(number * 7 + i * (number + 1)) % len(WORDS)] for i in range(words.prompt))
    body = json.dumps({"model": "model", "prompt": text, "max_tokens": words.tokens, "temperature": 0, "ignore_eos": True,
                       "stream": True, "cache_prompt": False}).encode()
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                   % len(body) + body)
    client.setblocking(False)
    return client


def processor(process):
    """Seconds that it has computed; children are none of its."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(process, port, streams, words):
    """Tokens a second of all, tokens a second of its processor time, and seconds to the first token of each."""
    began, computed = time.monotonic(), processor(process)
    clients = [request(port, i, words) for i in range(streams)]
    data, first, poll = {c.fileno(): b"" for c in clients}, {}, select.epoll()
    for client in clients:
        poll.register(client, select.EPOLLIN)
    by_file, left = {c.fileno(): c for c in clients}, streams
    while left:
        for file, _ in poll.poll():
            part = by_file[file].recv(65536)
            data[file] += part
            if file not in first and b"data: " in data[file]:
                first[file] = time.monotonic() - began
            if not part or b"data: [DONE]" in data[file]:
                poll.unregister(file)
                left -= 1
    took, computed = time.monotonic() - began, processor(process) - computed
    for client in clients:
        client.close()
    for text in data.values():
        if b" 200 OK" not in text or b"[DONE]" not in text:
            raise SystemExit(text.decode(errors="replace"))
    return streams * words.tokens / took, streams * words.tokens / computed, statistics.median(first.values())


def once(command, words):
    """All numbers of streams with one process of it."""
    argv, port = command
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=os.environ | {"WEIR_PREDICTIONS": "0"})
        try:
            wait_for(port, process)
            measure(process, port, 1, words)
            return {n: measure(process, port, n, words) for n in words.streams}
        finally:
            process.terminate()
            process.wait()


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    words.add_argument("build")
    words.add_argument("model")
    words.add_argument("--server", help="llama.cpp's, built from the sources that the store's llama.cpp is of")
    words.add_argument("--server-words", default="", help="more options for it")
    words.add_argument("--streams", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8])
    words.add_argument("--tokens", type=int, default=64)
    words.add_argument("--prompt", type=int, default=32, help="words")
    words.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    words.add_argument("--context", type=int, default=1024)
    words.add_argument("--rounds", type=int, default=3)
    words = words.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(words.rounds):
            for name, make in (("weir serve", weir), ("llama-server", llama)):
                if name == "weir serve" or words.server:
                    for n, figures in once(make(words.server if make is llama else words.build, words.model, words, folder), words).items():
                        found.setdefault((n, name), []).append(figures)
    for (n, name), rounds in sorted(found.items()):
        speed, each, first = (statistics.median(column) for column in zip(*rounds))
        print(f"{name:13} {n:3} streams  {speed:8.1f} tokens/s  {each:8.1f} a processor second  first token after {first * 1000:7.0f} ms  "
              f"({min(r[0] for r in rounds):.1f} to {max(r[0] for r in rounds):.1f})", flush=True)


if __name__ == "__main__":
    main()
