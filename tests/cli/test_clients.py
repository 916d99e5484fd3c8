"""weir serve, asked by clients that others have written, unmodified: one server with the store's small models for all of them. Run by
the Python of the store's environment "clients" (scripts/venv clients)."""

import asyncio
import http.client
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness
from harness import STORE

CLIENTS = ("openai", "ollama", "tritonclient", "prometheus_client", "open_inference")
FILES = ("engines/llama/current", "engines/onnxruntime/current", "engines/onnxruntime-genai/current", "models/tiny-llama.gguf",
         "models/minilm.gguf", "models/minilm.onnx", "models/tiny-llm")
ENGINES = ("gguf", "llm", "onnx")
DEADLINE = 600


def missing():
    needed = [STORE / name for name in FILES] + [harness.BUILD / f"lib/weir/weir-engine-{name}.so" for name in ENGINES]
    absent = [str(path) for path in needed if not path.exists()]
    absent += [f"the package {name} (scripts/venv clients)" for name in CLIENTS if not importlib.util.find_spec(name)]
    return ", ".join(absent)


def setUpModule():
    if not missing():
        return
    if os.environ.get("WEIR_REQUIRE_ENGINES") == "1":
        raise AssertionError(f"not here: {missing()}")
    raise unittest.SkipTest(f"not here: {missing()}")


