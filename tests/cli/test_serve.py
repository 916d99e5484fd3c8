"""weir serve: the protocols, by plain clients. One engine echoes, so that answers are known; two models are llama.cpp's."""

import base64
import concurrent.futures
import http.client
import json
import math
import multiprocessing.shared_memory
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import harness
from harness import STORE

DEADLINE = 600


class Served(harness.Case):
    def serve(self, *words, **environment):
        """Starts it, and answers its process; self.names are the models."""
        process = subprocess.Popen([harness.COMMAND, "serve", *map(str, words), "--port", "0", "--json"], cwd=self.folder,
                                   env=self.environment(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            if not line:
                self.fail(process.stderr.read())
            text += line
        self.names, address = json.loads(text)["models"], json.loads(text)["address"]
        self.port = int(address.rsplit(":", 1)[1])
        return process

    def end(self, process, status=0):
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=DEADLINE)
        self.assertEqual((status, "", ""), (process.returncode, out, error))

    def ask(self, method, path, body=None, headers=None, raw=False):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            client.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, headers or {})
            answer = client.getresponse()
            self.headers = answer.headers
            data = answer.read()
            return (answer.status, data) if raw else (answer.status, json.loads(data))
        finally:
            client.close()

    def events(self, path, body):
        """What a stream has, up to [DONE]."""
        status, data = self.ask("POST", path, body | {"stream": True}, raw=True)
        self.assertEqual((200, "text/event-stream"), (status, self.headers["Content-Type"]))
        lines = data.decode().split("\n\n")
        self.assertEqual(["data: [DONE]", ""], lines[-2:])
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def figure(self, name):
        return float(next(line.rsplit(" ", 1)[1] for line in self.ask("GET", "/metrics", raw=True)[1].decode().splitlines()
                          if line.startswith(name)))

    def until(self, name, value):
        end = time.monotonic() + DEADLINE
        while self.figure(name) != value:
            self.assertLess(time.monotonic(), end, f"{name} is {self.figure(name)}")
            time.sleep(0.01)


class SharedMemory(Served):
    """Tensors in memory that a client and the server both see."""

    def setUp(self):
        super().setUp()
        self.write("all.echo", "input f f32 -1\ninput h f16 -1\ninput t text -1\n")
        self.memory = multiprocessing.shared_memory.SharedMemory(create=True, size=65536)
        self.addCleanup(self.memory.unlink)
        self.addCleanup(self.memory.close)
        self.key = "/" + self.memory.name.lstrip("/")

    def register(self, name, **body):
        return self.ask("POST", f"/v2/systemsharedmemory/region/{name}/register", {"key": self.key, "offset": 0, "byte_size": 4096} | body)

    def infer(self, inputs, outputs=None):
        body = {"inputs": [{"name": name, "shape": shape, "datatype": kind, "parameters": parameters} for name, shape, kind, parameters in inputs]}
        if outputs:
            body["outputs"] = [{"name": name, "parameters": parameters} for name, parameters in outputs]
        return self.ask("POST", "/v2/models/all/infer", body)

    @staticmethod
    def at(region, offset, size):
        return {"shared_memory_region": region, "shared_memory_offset": offset, "shared_memory_byte_size": size}

    def test_in_and_out(self):
        process = self.serve("all.echo", "--shared-memory")
        self.assertIn("system_shared_memory", self.ask("GET", "/v2")[1]["extensions"])
        self.assertEqual((200, {}), self.register("a", offset=1024))
        self.assertEqual((200, [{"name": "a", "key": self.key, "offset": 1024, "byte_size": 4096}]), self.ask("GET", "/v2/systemsharedmemory/status"))
        numbers, halves, text = struct.pack("<3f", 1, -2.5, 3e38), struct.pack("<2e", 0.5, 2), struct.pack("<I", 3) + b"abc"
        self.memory.buf[1024:1036], self.memory.buf[1040:1044], self.memory.buf[1050:1057] = numbers, halves, text
        status, answer = self.infer([("f", [3], "FP32", self.at("a", 0, 12)), ("h", [2], "FP16", self.at("a", 16, 4)), ("t", [1], "BYTES", self.at("a", 26, 7))],
                                    [("f", self.at("a", 2048, 64)), ("h", self.at("a", 2112, 4)), ("t", {"binary_data": False})])
        self.assertEqual(200, status, answer)
        outputs = {o["name"]: o for o in answer["outputs"]}
        self.assertEqual({"shared_memory_region": "a", "shared_memory_offset": 2048, "shared_memory_byte_size": 12}, outputs["f"]["parameters"])
        self.assertNotIn("data", outputs["f"])
        self.assertEqual(["abc"], outputs["t"]["data"])
        self.assertEqual((numbers, halves), (bytes(self.memory.buf[3072:3084]), bytes(self.memory.buf[3136:3140])))
        self.assertEqual((200, {}), self.ask("POST", "/v2/systemsharedmemory/region/a/unregister"))
        self.assertEqual((200, []), self.ask("GET", "/v2/systemsharedmemory/status"))
        self.assertEqual((200, {}), self.ask("POST", "/v2/systemsharedmemory/unregister"))
        self.end(process)

    def test_what_is_refused(self):
        process = self.serve("all.echo", "--shared-memory")
        for body in ({"key": "/no-such-memory"}, {"key": "/a/../b"}, {"key": ""}, {"byte_size": 65537}, {"offset": 65000}, {"offset": -1}, {"byte_size": 0},
                     {"offset": (1 << 63) - 1, "byte_size": (1 << 63) - 1}, {"key": 1}):
            self.assertEqual(400, self.register("a", **body)[0], body)
        self.assertEqual(200, self.register("a")[0])
        self.assertIn("already", self.register("a")[1]["error"])
        self.assertEqual(404, self.ask("GET", "/v2/systemsharedmemory/region/b/status")[0])
        for part, status in ((self.at("a", 0, 8), 400), (self.at("a", 4088, 12), 400), (self.at("a", -1, 12), 400), (self.at("b", 0, 12), 404),
                             (self.at("a", 1 << 62, 12), 400), ({"shared_memory_region": "a"}, 400), (self.at("a", 0, 12) | {"binary_data_size": 12}, 400)):
            self.assertEqual(status, self.infer([("f", [3], "FP32", part)])[0], part)
        status, answer = self.infer([("f", [3], "FP32", self.at("a", 0, 12))], [("f", self.at("a", 0, 8))])
        self.assertEqual(400, status)
        self.assertIn("12 bytes", answer["error"])
        os.truncate(f"/dev/shm{self.key}", 4)  # behind the server's back
        self.assertIn("shorter", self.infer([("f", [3], "FP32", self.at("a", 0, 12))])[1]["error"])
        self.assertEqual(200, self.ask("GET", "/healthz")[0])
        self.end(process)

    def test_not_without_the_option(self):
        process = self.serve("all.echo")
        self.assertNotIn("system_shared_memory", self.ask("GET", "/v2")[1]["extensions"])
        for answer in (self.register("a"), self.ask("GET", "/v2/systemsharedmemory/status"), self.infer([("f", [3], "FP32", self.at("a", 0, 12))])):
            self.assertEqual(400, answer[0])
            self.assertIn("--shared-memory", answer[1]["error"])
        self.end(process)


