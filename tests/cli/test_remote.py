"""The verbs that ask a running server: what they print, what they do there, and what they say when none answers."""

import http.server
import json
import os
import pty
import re
import signal
import subprocess
import threading

import harness
from test_serve_page import MIB, State

MOVES = ("load", "unload", "stop", "suspend", "resume", "pin", "unpin")


class Remote(State):
    def at(self, *words, status=0, **environment):
        """Calls weir with the server's address in the environment."""
        return self.weir(*words, status=status, WEIR_SERVER=f"127.0.0.1:{self.port}", **environment)

    def at_json(self, *words, **environment):
        return json.loads(self.at(*words, "--json", **environment)[0])

    def rows(self, text):
        return [re.split(r"  +", line.strip()) for line in text.splitlines()]


class Verbs(Remote):
    def test_they_come_and_go(self):
        process = self.two()
        self.assertIn("has no model loaded", self.at("ps")[0])
        self.assertEqual([["NAME", "SIZE", "DEVICE", "STATE", "ENGINE", "BACK IN", "REQUESTS"], ["b", "32 MiB", "host", "unloaded", "echo"],
                          ["slow", "32 MiB", "host", "unloaded", "echo"]],
                         [row if i == 0 else row[:5] for i, row in enumerate(self.rows(self.at("list")[0]))])
        self.assertEqual("b is loaded\n", self.at("load", "b")[0])
        self.assertEqual([["NAME", "SIZE", "PROCESSOR", "STATE", "UNTIL", "REQUESTS"], ["b", "32 MiB", "100% CPU", "loaded", "forever", "-"]],
                         self.rows(self.at("ps")[0]))
        self.assertEqual("b is loaded, and pinned\n", self.at("pin", "b")[0])
        self.assertEqual("pinned", self.rows(self.at("ps")[0])[1][4])
        self.assertEqual("b is loaded\n", self.at("unpin", "b")[0])
        self.assertEqual("b is loaded\n", self.at("resume", "b")[0])
        self.assertIn("cannot be suspended", self.at("suspend", "b", status=1)[1])
        self.assertEqual("b is unloaded: 32 MiB came back\n", self.at("stop", "b")[0])
        self.assertEqual("slow is loaded\nb is loaded\n", self.at("load", "slow", "b")[0])
        self.assertEqual("b is unloaded: 32 MiB came back\nslow is unloaded\n", self.at("unload", "b", "slow")[0])
        self.end(process)

    def test_json(self):
        process = self.two()
        server = f"http://127.0.0.1:{self.port}"
        answer = self.at_json("load", "b")
        self.assertEqual({"server": server, "models": [{"model": "b", "state": "loaded", "pinned": False, "size": 32 * MIB}]}, answer)
        self.assertEqual(["b", "slow"], [model["name"] for model in self.at_json("list")["models"]])
        answer = self.at_json("ps")
        self.assertEqual((server, ["b", "slow"], []), (answer["server"], [m["name"] for m in answer["models"]], answer["processes"]))
        shown, = self.at_json("show", "b")["models"]
        self.assertEqual(("b", 1), (shown["name"], shown["loads"]))
        process_shown, = self.at_json("top")["processes"]
        self.assertEqual((server, 32 * MIB), (process_shown["server"], process_shown["runtimes"][0]["live"]))
        receipt = self.at_json("unload", "b")["models"][0]["receipt"]
        self.assertEqual((True, 32 * MIB), (receipt["complete"], receipt["returned"]))
        self.end(process)

    def test_show_and_top(self):
        process = self.two()
        self.at("load", "b")
        out = self.at("show", "b")[0]
        self.assertRegex(out, r"^b\n  engine +echo, cpu, on host\n  state +loaded\n")
        self.assertRegex(out, r"measured +32 MiB, weights 32 MiB\n")
        self.assertIn("no model 'none'", self.at("show", "none", status=1)[1])
        out = self.at("top", "--once")[0]
        self.assertIn(f"weir serve at http://127.0.0.1:{self.port}", out)
        self.assertRegex(out, r"(?m)^  b +loaded +32 MiB +- +- +1 ")
        self.assertRegex(out, r"(?m)^host  budget 48 MiB  live 32 MiB")
        self.begin("slow")
        self.until_state(lambda state: [r["state"] for r in state["requests"]] == ["running"])
        self.begin("b")
        self.until_state(lambda state: [r for r in state["requests"] if r.get("reason") == "room"])
        self.assertRegex(self.at("top", "--once")[0], r"(?m)^  b +\S+ \S+ +waiting +room +1$")
        self.assertIn("1 running", self.at("ps")[0])
        self.end(process)

    def test_a_key(self):
        process = self.two("--key", "sesame")
        self.assertIn("wants a key: --key, or WEIR_KEY", self.at("list", status=1)[1])
        self.assertIn("wants another key", self.at("list", "--key", "wrong", status=1)[1])
        self.assertEqual("b is loaded\n", self.at("load", "b", "--key", "sesame")[0])
        self.assertIn("b", self.at("ps", WEIR_KEY="sesame")[0])
        self.assertNotIn("sesame", self.at("list", "--key", "sesame")[0])
        self.end(process)

    def test_a_name_with_other_characters(self):
        self.write("a b%ü?.echo", "input text text -1\n")
        process = self.serve("a b%ü?.echo")
        self.assertEqual("a b%ü? is loaded\n", self.at("load", "a b%ü?")[0])
        self.end(process)

    def test_progress_on_a_terminal(self):
        process = self.two()
        master, slave = pty.openpty()
        done = subprocess.run([harness.COMMAND, "load", "b"], env={**self.environment({"WEIR_SERVER": f"127.0.0.1:{self.port}"}), "TERM": "xterm"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, timeout=1000)
        self.assertEqual((0, b"b is loaded\n"), (done.returncode, done.stdout))
        os.close(slave)
        os.close(master)
        self.end(process)


class Nobody(harness.Case):
    def test_no_server(self):
        for verb in ("list", *((verb, "a") for verb in ("show", *MOVES))):
            words = (verb,) if isinstance(verb, str) else verb
            for where in (("--server", "http://127.0.0.1:1"), ("--server", "127.0.0.1:1/")):
                error = self.refused(*words, *where, status=1)
                self.assertIn("no server answers at http://127.0.0.1:1:", error)
                self.assertIn("weir serve", error)
        for verb in ("ps", "top"):
            self.assertIn("no server answers", self.refused(verb, "--server", "127.0.0.1:1", status=1))
        self.assertIn("no server answers", self.refused("bench", "serve", "--model", "a", "--server", "127.0.0.1:1", status=1))
        detail = json.loads(self.weir("list", "--json", "--server", "127.0.0.1:1", status=1)[0])["error"]["detail"]
        self.assertIn("no server answers", detail)

    def test_bad_words(self):
        for verb in ("show", *MOVES):
            self.assertIn("which model", self.refused(verb))
        self.assertIn("--model", self.refused("bench", "serve"))
        self.assertIn("embeddings", self.refused("bench", "serve", "--model", "a", "--kind", "poems"))
        self.assertIn("no address", self.refused("list", "--server", "http://"))
        self.assertIn("no address", self.refused("list", "--server", "a b"))

    def test_another_server(self):
        class Other(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if self.server.answers else 404)
                self.end_headers()
                self.wfile.write(b"hello")

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
            thread = threading.Thread(target=other.serve_forever)
            thread.start()
            try:
                for other.answers in (False, True):
                    self.assertIn("is no server of weir's", self.refused("list", "--server", f"127.0.0.1:{other.server_port}", status=1))
            finally:
                other.shutdown()
                thread.join()

    def test_processes_without_a_server(self):
        """No server is asked where WEIR_SERVER is empty, and one that is not named may be missing."""
        self.assertIn("no process can be watched", self.weir("ps", XDG_RUNTIME_DIR=str(self.folder))[0])
        answer = self.weir_json("ps", XDG_RUNTIME_DIR=str(self.folder))
        self.assertIsNone(answer["server"])
        self.assertNotIn("models", answer)


class Load(Remote):
    def test_figures(self):
        process = self.two()
        answer = self.at_json("bench", "serve", "--model", "b", "--clients", "2", "--seconds", "1")
        self.assertEqual((0, [], "b", 2), (answer["failed"], answer["failures"], answer["model"], answer["clients"]))
        answered = answer["answered"]
        self.assertGreater(answered, 0)
        self.assertEqual(3 * answered, answer["tokens"])  # "yes", a piece for each letter
        self.assertEqual((answered, 2 * answered, answered), tuple(answer[k]["count"] for k in ("first_token", "between_tokens", "whole")))
        for name in ("first_token", "between_tokens", "whole"):
            figures = answer[name]
            self.assertTrue(0 < figures["p50"] <= figures["p90"] <= figures["p99"] <= figures["most"], figures)
        self.assertLessEqual(answer["first_token"]["most"], answer["whole"]["most"])
        self.assertEqual(answered, self.model("b")["runs"])
        self.assertEqual([{"model": "b", "loads": 1, "resumes": 0, "suspends": 0, "evictions": 0, "failures": 0}], answer["meanwhile"])
        self.end(process)

    def test_failures(self):
        self.write("large.echo", "weights 8589934592\ninput text text -1\ngenerate a")
        process = self.serve("large.echo")
        out, error = self.at("bench", "serve", "--model", "large", "--clients", "2", "--seconds", "1", status=1)
        self.assertRegex(out, r"^0 answered, \d+ failed, by 2 clients in")
        self.assertRegex(out, r"failed \d+ times: 503: large can never have its request")
        self.assertIn("meanwhile no model came or went", out)
        self.assertIn("no request was answered", error)
        out = self.at("bench", "serve", "--model", "none", "--seconds", "1", status=1)[0]
        self.assertRegex(out, r"failed \d+ times: 404: there is no model 'none' here")
        self.end(process)

    def test_a_chat(self):
        self.write("chat.echo", "input messages text -1\ngenerate yes\n")
        process = self.serve("chat.echo")
        answer = self.at_json("bench", "serve", "--model", "chat", "--kind", "chat", "--clients", "1", "--seconds", "1")
        self.assertEqual((0, 3 * answer["answered"]), (answer["failed"], answer["tokens"]))
        self.end(process)

    def test_a_server_that_goes(self):
        self.write("slow.echo", "input text text -1\nslow 3600000\ngenerate a")
        process = self.serve("slow.echo", "--drain", "0")
        bench = subprocess.Popen([harness.COMMAND, "bench", "serve", "--model", "slow", "--clients", "1", "--seconds", "1"],
                                 env=self.environment({"WEIR_SERVER": f"127.0.0.1:{self.port}"}), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.until_state(lambda state: state["requests"])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=1000)
        out, error = bench.communicate(timeout=1000)
        self.assertEqual(1, bench.returncode)
        self.assertRegex(out, r"0 answered, \d+ failed")
        self.assertIn("no server answers", error)


if __name__ == "__main__":
    harness.main()
