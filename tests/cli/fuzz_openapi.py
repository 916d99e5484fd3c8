"""schemathesis over openapi.json: requests of every kind that the document allows, and many that it does not. No answer is an
error of the server's but 503 for a model that has no room, and each is what the document says. schemathesis is put into an
environment of its own in the store (scripts/requirements-openapi.txt), unless WEIR_TEST_SCHEMATHESIS names a Python that has it;
skipped where it cannot be."""

import json
import os
import subprocess
import sys
import unittest

import harness
from test_serve import Served

sys.path.insert(0, str(harness.SOURCE / "scripts"))

import store as st  # noqa: E402

EXAMPLES = os.environ.get("WEIR_TEST_EXAMPLES", "20")
# What a document cannot say: rules between fields (the data of a tensor are as many as its shape says), and names of models.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


class Fuzz(Served):
    def test_all_of_it(self):
        python = os.environ.get("WEIR_TEST_SCHEMATHESIS")
        if not python:
            item = st.venv_item(st.Store(), "venv-openapi", "requirements-openapi.txt")
            try:
                item.ensure()
            except st.Failed as error:
                self.skipTest(str(error))
            python = item.place / "bin/python"
        self.write("all.echo", "input f f32 -1\ninput i i64 -1 -1\ninput b bool -1\ninput t text -1\ninput text text -1\n")
        self.write("said.echo", "input text text -1\ninput messages text -1\ngenerate Gruß€😀!\n")
        process = self.serve("all.echo", "said.echo", "--workers", "4")
        document = self.ask("GET", "/openapi.json")[1]
        for item in document["paths"].values():
            for parameter in item.get("parameters", []):
                if parameter["name"] == "model":
                    parameter["schema"] = {"enum": ["all", "said", "none", "a b/ö"]}
        for name in ("CompletionRequest", "ChatRequest", "EmbeddingRequest"):
            document["components"]["schemas"][name]["properties"]["model"] = {"enum": ["all", "said", "none"]}
        path = self.write("openapi.json", json.dumps(document))
        done = subprocess.run([python, "-m", "schemathesis.cli", "run", str(path), "--url", f"http://127.0.0.1:{self.port}",
                               "--checks", CHECKS, "--max-examples", EXAMPLES, "--seed", "1", "--generation-database", "none",
                               "--suppress-health-check", "all", "--request-timeout", "60"], cwd=self.folder, capture_output=True, text=True,
                              check=False)
        self.assertEqual(0, done.returncode, done.stdout[-8000:] + done.stderr[-2000:])
        self.end(process)


if __name__ == "__main__":
    unittest.main()