class Likely(Served):
    """Probabilities of tokens, some of which cannot come."""

    def test_what_cannot_come_has_the_number_of_openai(self):
        self.write("odd.echo", "input text text -1\ngenerate abcd\nlikely -0.5 -inf nan -2\n")
        self.write("talk.echo", "input messages text -1\ngenerate abcd\nlikely -0.5 -inf nan -2\n")
        process = self.serve(self.folder)
        told = [-0.5, -9999, -9999, -2]
        status, answer = self.ask("POST", "/v1/completions", {"model": "odd", "prompt": "a", "logprobs": 1})
        self.assertEqual(200, status, answer)
        likely = answer["choices"][0]["logprobs"]
        self.assertEqual((list("abcd"), told), (likely["tokens"], likely["token_logprobs"]))
        self.assertEqual([{f"token_id:{i}": told[i]} for i in range(4)], likely["top_logprobs"])
        status, answer = self.ask("POST", "/v1/chat/completions", {"model": "talk", "messages": [{"role": "user", "content": "a"}], "logprobs": True,
                                                                   "top_logprobs": 1})
        self.assertEqual(200, status, answer)
        content = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(list(zip("abcd", told)), [(one["token"], one["logprob"]) for one in content])
        self.assertEqual([[(f"token_id:{i}", told[i])] for i in range(4)],
                         [[(top["token"], top["logprob"]) for top in one["top_logprobs"]] for one in content])
        self.end(process)