class Server(unittest.TestCase):
    """Each class of tests has a server, so that none sees what another has loaded."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="weir-clients-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.symlink(STORE / "models/minilm.onnx", Path(cls.folder) / "encoder.onnx")
        words = ["tiny-llama.gguf", "minilm.gguf", "tiny-llm", Path(cls.folder) / "encoder.onnx"]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("WEIR_")}
        kept |= {"WEIR_HOME": str(STORE), "WEIR_ENGINE_PATH": str(harness.BUILD / "lib/weir"), "WEIR_PREDICTIONS": "0",
                 "LC_ALL": "C.UTF-8", "WEIR_BUDGET": "1GiB"}
        cls.process = subprocess.Popen([harness.COMMAND, "serve", *map(str, words), "--shared-memory", "--port", "0", "--json"], cwd=cls.folder, env=kept,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        text = ""
        while not text.endswith("}\n"):
            line = cls.process.stdout.readline()
            if not line:
                raise AssertionError(cls.process.stderr.read())
            text += line
        cls.url = json.loads(text)["address"]
        cls.address = cls.url.removeprefix("http://")

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGTERM)
        try:
            out, error = cls.process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            cls.process.kill()
            raise
        if (cls.process.returncode, out, error) != (0, "", ""):
            raise AssertionError(f"exit {cls.process.returncode}: {out}{error}")


class OpenAI(Server):
    def setUp(self):
        import openai
        self.openai = openai
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE)
        self.addCleanup(self.client.close)

    def test_models(self):
        self.assertEqual(["tiny-llama", "minilm", "tiny-llm", "encoder"], [model.id for model in self.client.models.list()])
        self.assertEqual("tiny-llm", self.client.models.retrieve("tiny-llm").id)
        self.assertRaises(self.openai.NotFoundError, self.client.models.retrieve, "none")

    def test_completions(self):
        asked = {"model": "tiny-llama", "prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}
        whole = self.client.completions.create(**asked)
        self.assertEqual((5, 3, 8), (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens))
        self.assertEqual("length", whole.choices[0].finish_reason)
        parts = list(self.client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(whole.choices[0].text, "".join(part.choices[0].text for part in parts if part.choices))
        self.assertEqual(whole.usage, parts[-1].usage)
        likely = self.client.completions.create(**asked, logprobs=2)
        self.assertEqual(whole.choices[0].text, likely.choices[0].text)
        told = likely.choices[0].logprobs
        self.assertEqual(whole.choices[0].text, "".join(told.tokens))
        for token, own, others in zip(told.tokens, told.token_logprobs, told.top_logprobs):
            self.assertEqual((2, own), (len(others), others[token]))  # without heat the likeliest is taken
        more = self.client.completions.create(**asked | {"prompt": ["Once", "A"], "n": 2, "max_tokens": 1})
        self.assertEqual([0, 1, 2, 3], [choice.index for choice in more.choices])
        self.assertEqual((4, 4), (more.usage.prompt_tokens, more.usage.completion_tokens))
        tokens = self.client.completions.create(**asked | {"prompt": [1, 300, 301]})
        self.assertEqual(3, tokens.usage.prompt_tokens)

    def test_chats(self):
        asked = {"model": "tiny-llm", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
        whole = self.client.chat.completions.create(**asked)
        self.assertEqual(("assistant", "length"), (whole.choices[0].message.role, whole.choices[0].finish_reason))
        self.assertGreater(whole.usage.prompt_tokens, 5)
        parts = list(self.client.chat.completions.create(**asked, stream=True))
        self.assertEqual(whole.choices[0].message.content, "".join(part.choices[0].delta.content or "" for part in parts))
        likely = self.client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
        told = likely.choices[0].logprobs.content
        self.assertEqual(4, len(told))
        self.assertEqual(whole.choices[0].message.content, b"".join(bytes(one.bytes) for one in told).decode())
        self.assertEqual([2] * 4, [len(one.top_logprobs) for one in told])
        told = [one for part in self.client.chat.completions.create(**asked, logprobs=True, stream=True)
                for one in (part.choices[0].logprobs.content if part.choices[0].logprobs else [])]
        self.assertEqual(whole.choices[0].message.content, "".join(one.token for one in told))
        several = self.client.chat.completions.create(**asked | {"temperature": 1, "seed": 7, "n": 3})
        self.assertEqual(3, len(several.choices))
        again = self.client.chat.completions.create(**asked | {"temperature": 1, "seed": 8})
        self.assertEqual(several.choices[1].message.content, again.choices[0].message.content)
        parts = list(self.client.chat.completions.create(**asked | {"n": 2}, stream=True))
        self.assertEqual({0, 1}, {part.choices[0].index for part in parts})

    def test_json(self):
        def schema(of):
            return {"type": "json_schema", "json_schema": {"name": "it", "schema": of, "strict": True}}

        one = self.client.completions.create(model="tiny-llama", prompt="Yes?", max_tokens=8, temperature=0,
                                             extra_body={"response_format": schema({"enum": [17, "no"]})})
        self.assertIn(json.loads(one.choices[0].text), (17, "no"))
        asked = {"model": "tiny-llm", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0}
        one = self.client.chat.completions.create(**asked, max_tokens=32, response_format=schema({"enum": ["yes", "no"]}))
        self.assertIn(json.loads(one.choices[0].message.content), ("yes", "no"))
        one = self.client.chat.completions.create(**asked, max_tokens=4, response_format={"type": "json_object"})
        self.assertTrue(one.choices[0].message.content.startswith("{"))

    def test_embeddings(self):
        one = self.client.embeddings.create(model="minilm", input="a cat")
        several = self.client.embeddings.create(model="minilm", input=["a cat", "two cats"], encoding_format="float")
        self.assertEqual([384, 384], [len(row.embedding) for row in several.data])
        for coded, plain in zip(one.data[0].embedding, several.data[0].embedding):
            self.assertAlmostEqual(coded, plain, places=5)
        self.assertEqual((4, 8), (one.usage.prompt_tokens, several.usage.total_tokens))

    def test_what_is_refused(self):
        chat = {"model": "tiny-llm", "messages": [{"role": "user", "content": "Hello"}]}
        picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
        shape = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"type": "string", "pattern": "a+"}}}
        for change, word in (({"tools": [tool]}, "tools"), ({"messages": picture}, "image_url"), ({"n": 0}, "'n'"),
                             ({"model": "tiny-llama", "response_format": shape}, "'pattern'"), ({"top_p": 7}, "top_p"),
                             ({"model": "tiny-llama"}, "chat template")):
            with self.assertRaises(self.openai.BadRequestError) as raised:
                self.client.chat.completions.create(**chat | {"max_tokens": 1} | change)
            self.assertIn(word, raised.exception.message)
        self.assertRaises(self.openai.NotFoundError, self.client.completions.create, model="none", prompt="a")


class Ollama(Server):
    def setUp(self):
        import ollama
        self.ollama = ollama
        self.client = ollama.Client(host=self.url, timeout=DEADLINE)

    def loaded(self):
        return {model.model: model for model in self.client.ps().models}

    def test_models(self):
        names = [model.model for model in self.client.list().models]
        self.assertEqual(["tiny-llama:latest", "minilm:latest", "tiny-llm:latest", "encoder:latest"], names)
        shown = self.client.show("tiny-llama:latest")
        self.assertEqual(("gguf", ["completion"]), (shown.details.format, shown.capabilities))
        self.assertRaises(self.ollama.ResponseError, self.client.show, "none")
        self.assertRaises(self.ollama.ResponseError, self.client.pull, "none")

    def test_texts(self):
        asked = {"model": "tiny-llama", "prompt": "Once upon a time", "options": {"num_predict": 3, "temperature": 0}}
        whole = self.client.generate(**asked)
        self.assertEqual((True, "length", 5, 3), (whole.done, whole.done_reason, whole.prompt_eval_count, whole.eval_count))
        times = whole.load_duration + whole.prompt_eval_duration + whole.eval_duration
        self.assertTrue(0 < times <= whole.total_duration)
        parts = list(self.client.generate(**asked, stream=True))
        self.assertEqual(whole.response, "".join(part.response for part in parts))
        self.assertEqual([False] * (len(parts) - 1) + [True], [part.done for part in parts])
        self.assertEqual(whole.response, self.client.generate(**asked, raw=True).response)
        stopped = self.client.generate(**asked | {"options": asked["options"] | {"stop": [whole.response[2:]]}})
        self.assertEqual((whole.response[:2], "stop"), (stopped.response, stopped.done_reason))
        made = self.client.generate(**asked | {"options": {"temperature": 0}}, format={"enum": [17, "no"]})
        self.assertIn(json.loads(made.response), (17, "no"))

    def test_chats(self):
        asked = {"model": "tiny-llm:latest", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
                 "options": {"num_predict": 4, "seed": 3}}
        whole = self.client.chat(**asked)
        self.assertEqual(("assistant", 4), (whole.message.role, whole.eval_count))
        parts = list(self.client.chat(**asked, stream=True))
        self.assertEqual(whole.message.content, "".join(part.message.content for part in parts))
        unlimited = self.client.chat(**asked | {"options": {"seed": 3}})
        self.assertIn(unlimited.done_reason, ("stop", "length"))
        self.assertGreater(unlimited.eval_count, 4)

        async def ask():
            return await self.ollama.AsyncClient(host=self.url, timeout=DEADLINE).chat(**asked)
        self.assertEqual(whole.message.content, asyncio.run(ask()).message.content)

    def test_vectors(self):
        answer = self.client.embed(model="minilm", input=["a cat", "two cats"])
        self.assertEqual([384, 384], [len(row) for row in answer.embeddings])
        self.assertEqual(8, answer.prompt_eval_count)
        one = self.client.embeddings(model="minilm", prompt="a cat")
        for old, new in zip(one.embedding, answer.embeddings[0]):
            self.assertAlmostEqual(old, new, places=5)
        long = "cat " * 2000
        self.assertEqual(1, len(self.client.embed(model="minilm", input=long).embeddings))
        self.assertRaises(self.ollama.ResponseError, self.client.embed, model="minilm", input=long, truncate=False)

    def test_how_long_a_model_stays(self):
        self.client.generate(model="tiny-llm", keep_alive=600)
        self.assertIn("tiny-llm:latest", self.loaded())
        self.assertLess(self.loaded()["tiny-llm:latest"].expires_at.year, 9999)
        self.client.generate(model="tiny-llm", keep_alive=-1)
        self.assertEqual(9999, self.loaded()["tiny-llm:latest"].expires_at.year)
        self.assertEqual("unload", self.client.generate(model="tiny-llm", keep_alive=0).done_reason)
        while "tiny-llm:latest" in self.loaded():
            continue
        self.assertEqual("load", self.client.chat(model="tiny-llm", keep_alive="10m").done_reason)
        self.client.chat(model="tiny-llm", messages=[{"role": "user", "content": "Hi"}], options={"num_predict": 1}, keep_alive="0s")
        while "tiny-llm:latest" in self.loaded():
            continue

    def test_what_is_refused(self):
        for change, word in (({"images": [b"\x89PNG"]}, "images"), ({"suffix": "x"}, "suffix"), ({"template": "x"}, "template"),
                             ({"think": True}, "think"), ({"context": [1, 2]}, "context"), ({"keep_alive": "soon"}, "keep_alive"),
                             ({"options": {"num_ctx": 1 << 20}}, "num_ctx"), ({"options": {"top_p": 7}}, "top_p")):
            with self.assertRaises(self.ollama.ResponseError) as raised:
                self.client.generate(model="tiny-llama", prompt="a", **change)
            self.assertEqual(400, raised.exception.status_code)
            self.assertIn(word, raised.exception.error)
        with self.assertRaises(self.ollama.ResponseError) as raised:
            self.client.generate(model="none", prompt="a")
        self.assertEqual(404, raised.exception.status_code)


class Triton(Server):
    IDS = [[101, 1037, 4937, 102]]

    def inputs(self, kind, binary):
        import numpy
        made = []
        for name, rows in (("input_ids", self.IDS), ("attention_mask", [[1] * 4]), ("token_type_ids", [[0] * 4])):
            one = kind.InferInput(name, [1, 4], "INT64")
            one.set_data_from_numpy(numpy.array(rows, dtype=numpy.int64), binary_data=binary)
            made.append(one)
        return made

    def test_all(self):
        import numpy
        import tritonclient.http as kind
        with kind.InferenceServerClient(self.address, network_timeout=DEADLINE, connection_timeout=DEADLINE) as client:
            self.assertTrue(client.is_server_live() and client.is_server_ready() and client.is_model_ready("encoder"))
            self.assertFalse(client.is_model_ready("none"))
            self.assertEqual("weir", client.get_server_metadata()["name"])
            about = client.get_model_metadata("encoder")
            outputs = [one["name"] for one in about["outputs"]]
            self.assertEqual({"INT64"}, {one["datatype"] for one in about["inputs"]})
            self.assertIn("encoder", [model["name"] for model in client.get_model_repository_index()])
            client.unload_model("encoder")
            client.load_model("encoder")
            plain = client.infer("encoder", self.inputs(kind, False), outputs=[kind.InferRequestedOutput(outputs[0], binary_data=False)])
            coded = client.infer("encoder", self.inputs(kind, True), outputs=[kind.InferRequestedOutput(outputs[0], binary_data=True)],
                                 request_id="7")
            small = client.infer("encoder", self.inputs(kind, True), request_compression_algorithm="gzip")
            self.assertEqual("7", coded.get_response()["id"])
            for one in (plain, small):
                self.assertTrue(numpy.allclose(one.as_numpy(outputs[0]), coded.as_numpy(outputs[0]), atol=1e-6))
            self.assertRaises(kind.InferenceServerException, client.infer, "none", self.inputs(kind, True))

    def test_shared_memory(self):
        import numpy
        import tritonclient.http as kind
        from tritonclient.utils import shared_memory
        key, each = f"/weir-test-{os.getpid()}", 4 * 8
        region = shared_memory.create_shared_memory_region("part", key, 65536)
        try:
            with kind.InferenceServerClient(self.address, network_timeout=DEADLINE, connection_timeout=DEADLINE) as client:
                client.register_system_shared_memory("part", key, 65536)
                self.assertEqual(["part"], [one["name"] for one in client.get_system_shared_memory_status()])
                rows = [numpy.array(rows, dtype=numpy.int64) for rows in (self.IDS, [[1] * 4], [[0] * 4])]
                shared_memory.set_shared_memory_region(region, rows)
                inputs = [kind.InferInput(one.name(), [1, 4], "INT64") for one in self.inputs(kind, True)]
                for i, one in enumerate(inputs):
                    one.set_shared_memory("part", each, offset=i * each)
                name = client.get_model_metadata("encoder")["outputs"][0]["name"]
                output = kind.InferRequestedOutput(name)
                output.set_shared_memory("part", 32768, offset=4096)
                answer = client.infer("encoder", inputs, outputs=[output])
                told = answer.get_output(name)
                got = shared_memory.get_contents_as_numpy(region, numpy.float32, told["shape"], 4096)
                plain = client.infer("encoder", self.inputs(kind, True)).as_numpy(name)
                self.assertTrue(numpy.array_equal(got, plain))
                client.unregister_system_shared_memory("part")
                self.assertEqual([], client.get_system_shared_memory_status())
        finally:
            shared_memory.destroy_shared_memory_region(region)

    def test_asynchronous(self):
        import tritonclient.http.aio as kind

        async def ask():
            async with kind.InferenceServerClient(self.address, conn_timeout=DEADLINE) as client:
                self.assertTrue(await client.is_server_ready())
                answers = await asyncio.gather(*(client.infer("encoder", self.inputs(kind, True)) for _ in range(4)))
                return [one.get_response()["model_name"] for one in answers]
        self.assertEqual(["encoder"] * 4, asyncio.run(ask()))


class Others(Server):
    def test_open_inference(self):
        from open_inference.openapi.client import OpenInferenceClient
        from open_inference.openapi.types import InferenceRequest, RequestInput, TensorData
        client = OpenInferenceClient(base_url=self.url, timeout=DEADLINE)
        client.check_server_liveness()
        client.check_server_readiness()
        client.check_model_readiness("encoder")
        self.assertEqual("encoder", client.read_model_metadata("encoder").name)
        inputs = [RequestInput(name=name, shape=[1, 4], datatype="INT64", data=TensorData.parse_obj(rows))
                  for name, rows in (("input_ids", Triton.IDS[0]), ("attention_mask", [1] * 4), ("token_type_ids", [0] * 4))]
        answer = client.model_infer("encoder", request=InferenceRequest(inputs=inputs))
        self.assertEqual("encoder", answer.model_name)

    def test_metrics(self):
        from prometheus_client.parser import text_string_to_metric_families
        client = http.client.HTTPConnection(self.address, timeout=DEADLINE)
        self.addCleanup(client.close)
        client.request("GET", "/metrics")
        families = {family.name: family for family in text_string_to_metric_families(client.getresponse().read().decode())}
        models = {sample.labels["model"] for sample in families["weir_model_loaded"].samples}
        self.assertEqual({"tiny-llama", "minilm", "tiny-llm", "encoder"}, models)
        self.assertEqual("counter", families["weir_http_requests"].type)
        for family in families.values():
            self.assertTrue(family.documentation and family.samples, family.name)

    def test_reachable(self):
        for method, path in (("HEAD", "/"), ("GET", "/"), ("GET", "/api/version")):
            client = http.client.HTTPConnection(self.address, timeout=DEADLINE)
            client.request(method, path)
            answer = client.getresponse()
            self.assertEqual((200, method == "HEAD"), (answer.status, not answer.read()))
            client.close()


if __name__ == "__main__":
    THEIRS = STORE / "clients/bin/python"
    if THEIRS.exists() and Path(sys.executable) != THEIRS:
        os.execv(THEIRS, [str(THEIRS), "-B", *sys.argv])
    unittest.main()
