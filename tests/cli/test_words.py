"""The command's words: verbs, options, bad usage, the environment."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import harness


class Words(harness.Case):
    def test_no_verb_and_unknown_verbs(self):
        self.assertIn("'weir help'", self.refused())
        self.assertIn("'rum'", self.refused("rum"))
        self.assertIn("--rum", self.refused("--rum"))

    def test_help(self):
        for words in ((), ("run",), ("serve",), ("replay",), ("report",), ("export",), ("plan",), ("exec",), ("bench",), ("bench", "serve"), ("ps",), ("top",), ("list",), ("show",), ("load",), ("unload",), ("stop",), ("suspend",), ("resume",), ("pin",), ("unpin",), ("options",), ("devices",), ("engines",), ("check",), ("explain",), ("predict",), ("version",), ("help",)):
            out, error = self.weir(*words, "--help")
            self.assertIn("usage: weir", out)
            self.assertEqual(error, "")
        self.assertIn("--guarantee", self.weir("help", "run")[0])
        self.assertEqual([verb["name"] for verb in self.weir_json("help")["verbs"]],
                         ["run", "serve", "simulate", "replay", "report", "export", "plan", "exec", "bench", "ps", "top", "yield", "list", "show", "load", "unload", "stop", "suspend", "resume", "pin", "unpin", "options", "devices", "engines", "check", "explain", "predict", "version", "help"])
        self.refused("help", "nothing")

    def test_help_shows_every_option_of_a_verb_in_a_row_of_its_own(self):
        for verb in (verb["name"] for verb in self.weir_json("help")["verbs"]):
            with self.subTest(verb=verb):
                out = self.weir(verb, "--help")[0]
                self.assertTrue(out.startswith(f"usage: weir {verb}"), out)
                self.assertLessEqual(max(map(len, out.splitlines())), 114)
                rows = re.findall(r"^  --([a-z-]+)(?: \S+)?  +\S", out, re.M)
                self.assertEqual(rows[-1], "help")
                self.assertIn("json", rows)
                self.assertEqual(len(rows), len(set(rows)))
                for option in rows:  # each is read: it wants another value or none, or the next word is the wrong one
                    self.assertNotIn(f"option --{option}", self.refused(verb, f"--{option}=x", "--no-such"))

    def test_version(self):
        version = self.weir_json("version")["version"]
        self.assertRegex(version, r"^\d+\.\d+\.\d+$")
        self.assertEqual(self.weir("version")[0], f"weir {version}\n")
        self.assertEqual(self.weir("--version")[0], f"weir {version}\n")

    def test_simple_verbs_take_nothing_else(self):
        for verb in ("options", "engines", "version", "help"):
            self.assertIn("--some", self.refused(verb, "--some"))
            self.assertIn("--json", self.refused(verb, "--json=1"))
            self.assertIn("-x", self.refused(verb, "-x"))
        for verb in ("options", "engines", "version"):
            self.assertIn("'word'", self.refused(verb, "word"))

    def test_bad_words_of_run(self):
        for words, said in (
                ([], "which model"),
                ([""], "''"),
                (["a.toy", "--some"], "--some"),
                (["a.toy", "-x"], "-x"),
                (["a.toy", "--budget"], "--budget needs a value"),
                (["a.toy", "--budget", "12xb"], "12xb"),
                (["a.toy", "--budget", ""], "--budget"),
                (["a.toy", "--budget", "-1"], "-1"),
                (["a.toy", "--budget", "0"], "--budget 0"),
                (["a.toy", "--budget", "=1g"], "no device"),
                (["a.toy", "--budget", "host=1g,host=2g"], "twice"),
                (["a.toy", "--budget", "moon=1g"], "moon"),
                (["a.toy", "--guarantee", "1g"], "NAME=SIZE"),
                (["a.toy", "--guarantee", "c.toy=1g"], "a.toy"),
                (["a.toy", "--maximum", "a.toy=1x"], "'1x'"),
                (["a.toy", "--maximum", "=1g"], "NAME=SIZE"),
                (["a.toy", "--input", "x"], "NAME=VALUE"),
                (["a.toy", "--input", "=1"], "NAME=VALUE"),
                (["a.toy", "--input", "x=shape:"], None),
                (["a.toy", "--input", "x=shape:2y3"], "shape:2x16"),
                (["a.toy", "--input", "x=shape:2x"], "shape:2x16"),
                (["a.toy", "--input", "x=shape:-1"], "shape:2x16"),
                (["a.toy", "--input", "x=shape:" + "x".join(["9"] * 17)], "dimensions"),
                (["a.toy", "--input", "x=shape:9999999999x9999999999"], "too large"),
                (["a.toy", "--input", "x=1,2,3", "--input", "x=1,2,4"], "twice"),
                (["a.toy", "--tokens", "0"], "--tokens 0"),
                (["a.toy", "--tokens", "many"], "many"),
                (["a.toy", "--repeat", "0"], "--repeat 0"),
                (["a.toy", "--repeat", "-3"], "-3"),
                (["a.toy", "--repeat", "99999999999999999999"], "99999999999999999999"),
                (["a.toy", "--serial=yes"], "--serial=yes"),
                (["a.toy", "--set", "x"], "KEY=VALUE"),
                (["a.toy", "--set", "=x"], "KEY=VALUE"),
                (["a.toy", "--output", ""], "--output"),
                (["a.toy"] * 65, "65 models"),
                (["a.toy", "--driver", "sim"], "is no device"),  # libweir has no simulated one
        ):
            with self.subTest(words=words):
                if said is None:  # a scalar's shape: fine as a word, and not what this model wants
                    self.weir("run", *words, status=1)
                    continue
                line = self.refused("run", *words)
                self.assertIn(said, line)
                self.assertIn("'weir run --help'", line)

    def test_an_input_that_no_model_has(self):
        line = self.refused("run", "a.toy", "b.toy", "--input", "z=1,2,3")
        self.assertIn("z", line)
        self.assertIn("a.toy has x; b.toy has x", line)
        self.assertIn("text", self.refused("run", "a.toy", "--prompt", "hello"))
        self.assertIn("its inputs are: x", self.refused("run", "a.toy", "b.toy", "--input", "a.toy:z=1"))
        self.assertIn("c.toy:x", self.refused("run", "a.toy", "--input", "c.toy:x=1"))

    def test_options(self):
        options = {option["name"]: option for option in self.weir_json("options", WEIR_LOG="error")["options"]}
        self.assertEqual(options["log"]["value"], "error")
        self.assertEqual(options["log"]["source"], "environment")
        self.assertEqual(options["resource"]["source"], "default")
        self.assertEqual(options["budget"]["environment"], "WEIR_BUDGET")
        self.assertFalse(any(option["rejected"] for option in options.values()))
        for option in options.values():
            self.assertLessEqual({"name", "environment", "value", "source", "rejected", "help"}, set(option))
        out = self.weir("options")[0]
        for name, option in options.items():
            self.assertIn(name, out)
            self.assertIn(option["help"], out)

    def test_options_that_are_rejected(self):
        options = {option["name"]: option for option in self.weir_json("options", WEIR_BUDGET="1x")["options"]}
        self.assertTrue(options["budget"]["rejected"])
        self.assertEqual(options["budget"]["rejected_value"], "1x")
        self.assertEqual(options["budget"]["source"], "default")
        self.assertIn("rejected: WEIR_BUDGET=1x", self.weir("options", WEIR_BUDGET="1x")[0])
        # A budget that is not understood is none to go on with; other options are told and left.
        self.assertIn("WEIR_BUDGET", self.refused("run", "a.toy", status=1, WEIR_BUDGET="1x"))
        self.weir("run", "a.toy", "--budget", "1m", WEIR_BUDGET="1x")
        self.assertIn("WEIR_LOG=loud", self.weir("run", "a.toy", WEIR_LOG="loud")[1])

    def test_the_budget_from_the_environment(self):
        self.assertEqual(self.weir_json("run", "a.toy", WEIR_BUDGET="3MiB")["budget"], 3 * harness.MIB)
        self.assertEqual(self.weir_json("run", "a.toy", "--budget", "2m", WEIR_BUDGET="3MiB")["budget"], 2 * harness.MIB)

    def test_engines(self):
        engines = {engine["name"]: engine for engine in self.weir_json("engines")["engines"]}
        self.assertTrue(engines["toy"]["available"])
        self.assertEqual(engines["toy"]["suffixes"], ".toy")
        self.assertEqual(engines["echo"]["version"], "1.0")
        for engine in engines.values():  # the store is empty here: what is missing says how to get it
            self.assertTrue(engine["available"] or engine["missing"], engine)
        self.assertIn("multiplies", self.weir("engines")[0])

    def test_engines_are_got_by_their_names_or_by_their_libraries(self):
        for script in ("scripts/weir-engines", "share/weir/scripts/engines"):  # as the wheel has it, and an installed weir
            root = self.folder / script.partition("/")[0]
            (root / script).parent.mkdir(parents=True)
            (root / script).symlink_to(harness.SOURCE / "scripts/engines")
            (root / "bin").mkdir()
            shutil.copy2(harness.COMMAND, root / "bin/weir")

            def get(*words, status=0):
                done = subprocess.run([root / "bin/weir", "engines", "get", *words], env=self.environment({"LD_LIBRARY_PATH": str(harness.BUILD / "lib")}),
                                      text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(status, done.returncode, done.stdout)
                return done.stdout

            for words, names in ((("onnx",), ["onnxruntime"]), (("llama",), ["llama"]), (("gguf", "onnx", "--openvino"), ["onnxruntime", "llama", "onnxruntime-openvino"]),
                                 (("llm", "--cuda"), ["onnxruntime", "onnxruntime-genai", "onnxruntime-cuda", "onnxruntime-genai-cuda"])):
                items = json.loads(get("--list", "--json", *words))["items"]
                self.assertEqual([(name, "missing") for name in names], [(item["name"], item["state"]) for item in items])
            self.assertIn("there is no onyx", get("onyx", status=2))
            (root / script).unlink()
            self.assertRegex(get("onnx", status=1), "weir engines get needs python3 and the script .*engines: No such file")

    def test_a_plugin_that_is_none(self):
        (self.folder / "plugins").mkdir()
        self.write("plugins/weir-engine-odd.so", "no shared object")
        engines = {engine["name"]: engine for engine in
                   self.weir_json("engines", WEIR_ENGINE_PATH=str(self.folder / "plugins"))["engines"]}
        self.assertFalse(engines["odd"]["opened"])
        self.assertIn("odd", engines["odd"]["missing"])

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([harness.COMMAND, "options", "--json"], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.one_line(done.stderr.decode())

    def test_control_characters_do_not_reach_the_terminal(self):
        line = self.refused("run", "a.toy", "--input", "\x1b[31mred=1")
        self.assertNotIn("\x1b", line)

    def test_the_guide_quotes_the_engine_as_it_is(self):
        guide = (harness.SOURCE / "docs/guide/engines.md").read_text(encoding="utf-8")
        source = (harness.SOURCE / "examples/toy-engine/toy.c").read_text(encoding="utf-8")
        quotes = re.findall(r"^```c norun\n(.*?)^```$", guide, re.M | re.S)
        self.assertGreater(len(quotes), 5)
        for quote in quotes:
            self.assertIn(quote, source)

    def test_closed_streams(self):
        """The next file that is opened would have the stream's number, and what is printed would be written into it."""
        for closed, said in ((">&-", "cannot write to standard output"), ("<&- >&-", "cannot write to standard output"), ("<&-", "")):
            for words in (["devices"], ["run", "a.toy", "--trace", "t.csv", "--report", "r.html"], ["check", "a.toy", "--json"]):
                with self.subTest(words=words, closed=closed):
                    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", harness.COMMAND, *words], cwd=self.folder,
                                          env=self.environment({}), timeout=1000, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    self.assertEqual((done.returncode, done.stdout == b""), (1, True) if said else (0, False))
                    self.assertIn(said, done.stderr.decode())
        for name in ("t.csv", "r.html"):
            self.assertNotIn("at the peak; held at most", (self.folder / name).read_text())

    def copy_alone(self):
        """The command in a folder where none of its other programs is."""
        alone = self.folder / "alone/weir"
        alone.parent.mkdir()
        alone.write_bytes(Path(harness.COMMAND).read_bytes())
        alone.chmod(0o755)
        return alone

    def test_without_weir_bench_beside_it_the_one_in_the_path_is_taken_or_it_is_said_how_to_get_it(self):
        alone, beside = self.copy_alone(), harness.COMMAND.parent

        def answer(words, folder):
            done = subprocess.run([alone, *words], cwd=self.folder, env=self.environment({"PATH": f"/nonexistent:{folder}"}), timeout=1000,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True)
            return done.returncode, done.stdout, done.stderr

        self.assertEqual(answer(["bench", "--help"], beside), (0, self.weir("bench", "--help")[0], ""))
        self.assertEqual(answer(["help", "bench"], beside), (0, self.weir("bench", "--help")[0], ""))
        status, _, said = answer(["bench", "--rounds", "x"], beside)
        self.assertEqual((status, said), (2, self.refused("bench", "--rounds", "x")))
        status, out, said = answer(["bench", "--json"], "/nonexistent")
        self.assertEqual(status, 1)
        self.one_line(said)
        for word in (f"{alone.parent}/weir-bench", "PATH", "make install"):
            self.assertIn(word, said)
            self.assertIn(word, json.loads(out)["error"]["detail"])
        (alone.parent / "weir-bench").write_text("")
        status, _, said = answer(["bench"], beside)
        self.assertEqual(status, 1)
        self.one_line(said)
        self.assertIn(f"{alone.parent}/weir-bench cannot be run: Permission denied", said)

    def test_weir_bench_is_a_program_of_its_own(self):
        done = subprocess.run([harness.COMMAND.parent / "weir-bench", "serve", "--help"], stdout=subprocess.PIPE, timeout=1000, check=True)
        self.assertEqual(done.stdout.decode(), self.weir("bench", "serve", "--help")[0])

    def test_without_weir_sim_beside_it_what_needs_the_simulated_device_says_so(self):
        alone = self.copy_alone()
        self.write("t.csv", "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.000001,allocate,0x100,64,1\n")
        for words, status in ((["simulate", "--json"], 1), (["help", "simulate"], 1), (["replay", "t.csv"], 1), (["plan", "t.csv"], 1),
                              (["replay", "t.csv", "--driver", "host"], 0), (["plan", "t.csv", "--no-replay"], 0)):
            with self.subTest(words=words):
                done = subprocess.run([alone, *words], cwd=self.folder, env=self.environment({}), timeout=1000, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                if status:
                    self.one_line(done.stderr.decode())
                    self.assertIn(f"{alone.parent}/weir-sim cannot be run", done.stderr.decode())
                if "--json" in words:
                    self.assertIn("weir-sim", json.loads(done.stdout)["error"]["detail"])

    def test_errors_are_json_too(self):
        answer = self.weir_json("run", "missing.toy", status=1)
        self.one_line(self.error)
        self.assertEqual(answer["error"]["model"], "missing.toy")
        self.assertEqual(answer["error"]["stage"], "load")
        answer = json.loads(self.weir("run", "a.toy", "--budget", "cuda:7=1g", "--json", status=1)[0])
        self.assertIn("cuda", answer["error"]["detail"])
        for words, said in ((["plan", "missing"], "missing"), (["replay", "missing"], "missing"),
                            (["simulate", "--trace", "missing"], "missing"), (["devices", "--sysroot", "missing"], "no directory"),
                            (["check", "--clear"], "a.toy" if harness.PACKAGES else "libarchive")):
            with self.subTest(words=words):
                answer = self.weir_json(*words, status=1, WEIR_HOME=str(self.folder / "a.toy"))
                self.one_line(self.error)
                self.assertEqual(list(answer), ["error"])
                self.assertIn(said, answer["error"]["detail"])
        # Without --json, and where the words are wrong, there is no object.
        self.refused("plan", "missing", status=1)
        self.refused("plan", "--json", "--nonesuch")
        self.assertEqual(self.weir("plan", "missing", status=1)[0], "")
        self.assertEqual(self.weir("plan", "--", "--json", status=1)[0], "")


if __name__ == "__main__":
    harness.main()
