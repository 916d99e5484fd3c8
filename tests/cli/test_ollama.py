"""weir serve, as Ollama's clients ask it: by plain requests, of an engine that echoes, so that answers are known."""

import json
import re
import unittest

import test_serve


class Ollama(test_serve.Served):
    def setUp(self):
        super().setUp()
        self.write("said.echo", "input text text -1\ngenerate Gruß€😀!\n")
        self.write("chat.echo", "input messages text -1\ngenerate yes\n")
        self.write("none.echo", "input f f32 -1\n")
        self.process = self.serve("said.echo", "chat.echo", "none.echo")

    def tearDown(self):
        self.end(self.process)

    def lines(self, path, body):
        status, data = self.ask("POST", path, body, raw=True)
        self.assertEqual((200, "application/x-ndjson"), (status, self.headers["Content-Type"]))
        self.assertTrue(data.endswith(b"\n"))
        return [json.loads(line) for line in data.decode().splitlines()]

    def test_texts(self):
        lines = self.lines("/api/generate", {"model": "said", "prompt": "Hello"})
        self.assertEqual("Gruß€😀!", "".join(line["response"] for line in lines))
        self.assertEqual([False] * (len(lines) - 1) + [True], [line["done"] for line in lines])
        self.assertEqual({"said"}, {line["model"] for line in lines})
        for line in lines:
            self.assertTrue(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", line["created_at"]), line)
        times = [lines[-1][name] for name in ("load_duration", "prompt_eval_duration", "eval_duration")]
        self.assertTrue(all(time >= 0 for time in times) and sum(times) <= lines[-1]["total_duration"])
        status, whole = self.ask("POST", "/api/generate", {"model": "said:latest", "prompt": "Hello", "stream": False, "raw": True})
        self.assertEqual((200, "Hello", True, "stop"), (status, whole["response"], whole["done"], whole["done_reason"]))
        self.assertIn("prompt_eval_count", whole)

    def test_chats(self):
        body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
        lines = self.lines("/api/chat", body)
        self.assertEqual("yes", "".join(line["message"]["content"] for line in lines))
        self.assertEqual({"assistant"}, {line["message"]["role"] for line in lines})
        status, whole = self.ask("POST", "/api/chat", body | {"stream": False})
        self.assertEqual((200, True), (status, whole["done"]))
        system = self.lines("/api/generate", {"model": "chat", "prompt": "Hi", "system": "Be brief."})
        self.assertEqual("yes", "".join(line["response"] for line in system))

    def test_what_is_refused(self):
        good = {"model": "said", "prompt": "a"}
        for change in ({"model": None}, {"model": 7}, {"prompt": 7}, {"options": []}, {"options": {"temperature": "hot"}},
                       {"options": {"num_predict": 1.5}}, {"options": {"stop": [7]}}, {"keep_alive": "soon"}, {"keep_alive": "5x"},
                       {"keep_alive": []}, {"format": "xml"}, {"format": "json"}, {"format": {"type": "object"}}, {"images": ["AA=="]},
                       {"suffix": "x"}, {"template": "x"}, {"context": [1]}, {"think": True}, {"think": "high"}, {"tools": [{}]}):
            status, answer = self.ask("POST", "/api/generate", good | change)
            self.assertEqual((400, ["error"]), (status, list(answer)), change)
            self.assertIsInstance(answer["error"], str)
        for messages in ("hi", [{}], [{"role": "user"}], [{"role": "user", "content": "a", "images": ["AA=="]}],
                         [{"role": "assistant", "content": "", "tool_calls": [{}]}]):
            self.assertEqual(400, self.ask("POST", "/api/chat", {"model": "chat", "messages": messages})[0], messages)
        self.assertEqual(404, self.ask("POST", "/api/generate", good | {"model": "nobody"})[0])
        self.assertEqual(404, self.ask("POST", "/api/show", {"model": "nobody"})[0])
        self.assertEqual(400, self.ask("POST", "/api/show", {})[0])
        self.assertEqual(400, self.ask("POST", "/api/generate", {"model": "none", "prompt": "a"})[0])
        for path, field in (("embed", "input"), ("embeddings", "prompt")):
            for body in ({"model": "said", field: "a"}, {"model": "said", field: []}, {"model": "said", field: [""]}, {"model": "said"},
                         {"model": "said", field: "a", "dimensions": 3}):
                self.assertEqual(400, self.ask("POST", f"/api/{path}", body)[0], body)
        for path in ("pull", "push", "create", "copy"):
            self.assertEqual(404, self.ask("POST", f"/api/{path}", {"model": "said"})[0])
        self.assertIn("folders and configuration", self.ask("DELETE", "/api/delete", {"model": "said"})[1]["error"])

    def test_models(self):
        self.assertEqual(200, self.ask("GET", "/", raw=True)[0])  # a page; its clients look whether somebody answers
        self.assertEqual((200, b""), self.ask("HEAD", "/", raw=True))
        self.assertTrue(self.ask("GET", "/api/version")[1]["version"])
        models = self.ask("GET", "/api/tags")[1]["models"]
        self.assertEqual(["said:latest", "chat:latest", "none:latest"], [model["name"] for model in models])
        self.assertEqual({64}, {len(model["digest"]) for model in models})
        self.assertEqual(3, len({model["digest"] for model in models}))
        self.assertEqual((self.folder / "said.echo").stat().st_size, models[0]["size"])
        shown = self.ask("POST", "/api/show", {"name": "said:latest"})[1]
        self.assertIn("said.echo", shown["modelfile"])
        self.assertEqual({"models": []}, self.ask("GET", "/api/ps")[1])

    def state(self):
        return {model["name"]: model for model in self.ask("GET", "/api/ps")[1]["models"]}

    def gone(self):
        self.until('weir_model_loaded{model="said"}', 0)

    def test_how_long_a_model_stays(self):
        """For ever, unless a request says otherwise; the next one that says nothing has it stay for ever again."""
        good = {"model": "said", "prompt": "a", "stream": False}
        self.assertEqual("load", self.ask("POST", "/api/generate", {"model": "said", "stream": False})[1]["done_reason"])
        self.assertEqual("9999", self.state()["said:latest"]["expires_at"][:4])
        for word in ("1h30m", 5400, "5400"):
            self.assertEqual(200, self.ask("POST", "/api/generate", good | {"keep_alive": word})[0])
            self.assertNotEqual("9999", self.state()["said:latest"]["expires_at"][:4], word)
        for word in (None, -1, "-1", "-5m"):
            self.assertEqual(200, self.ask("POST", "/api/generate", good | {"keep_alive": "1h"})[0])
            self.assertEqual(200, self.ask("POST", "/api/generate", good | {"keep_alive": word})[0])
            self.assertEqual("9999", self.state()["said:latest"]["expires_at"][:4], word)
        self.assertEqual(200, self.ask("POST", "/api/generate", good | {"keep_alive": "1h"})[0])
        self.assertEqual(200, self.ask("POST", "/v1/completions", {"model": "said", "prompt": "a"})[0])
        self.assertEqual("9999", self.state()["said:latest"]["expires_at"][:4])
        self.assertEqual(200, self.ask("POST", "/api/generate", good | {"keep_alive": 0})[0])
        self.gone()
        self.assertEqual(200, self.ask("POST", "/v1/completions", {"model": "said", "prompt": "a"})[0])
        self.assertIn("said:latest", self.state())
        unloaded = self.lines("/api/chat", {"model": "said", "messages": [], "keep_alive": "0"})
        self.assertEqual("unload", unloaded[0]["done_reason"])
        self.gone()
        self.assertEqual(2, self.figure('weir_model_loads_total{model="said"}'))


if __name__ == "__main__":
    unittest.main()