class Protocols(Served):
    def setUp(self):
        super().setUp()
        self.write("all.echo", "input f f32 -1\ninput i i64 -1 -1\ninput b bool -1\ninput t text -1\ninput h f16 -1\ninput g bf16 -1\ninput u u64 -1\n")
        self.write("said.echo", "input text text -1\ngenerate Gruß€😀!\n")
        self.write("chat.echo", "input messages text -1\ngenerate yes\n")
        self.write("large.echo", "weights 8589934592\ninput text text -1\n")
        self.write("notes.txt", "no model")
        self.process = self.serve(self.folder)

    def tearDown(self):
        self.end(self.process)

    def infer(self, body, model="all", headers=None):
        return self.ask("POST", f"/v2/models/{model}/infer", body, headers)

    def test_health_and_models(self):
        self.assertEqual(["all", "chat", "large", "said"], [name for name in self.names if name not in ("a", "b")])
        for path in ("/healthz", "/health"):
            self.assertEqual((200, {"status": "ok"}), self.ask("GET", path))
        self.assertEqual((200, {"live": True}), self.ask("GET", "/v2/health/live"))
        self.assertEqual((200, {"ready": True}), self.ask("GET", "/v2/health/ready"))
        self.assertEqual(["name", "version", "extensions"], list(self.ask("GET", "/v2/")[1]))
        self.assertEqual(200, self.ask("GET", "/v2/models/all/versions/1/ready")[0])
        status, model = self.ask("GET", "/v2/models/all")
        self.assertEqual((200, "all", "echo"), (status, model["name"], model["platform"]))
        self.assertEqual({"name": "i", "datatype": "INT64", "shape": [-1, -1]}, model["inputs"][1])
        self.assertEqual("BYTES", model["inputs"][3]["datatype"])
        self.assertIn("no model", self.ask("GET", "/v2/models/none")[1]["error"])
        self.assertEqual(404, self.ask("GET", "/v2/models/none/ready")[0])
        self.assertEqual(set(self.names), {m["id"] for m in self.ask("GET", "/v1/models")[1]["data"]})
        self.assertEqual("all", self.ask("GET", "/v1/models/all")[1]["id"])
        self.assertEqual("not_found", self.ask("GET", "/v1/models/none")[1]["error"]["code"])
        self.assertEqual("not_found", self.ask("GET", "/v1/none")[1]["error"]["code"])
        self.assertEqual({"error": "nothing is served at this path"}, self.ask("GET", "/v2/none")[1])

    def test_numbers(self):
        status, answer = self.infer({"id": "7", "inputs": [
            {"name": "f", "shape": [3], "datatype": "FP32", "data": [1, 2.5, -3e38]},
            {"name": "i", "shape": [2, 2], "datatype": "INT64", "data": [[1, -2], [3, 1 << 62]]},
            {"name": "b", "shape": [2], "datatype": "BOOL", "data": [True, 0]}]})
        self.assertEqual((200, "7", "all"), (status, answer["id"], answer["model_name"]))
        f, i, b = answer["outputs"]
        self.assertEqual([1, 2.5], f["data"][:2])
        self.assertEqual(([2, 2], [1, -2, 3, 1 << 62]), (i["shape"], i["data"]))
        self.assertEqual([True, False], b["data"])
        for kind, wrong in (("BOOL", -1), ("BOOL", 2), ("BOOL", 0.5), ("INT64", 1.5), ("FP32", True)):
            name = {"BOOL": "b", "INT64": "i", "FP32": "f"}[kind]
            refused = self.infer({"inputs": [{"name": name, "shape": [1], "datatype": kind, "data": [wrong]}]})
            self.assertEqual(400, refused[0], (kind, wrong, refused[1]))
        one = {"inputs": [{"name": "t", "shape": [2], "datatype": "BYTES", "data": ["a", "ö"]}]}
        self.assertEqual(["a\nö"], self.infer(one)[1]["outputs"][0]["data"])
        self.assertEqual([], self.infer({"inputs": [{"name": "f", "shape": [0], "datatype": "FP32", "data": []}]})[1]["outputs"][0]["data"])

    def test_outputs_that_there_are_not(self):
        given = {"inputs": [{"name": "f", "shape": [1], "datatype": "FP32", "data": [1]}]}
        for outputs in ([{"name": "nope"}], [{"name": "f"}, {"name": "nope"}], [{}], [{"name": 3}], ["f"], {"name": "f"}, "f"):
            status, refused = self.infer({**given, "outputs": outputs})
            self.assertEqual(400, status, (outputs, refused))
            self.assertIn("'outputs' is an array" if not isinstance(outputs, list) else "no output '", refused["error"])
        self.assertEqual([1], self.infer({**given, "outputs": [{"name": "f"}]})[1]["outputs"][0]["data"])

    def test_bytes(self):
        numbers = struct.pack("<3f", 1, 2, 3)
        text = struct.pack("<I", 3) + b"a\0b"
        head = json.dumps({"inputs": [
            {"name": "f", "shape": [3], "datatype": "FP32", "parameters": {"binary_data_size": len(numbers)}},
            {"name": "h", "shape": [2], "datatype": "FP16", "parameters": {"binary_data_size": 4}},
            {"name": "t", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(text)}}],
            "outputs": [{"name": "t", "parameters": {"binary_data": True}}, {"name": "h"},
                        {"name": "f", "parameters": {"binary_data": False}}]}).encode()
        status, data = self.ask("POST", "/v2/models/all/infer", head + numbers + b"abcd" + text,
                                {"Inference-Header-Content-Length": str(len(head))}, raw=True)
        self.assertEqual(200, status, data)
        length = int(self.headers["Inference-Header-Content-Length"])
        outputs = json.loads(data[:length])["outputs"]
        self.assertEqual(["f", "h", "t"], [o["name"] for o in outputs])
        self.assertEqual([1, 2, 3], outputs[0]["data"])
        self.assertEqual(b"abcd" + text, data[length:])
        self.assertEqual(400, self.ask("POST", "/v2/models/all/infer", head + numbers + b"abcd" + text + b"x",
                                       {"Inference-Header-Content-Length": str(len(head))})[0])
        for length in ("0", "-1", "x", str(len(head) + 100)):
            self.assertEqual(400, self.ask("POST", "/v2/models/all/infer", head, {"Inference-Header-Content-Length": length})[0])

    def shown(self, name, kind, data, size):
        """What the output of these bytes is as JSON."""
        head = json.dumps({"inputs": [{"name": name, "shape": [len(data) // size], "datatype": kind, "parameters": {"binary_data_size": len(data)}}],
                           "outputs": [{"name": name, "parameters": {"binary_data": False}}]}).encode()
        status, answer = self.ask("POST", "/v2/models/all/infer", head + data, {"Inference-Header-Content-Length": str(len(head))})
        self.assertEqual(200, status, answer)
        self.assertNotIn("parameters", answer["outputs"][0])
        return answer["outputs"][0]["data"]

    def test_halves_are_shown_as_their_values(self):
        """Every FP16 and BF16 there is, but what JSON has no number for."""
        every = struct.pack("<65536H", *range(65536))
        halves = struct.unpack("<65536e", every)
        brains = struct.unpack("<65536f", b"".join(b"\0\0" + every[at:at + 2] for at in range(0, len(every), 2)))
        for name, kind, values in (("h", "FP16", halves), ("g", "BF16", brains)):
            finite = [at for at, value in enumerate(values) if math.isfinite(value)]
            shown = zip([values[at] for at in finite], self.shown(name, kind, b"".join(every[2 * at:][:2] for at in finite), 2), strict=True)
            self.assertEqual([], [pair for pair in shown if pair[0] != pair[1]][:9], kind)
            self.assertEqual([values[0xbe00]], self.shown(name, kind, every[2 * 0xbe00:][:2], 2))

    def test_numbers_that_json_does_not_have(self):
        """Of a tensor they are binary data; of vectors OpenAI's base64 has them."""
        for kind, name, one, wrong in (("FP32", "f", b"\0\0\x80\x3f", (b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\0\0\xc0\x7f")), ("FP16", "h", b"\0\x3c", (b"\0\x7c",)),
                                       ("BF16", "g", b"\x80\x3f", (b"\x80\xff",))):
            for number in wrong:
                data = one + one + number
                head = {"inputs": [{"name": name, "shape": [3], "datatype": kind, "parameters": {"binary_data_size": len(data)}}]}
                for binary in (False, True):
                    text = json.dumps(head | {"outputs": [{"name": name, "parameters": {"binary_data": binary}}]}).encode()
                    status, answer = self.ask("POST", "/v2/models/all/infer", text + data, {"Inference-Header-Content-Length": str(len(text))}, raw=True)
                    self.assertEqual(200 if binary else 500, status, (kind, number))
                    if binary:
                        self.assertEqual(data, answer[-len(data):])
                    else:
                        self.assertRegex(json.loads(answer)["error"], f"'all' .* not finite at position 2 of the output '{name}'.* binary_data")
        self.write("odd.echo", "input text text -1\nvector 1 -inf nan\n")
        self.write("even.echo", "input text text -1\nvector 1 0.5 -2\n")
        process = self.serve("odd.echo", "even.echo")
        for words, status in (({}, 500), ({"encoding_format": "float"}, 500), ({"encoding_format": "base64"}, 200)):
            got, answer = self.ask("POST", "/v1/embeddings", {"model": "odd", "input": ["a", "b"]} | words)
            self.assertEqual(status, got, answer)
            if status == 200:
                rows = [struct.unpack("<3f", base64.b64decode(e["embedding"])) for e in answer["data"]]
                self.assertEqual([[1, -math.inf]] * 2, [list(row[:2]) for row in rows])
                self.assertTrue(all(math.isnan(row[2]) for row in rows))
            else:
                self.assertEqual("server_error", answer["error"]["type"])
                self.assertRegex(answer["error"]["message"], "'odd' .* not finite at position 1 of vector 0.* base64")
        for path, field in (("embed", "input"), ("embeddings", "prompt")):
            status, answer = self.ask("POST", f"/api/{path}", {"model": "odd", field: "a"})
            self.assertEqual((500, ["error"]), (status, list(answer)))
            self.assertIn("not finite", answer["error"])
            self.assertEqual(200, self.ask("POST", f"/api/{path}", {"model": "even", field: "a"})[0])
        self.assertEqual([[1, 0.5, -2]] * 2, [e["embedding"] for e in self.ask("POST", "/v1/embeddings", {"model": "even", "input": ["a", "b"]})[1]["data"]])
        self.end(process)

    def test_large_whole_numbers(self):
        large = [0, (1 << 53) + 1, (1 << 63) - 1]
        answer = self.infer({"inputs": [{"name": "u", "shape": [3], "datatype": "UINT64", "data": large}]})[1]
        self.assertEqual(large, answer["outputs"][0]["data"])
        self.assertEqual([(1 << 63) - 1, 2.0 ** 63, 2.0 ** 64], self.shown("u", "UINT64", struct.pack("<3Q", (1 << 63) - 1, 1 << 63, (1 << 64) - 1), 8))
        least = [-(1 << 63), -(1 << 53) - 1]
        answer = self.infer({"inputs": [{"name": "i", "shape": [1, 2], "datatype": "INT64", "data": least}]})[1]
        self.assertEqual(least, answer["outputs"][0]["data"])

    def test_wrong_tensors(self):
        good = {"name": "f", "shape": [2], "datatype": "FP32", "data": [1, 2]}
        for change in ({"name": None}, {"shape": [3]}, {"shape": [1]}, {"shape": [-1]}, {"shape": 2}, {"shape": [1 << 40, 1 << 40]},
                       {"shape": [1] * 17}, {"datatype": "FP8"}, {"datatype": "FP16"}, {"data": ["a", "b"]}, {"data": {}},
                       {"data": [1, None]}, {"data": [1, 1e39]}, {"datatype": "INT8", "data": [1, 128]}, {"datatype": "UINT64", "data": [1, -1]},
                       {"datatype": "INT32", "data": [1, 1.5]}, {"datatype": "INT64", "data": [1, 1e16]}, {"data": [1, 2, 3]}, {"datatype": "BYTES", "data": ["a\nb", "c"]},
                       {"parameters": {"binary_data_size": 8}}, {"data": None, "parameters": {"binary_data_size": -8}}):
            status, answer = self.infer({"inputs": [good | change]})
            self.assertEqual(400, status, change)
            self.assertIn("error", answer)
        self.assertEqual(200, self.infer({"inputs": [good]})[0])
        for body in ({}, {"inputs": []}, {"inputs": [1]}, {"inputs": {}}):
            self.assertEqual(400, self.infer(body)[0], body)
        self.assertEqual(404, self.infer({"inputs": [good]}, "none")[0])

    def test_hostile_json(self):
        for body in (b"", b"{", b"[]", b"null", b'{"a": 1, "a": 2}', b"\xff{}", b"[" * 100000, b'{"a": ' * 33 + b"1" + b"}" * 33,
                     b'{"a": [' + b"1," * (5 << 20) + b"1]}"):
            for path in ("/v1/completions", "/v2/models/all/infer"):
                self.assertEqual(400, self.ask("POST", path, body)[0], body[:20])
        self.assertEqual(413, self.ask("POST", "/v1/completions", b" " * (17 << 20))[0])

    def test_completions(self):
        body = {"model": "said", "prompt": "Hello", "max_tokens": 3}
        status, answer = self.ask("POST", "/v1/completions", body)
        self.assertEqual((200, "text_completion", "said"), (status, answer["object"], answer["model"]))
        self.assertEqual("Hello", answer["choices"][0]["text"])
        self.assertEqual({"prompt_tokens", "completion_tokens", "total_tokens"}, set(answer["usage"]))
        events = self.events("/v1/completions", body | {"stream_options": {"include_usage": True}})
        self.assertEqual("Gruß€😀!", "".join(e["choices"][0]["text"] for e in events[:-1]))
        self.assertEqual("stop", events[-2]["choices"][0]["finish_reason"])
        self.assertEqual(([], True), (events[-1]["choices"], "usage" in events[-1]))
        self.assertEqual(1, len({e["id"] for e in events}))
        several = self.ask("POST", "/v1/completions", body | {"prompt": ["a", "b"], "n": 2})[1]["choices"]
        self.assertEqual([(0, "a"), (1, "a"), (2, "b"), (3, "b")], [(c["index"], c["text"]) for c in several])
        events = self.events("/v1/completions", body | {"n": 2})
        self.assertEqual(["Gruß€😀!"] * 2, ["".join(e["choices"][0]["text"] for e in events if e["choices"][0]["index"] == i) for i in (0, 1)])
        tokens = {"inputs": [{"name": "i", "shape": [1, 2], "datatype": "INT64", "data": [7.0, -2.0]}]}
        self.assertEqual([7, -2], self.infer(tokens)[1]["outputs"][0]["data"])
        for change in ({"model": None}, {"model": 7}, {"prompt": ""}, {"prompt": None}, {"prompt": ["a", ""]}, {"n": 0}, {"n": 65}, {"n": 1.5}, {"logprobs": 21}, {"suffix": "x"},
                       {"echo": True}, {"best_of": 2}, {"tools": [{}]}, {"response_format": {"type": "json_object"}},
                       {"logit_bias": {"5": 1}}, {"logit_bias": []}, {"audio": {"voice": "a"}}, {"modalities": ["text", "audio"]}, {"function_call": "auto"},
                       {"functions": [{"name": "f"}]}, {"reasoning_effort": "high"}, {"verbosity": "low"}, {"web_search_options": {}},
                       {"max_tokens": "3"}, {"temperature": []}, {"stop": 3}, {"stop": [""]}):
            status, answer = self.ask("POST", "/v1/completions", body | change)
            self.assertEqual((400, "invalid_request_error"), (status, answer["error"]["type"]), change)
            name = next(iter(change))
            if name not in ("model", "prompt", "stop"):
                self.assertIn(f"'{name if name != 'functions' else 'tools'}'", answer["error"]["message"])
        harmless = {"logit_bias": {}, "audio": None, "modalities": ["text"], "function_call": "none", "reasoning_effort": "none", "verbosity": "medium",
                    "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "prediction": None, "parallel_tool_calls": True,
                    "prompt_cache_key": "k", "safety_identifier": "s", "tool_choice": "none", "tools": [{}], "nobodys": 1}
        self.assertEqual(200, self.ask("POST", "/v1/completions", body | harmless)[0])
        self.assertEqual(404, self.ask("POST", "/v1/completions", body | {"model": "none"})[0])
        self.assertEqual("unsupported", self.ask("POST", "/v1/completions", body | {"model": "all"})[1]["error"]["code"])

    def test_chats(self):
        body = {"model": "chat", "messages": [{"role": "developer", "content": "Be brief.\nuser 3"},
                                              {"role": "user", "content": [{"type": "text", "text": "Hö"}, {"type": "text", "text": "!"}]}]}
        status, answer = self.ask("POST", "/v1/chat/completions", body)
        self.assertEqual((200, "chat.completion", "assistant"), (status, answer["object"], answer["choices"][0]["message"]["role"]))
        events = self.events("/v1/chat/completions", body)
        self.assertEqual("assistant", events[0]["choices"][0]["delta"]["role"])
        self.assertEqual("yes", "".join(e["choices"][0]["delta"].get("content", "") for e in events))
        self.assertEqual({"chat.completion.chunk"}, {e["object"] for e in events})
        for messages in ([], None, "hi", [{}], [{"role": "user"}], [{"role": "a b", "content": "x"}], [{"role": "user", "content": 3}],
                         [{"role": "user", "content": [{"type": "image_url"}]}]):
            self.assertEqual(400, self.ask("POST", "/v1/chat/completions", body | {"messages": messages})[0], messages)

    def test_generate(self):
        body = {"id": "7", "text_input": "Hello", "parameters": {"max_tokens": 3, "bad_words": [""], "stop_words": [""]}}
        status, answer = self.ask("POST", "/v2/models/said/generate", body)
        self.assertEqual((200, {"id": "7", "model_name": "said", "model_version": "1", "text_output": "Hello"}), (status, answer))
        for path in ("/v2/models/said/generate_stream", "/v2/models/said/versions/1/generate_stream"):
            status, data = self.ask("POST", path, body, raw=True)
            self.assertEqual((200, "text/event-stream"), (status, self.headers["Content-Type"]))
            events = [json.loads(e.removeprefix("data: ")) for e in data.decode().split("\n\n")[:-1]]
            self.assertEqual(list("Gruß€😀!") + [""], [e["text_output"] for e in events])
            self.assertEqual({"7"}, {e["id"] for e in events})
        for change in ({"text_input": None}, {"text_input": ""}, {"text_input": ["a"]}, {"parameters": []},
                       {"parameters": {"bad_words": ["a"]}}, {"parameters": {"stop": 3}}, {"parameters": {"stop_words": [None]}}):
            for kind in ("generate", "generate_stream"):
                self.assertEqual(400, self.ask("POST", f"/v2/models/said/{kind}", body | change)[0], change)
        self.assertEqual((400, {"error": "the model 'all' makes no text"}), self.ask("POST", "/v2/models/all/generate_stream", body))
        self.assertEqual(404, self.ask("POST", "/v2/models/none/generate", body)[0])

    def statistics(self, path="/v2/models/said/stats"):
        return self.ask("GET", path)[1]["model_stats"]

    def test_statistics(self):
        zero = {"count": 0, "ns": 0}
        before = self.statistics("/v2/models/stats")
        self.assertEqual(self.names, [m["name"] for m in before])
        self.assertEqual({"success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"},
                         set(before[0]["inference_stats"]))
        self.assertEqual([zero] * 8, list(before[0]["inference_stats"].values()))
        self.assertEqual((0, 0, 0, [], []), tuple(before[0][k] for k in ("last_inference", "inference_count", "execution_count",
                                                                         "batch_stats", "memory_usage")))
        text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
        for _ in range(2):
            self.assertEqual(200, self.infer({"inputs": [text]}, "said")[0])
        self.assertEqual(400, self.infer({"inputs": [text, text]}, "said")[0])
        self.assertEqual(200, self.ask("GET", "/v2/models/said")[0])  # is no inference
        end, counted = time.monotonic() + DEADLINE, 0
        while counted != 3 and time.monotonic() < end:  # when all is done, which may be after the answer
            one, = self.statistics("/v2/models/said/versions/1/stats")
            stats = one["inference_stats"]
            counted = stats["success"]["count"] + stats["fail"]["count"]
        self.assertEqual((2, 2, 1), (one["inference_count"], one["execution_count"], stats["fail"]["count"]))
        self.assertEqual({2}, {stats[k]["count"] for k in ("success", "queue", "compute_input", "compute_infer", "compute_output")})
        parts = sum(stats[k]["ns"] for k in ("queue", "compute_input", "compute_infer", "compute_output"))
        self.assertEqual(stats["success"]["ns"], parts)
        self.assertLess(0, stats["queue"]["ns"])
        self.assertEqual((1, stats["compute_infer"]), (one["batch_stats"][0]["batch_size"], one["batch_stats"][0]["compute_infer"]))
        self.assertLess(abs(time.time() * 1000 - one["last_inference"]), 1000 * DEADLINE)
        self.assertEqual(404, self.ask("GET", "/v2/models/none/stats")[0])

    def test_statistics_are_of_one_time(self):
        text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
        runs = 4

        def run(_):
            return [self.infer({"inputs": [text]}, "said")[0] for _ in range(20)]

        with concurrent.futures.ThreadPoolExecutor(runs) as others:
            running = [others.submit(run, i) for i in range(runs)]
            while True:
                over = all(r.done() for r in running)
                one, = self.statistics()
                stats = one["inference_stats"]
                parts = [stats[k] for k in ("queue", "compute_input", "compute_infer", "compute_output")]
                self.assertEqual({one["inference_count"]}, {p["count"] for p in parts})
                self.assertEqual(stats["success"], {"count": one["inference_count"], "ns": sum(p["ns"] for p in parts)})
                self.assertEqual(one["execution_count"], one["inference_count"])
                for batch in one["batch_stats"]:
                    self.assertEqual([1] + parts[1:], [batch[k] for k in ("batch_size", "compute_input", "compute_infer", "compute_output")])
                if over:
                    break
        self.assertEqual({200}, {status for r in running for status in r.result()})

    def test_configuration(self):
        for path in ("/v2/models/all/config", "/v2/models/all/versions/1/config"):
            status, config = self.ask("GET", path)
            self.assertEqual((200, "all", "echo", 0), (status, config["name"], config["backend"], config["max_batch_size"]))
        self.assertEqual({"name": "i", "data_type": "TYPE_INT64", "dims": [-1, -1], "optional": False}, config["input"][1])
        self.assertEqual("TYPE_STRING", config["output"][3]["data_type"])
        self.assertEqual([{"name": "all", "count": 1, "kind": "KIND_CPU"}], config["instance_group"])
        self.assertEqual({"decoupled": True}, self.ask("GET", "/v2/models/said/config")[1]["model_transaction_policy"])
        self.assertEqual(404, self.ask("GET", "/v2/models/none/config")[0])

    def test_what_is_not_there(self):
        for method, path in (("GET", "systemsharedmemory/status"), ("POST", "systemsharedmemory/region/r/register"),
                             ("POST", "systemsharedmemory/region/r/unregister"), ("POST", "systemsharedmemory/unregister"),
                             ("GET", "systemsharedmemory/region/r/status"), ("GET", "cudasharedmemory/status"),
                             ("POST", "cudasharedmemory/region/r/register"), ("GET", "trace/setting"), ("POST", "trace/setting"),
                             ("POST", "models/all/trace/setting"), ("GET", "logging"), ("POST", "logging")):
            status, answer = self.ask(method, "/v2/" + path, {} if method == "POST" else None)
            self.assertEqual(400, status, path)
            self.assertIn("--shared-memory" if "system" in path else "cannot be set" if path == "logging" else "not supported here", answer["error"])

    def test_loading(self):
        def states():
            return {m["name"]: (m["state"], m["reason"]) for m in self.ask("POST", "/v2/repository/index", {})[1]}

        self.assertEqual(("UNAVAILABLE", "unloaded"), states()["said"])
        self.assertEqual((200, {}), self.ask("POST", "/v2/repository/models/said/load", {}))
        self.assertEqual(("READY", ""), states()["said"])
        self.assertEqual(1, self.figure('weir_model_loaded{model="said"}'))
        self.assertEqual((200, {}), self.ask("POST", "/v2/repository/models/said/unload", {"parameters": {"unload_dependents": False}}))
        self.assertEqual((200, {}), self.ask("POST", "/v2/repository/models/said/unload"))
        self.assertEqual("UNAVAILABLE", states()["said"][0])
        self.assertEqual(404, self.ask("POST", "/v2/repository/models/none/load", {})[0])
        status, answer = self.ask("POST", "/v1/completions", {"model": "large", "prompt": "a"})
        self.assertEqual((503, "insufficient_memory", None), (status, answer["error"]["code"], self.headers["Retry-After"]))
        self.assertEqual(503, self.ask("GET", "/v2/models/large/ready")[0])
        self.assertIn("it takes 8", states()["large"][1])
        self.assertEqual((200, {"status": "ok"}), self.ask("GET", "/health"))

    def test_one_load_for_many(self):
        answers = []

        def ask():
            answers.append(self.ask("POST", "/v1/completions", {"model": "said", "prompt": "a"})[0])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([200] * 8, answers)
        self.assertEqual(8, self.figure('weir_model_runs_total{model="said"}'))


class Room(Served):
    def test_idle_models_make_room(self):
        """Each has two thirds of the budget."""
        for name in ("a", "b"):
            self.write(f"{name}.echo", "weights 33554432\ninput text text -1\ngenerate yes\n")
        process = self.serve("a.echo", "b.echo", "--budget", "48MiB", "--queue", "0")
        for name in ("a", "b", "a"):
            self.assertEqual(200, self.ask("POST", "/v1/completions", {"model": name, "prompt": "a"})[0])
        self.assertEqual((2, 1), tuple(self.figure(f'weir_model_loads_total{{model="{name}"}}') for name in ("a", "b")))
        self.assertEqual((1, 0), tuple(self.figure(f'weir_model_loaded{{model="{name}"}}') for name in ("a", "b")))
        self.assertEqual(1, self.figure('weir_model_evictions_total{model="b"}'))
        self.end(process)

    def test_a_busy_model_stays(self):
        """What it is in the way of waits, and its client goes."""
        self.write("slow.echo", "weights 33554432\ninput text text -1\nslow 3600000\ngenerate a")
        self.write("b.echo", "weights 33554432\ninput text text -1\ngenerate yes\n")
        process = self.serve("slow.echo", "b.echo", "--budget", "48MiB", "--drain", "0")

        def begin(name):
            body = json.dumps({"model": name, "prompt": "a"}).encode()
            client = socket.create_connection(("127.0.0.1", self.port))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return client

        with begin("slow"):
            self.until('weir_model_loaded{model="slow"}', 1)
            with begin("b"):
                self.until('weir_model_requests_waiting{model="b"}', 1)
            self.until('weir_model_requests_waiting{model="b"}', 0)
            self.assertEqual(1, self.figure('weir_model_loaded{model="slow"}'))
            self.assertEqual(0, self.figure('weir_model_loads_total{model="b"}'))
        self.until('weir_model_cancelled_total{model="slow"}', 1)
        self.assertEqual(200, self.ask("POST", "/v1/completions", {"model": "b", "prompt": "a"})[0])
        self.end(process)


class Ends(Served):
    def test_a_client_that_goes(self):
        """Its run would last an hour; nothing is read or written meanwhile."""
        self.write("slow.echo", "input text text -1\nslow 3600000\ngenerate a")
        process = self.serve("slow.echo", "--load")
        body = json.dumps({"model": "slow", "prompt": "a"}).encode()
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.until("weir_http_requests_running", 2)
        self.until("weir_http_requests_running", 1)  # the one that asks; the other may have gone before its run began
        self.assertEqual(0, self.figure('weir_model_failures_total{model="slow"}'))
        self.assertEqual(1, self.figure("weir_http_cancelled_total"))
        self.end(process)

    def test_a_signal(self):
        """What runs when it comes is cancelled when --drain is over."""
        self.write("slow.echo", "input text text -1\nslow 3600000\ngenerate a")
        process = self.serve("slow.echo", "--drain", "0", "--workers", "1")
        body = json.dumps({"model": "slow", "prompt": "a"}).encode()
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            while self.ask("GET", "/v2/health/live")[0] != 200:
                continue
            self.end(process)

    def test_keys_and_words(self):
        process = self.serve("a.toy", "b.toy", "--key", "sesame")
        self.assertEqual(["a", "b"], self.names)
        self.assertEqual(200, self.ask("GET", "/healthz")[0])
        self.assertEqual("bad_key", self.ask("GET", "/v1/models")[1]["error"]["code"])
        self.assertEqual(200, self.ask("GET", "/v1/models", headers={"Authorization": "Bearer sesame"})[0])
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertIn("in use", self.refused("serve", "a.toy", "--port", str(taken.getsockname()[1]), status=1))
        self.end(process)
        self.assertIn("which models", self.refused("serve"))
        self.assertIn("none.toy", self.refused("serve", "none.toy", status=1))
        self.assertIn("called 'a'", self.refused("serve", "a.toy", "a.toy", status=1))
        (self.folder / "empty").mkdir()
        self.assertIn("holds no model", self.refused("serve", "empty", status=1))
        self.assertIn("--budget", self.refused("serve", "a.toy", "--budget", "much"))
        self.assertIn("belong together", self.refused("serve", "a.toy", "--certificate", "a.toy"))


def missing():
    needed = [STORE / "engines/llama/current", STORE / "models/tiny-llama.gguf", STORE / "models/minilm.gguf",
              harness.BUILD / "lib/weir/weir-engine-gguf.so"]
    return ", ".join(str(path) for path in needed if not path.exists())


@unittest.skipIf(missing(), f"not here: {missing()}")
class Engines(Served):
    def environment(self, more):
        return super().environment({"WEIR_HOME": str(STORE), "WEIR_ENGINE_PATH": str(harness.BUILD / "lib/weir"), **more})

    def test_texts_and_vectors(self):
        process = self.serve("tiny-llama.gguf", "minilm.gguf")
        body = {"model": "tiny-llama", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
        status, whole = self.ask("POST", "/v1/completions", body)
        self.assertEqual((200, 4, "length"), (status, whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"]))
        text = whole["choices"][0]["text"]
        self.assertEqual(text, "".join(e["choices"][0]["text"] for e in self.events("/v1/completions", body)))
        stopped = self.ask("POST", "/v1/completions", body | {"stop": [text[3:6], "\n"]})[1]["choices"][0]
        self.assertEqual((text[:3], "stop"), (stopped["text"], stopped["finish_reason"]))
        self.assertEqual(400, self.ask("POST", "/v1/completions", body | {"top_p": 7})[0])
        biased = self.ask("POST", "/v1/completions", body | {"logit_bias": {"300": 100, "2": -100}})[1]["choices"][0]["text"]
        self.assertEqual(biased[:len(biased) // 4] * 4, biased)  # one token, four times
        self.assertNotEqual(text, biased)
        for bias in ({"x": 1}, {"-1": 1}, {"3": "1"}, {"3": 101}, [3]):
            status, answer = self.ask("POST", "/v1/completions", body | {"logit_bias": bias})
            self.assertEqual(400, status, bias)
            self.assertIn("'logit_bias'", answer["error"]["message"])
        self.assertEqual(400, self.ask("POST", "/v1/completions", body | {"model": "minilm"})[0])
        wanted = {"model": "minilm", "input": ["a cat", "two\ncats"]}
        floats = [e["embedding"] for e in self.ask("POST", "/v1/embeddings", wanted)[1]["data"]]
        self.assertEqual([384, 384], [len(row) for row in floats])
        coded = self.ask("POST", "/v1/embeddings", wanted | {"encoding_format": "base64"})[1]["data"]
        rows = [list(struct.unpack("<384f", base64.b64decode(e["embedding"]))) for e in coded]
        self.assertEqual(floats, rows)
        for change in ({"input": [""]}, {"dimensions": 10}, {"encoding_format": "hex"}, {"encoding_format": 1}):
            self.assertEqual(400, self.ask("POST", "/v1/embeddings", wanted | change)[0], change)
        self.assertEqual(200, self.ask("POST", "/v1/embeddings", wanted | {"dimensions": None, "encoding_format": None, "user": "u"})[0])
        self.assertEqual(400, self.ask("POST", "/v1/embeddings", wanted | {"model": "tiny-llama"})[0])
        self.end(process)

    def test_runs_decoded_together(self):
        """Each answers what it answers alone, whatever else is under way, and one that goes leaves the others alone."""
        bodies = [{"model": "tiny-llama", "prompt": "Once upon a time " * (1 + 5 * (i % 3)), "max_tokens": 5 + i, "ignore_eos": True,
                   "temperature": 0 if i % 2 else 0.8, "seed": i} for i in range(6)]
        self.write("one.json", json.dumps({"name": "tiny-llama", "model_file": str(STORE / "models/tiny-llama.gguf"), "tuning": {"threads": 1}}))
        process = self.serve("one.json", "--sequences", "1")
        alone = [self.ask("POST", "/v1/completions", body)[1]["choices"][0]["text"] for body in bodies]
        self.end(process)
        process = self.serve("one.json", "--load")
        together, streams = [None] * len(bodies), []
        for _ in range(2):  # these stay under way until they go: so all of them are computed together
            client = socket.create_connection(("127.0.0.1", self.port))
            body = json.dumps(bodies[0] | {"max_tokens": 2000, "stream": True}).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            streams.append(client)
        for client in streams:
            self.assertIn(b"200 OK", client.recv(100))

        def ask(i):
            together[i] = self.ask("POST", "/v1/completions", bodies[i])[1]["choices"][0]["text"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(alone, together)
        self.assertEqual(2, self.figure("weir_http_streams"))
        for client in streams:
            client.close()
        self.until("weir_http_streams", 0)
        self.assertEqual(alone[0], self.ask("POST", "/v1/completions", bodies[0])[1]["choices"][0]["text"])
        self.end(process)


ENGINE = [STORE / "engines/onnxruntime/current", harness.BUILD / "lib/weir/weir-engine-onnx.so"]


@unittest.skipIf(any(not path.exists() for path in ENGINE), "ONNX Runtime is not here")
class Joined(Served):
    def environment(self, more):
        return super().environment({"WEIR_HOME": str(STORE), "WEIR_ENGINE_PATH": str(harness.BUILD / "lib/weir"), **more})

    def test_requests_computed_together(self):
        """Four of one row each wait for one another, an hour if need be; a fifth of four rows does not."""
        self.write("joined.json", json.dumps({
            "name": "joined", "model_file": str(harness.SOURCE / "tests/data/onnx/joined.onnx"),
            "tuning": {"max_batch_size": 4, "max_queue_delay_microseconds": 60000000}}))
        process = self.serve("joined.json")
        answers = [None] * 4

        def ask(i):
            answers[i] = self.ask("POST", "/v2/models/joined/infer", {"inputs": [
                {"name": "ids", "shape": [1, 3], "datatype": "INT64", "data": [i, i + 1, 50]},
                {"name": "scale", "shape": [1, 1], "datatype": "INT64", "data": [i]}]})[1]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in range(4):
            self.assertEqual([[i * (1000 + i), i * (1001 + i), i * 1050], [i * (3051 + 2 * i)]], [o["data"] for o in answers[i]["outputs"]])
            self.assertEqual([[1, 3], [1]], [o["shape"] for o in answers[i]["outputs"]])
        end, counted = time.monotonic() + DEADLINE, 0
        while counted != 4 and time.monotonic() < end:
            stats, = self.ask("GET", "/v2/models/joined/stats")[1]["model_stats"]
            counted = stats["inference_count"]
        self.assertEqual((1, [4], 1), (stats["execution_count"], [b["batch_size"] for b in stats["batch_stats"]],
                                       stats["batch_stats"][0]["compute_infer"]["count"]))
        config = self.ask("GET", "/v2/models/joined/config")[1]
        self.assertEqual((4, {"max_queue_delay_microseconds": 60000000}), (config["max_batch_size"], config["dynamic_batching"]))
        self.assertEqual([[-1], [1]], [i["dims"] for i in config["input"]])
        self.end(process)


if __name__ == "__main__":
    unittest.main()
