"""weir serve: what it shows of itself at /weir, what is done there by hand, and the page at /, in a browser."""

import json
import re
import socket
import time
import unittest

import browser
import harness
import test_serve
from test_serve import DEADLINE

MIB = harness.MIB
CLASSES = {"weights", "activations", "kv", "scratch", "other"}


class State(test_serve.Served):
    def state(self):
        status, state = self.ask("GET", "/weir/state")
        self.assertEqual(200, status)
        return state

    def model(self, name):
        return next(model for model in self.state()["models"] if model["name"] == name)

    def act(self, name, action, headers=None):
        return self.ask("POST", f"/weir/models/{name}/{action}", b"", headers)

    def until_state(self, found):
        end = time.monotonic() + DEADLINE
        while not (answer := found(self.state())):
            self.assertLess(time.monotonic(), end, self.state())
            time.sleep(0.01)
        return answer

    def until_past(self):
        """The past, when its newest point shows b's weights: a point is taken at its time, not when a model has come."""
        end = time.monotonic() + DEADLINE
        while True:
            past = self.ask("GET", "/weir/history")[1]
            if [(s["device"], s["client"], s["class"], s["bytes"][-1]) for s in past["series"]] == [("host", "b", "weights", 32 * MIB)]:
                return past
            self.assertLess(time.monotonic(), end, past)
            time.sleep(0.01)

    def begin(self, name):
        """A request whose answer is not read; the client goes with the test."""
        body = json.dumps({"model": name, "prompt": "a"}).encode()
        client = socket.create_connection(("127.0.0.1", self.port))
        self.addCleanup(client.close)
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return client

    def two(self, *words):
        """Of two models one runs, until its client goes; there is no room for both."""
        self.write("slow.echo", "weights 33554432\ninput text text -1\nslow 3600000\ngenerate a")
        self.write("b.echo", "weights 33554432\ninput text text -1\ngenerate yes\n")
        return self.serve("slow.echo", "b.echo", "--budget", "48MiB", "--drain", "0", *words)


class Shown(State):
    def test_cores(self):
        """Who computes with what: in the state, in the figures, and in what ps prints."""
        self.write("slow.echo", "input text text -1\nslow 3600000\ncores 2\ngenerate a")
        self.write("b.echo", "input text text -1\ncores 3\ngenerate yes\n")
        process = self.serve("slow.echo", "b.echo", "--cores", "2", "--drain", "0")
        idle = {"cores": 2, "leased": 0, "peak": 0, "waiting": 0, "coupled": 2, "models": []}
        self.assertEqual(idle, self.state()["cores"])
        self.assertEqual(200, self.ask("POST", "/v1/completions", {"model": "b", "prompt": "a", "max_tokens": 8})[0])
        cores = self.state()["cores"]
        line, = cores["models"]
        self.assertEqual((2, 0, 2, 0), tuple(cores[k] for k in ("cores", "leased", "peak", "waiting")))
        self.assertEqual({"name": "b", "now": 0, "least": 3, "most": 3, "last": 2, "leases": 1, "waits": 0, "waited_seconds": 0}, line)
        self.assertEqual("cores: 2, 0 leased, 0 waiting; b computed with 2",
                         self.weir("ps", WEIR_SERVER=f"127.0.0.1:{self.port}")[0].splitlines()[2])
        client = self.begin("slow")
        self.until_state(lambda state: state["cores"]["leased"] == 2)
        other = self.begin("b")
        self.until_state(lambda state: state["cores"]["waiting"] == 1)
        slow, = (line for line in self.state()["cores"]["models"] if line["name"] == "slow")
        self.assertEqual((2, 2, 1), (slow["now"], slow["last"], slow["leases"]))
        self.assertEqual((2, 2, 1), tuple(self.figure(f"weir_cores{name} ") for name in ("", "_leased", "_waiting")))
        for name, b, of_slow in (("cores", 0, 2), ("core_leases_total", 1, 1), ("core_waits_total", 0, 0)):
            for model, value in (("b", b), ("slow", of_slow)):
                self.assertEqual(value, self.figure(f'weir_model_{name}{{model="{model}"}}'), (name, model))
        self.assertIn("cores: 2, 2 leased, 1 waiting; ", self.weir("ps", WEIR_SERVER=f"127.0.0.1:{self.port}")[0])
        self.assertEqual(2, self.weir_json("ps", WEIR_SERVER=f"127.0.0.1:{self.port}")["cores"]["leased"])
        client.close()
        self.until("weir_model_core_leases_total{model=\"b\"}", 2)
        self.assertEqual(1, self.figure("weir_model_core_waits_total{model=\"b\"}"))
        other.close()
        self.end(process)

    def test_devices_and_models(self):
        process = self.two()
        state = self.state()
        self.assertEqual(["weir", "address", "pid", "time", "began", "devices", "cores", "models", "requests", "http", "events"], list(state))
        self.assertEqual((process.pid, [], []), (state["pid"], state["requests"], state["events"]))
        device, = state["devices"]
        self.assertEqual(("host", 48 * MIB, 48 * MIB, 0, []), tuple(device[k] for k in ("device", "budget", "ceiling", "taken", "clients")))
        self.assertEqual(["b", "slow"], [model["name"] for model in state["models"]])
        model = state["models"][0]
        self.assertEqual(("echo", "cpu", "host", "unloaded", 0, 32 * MIB, 0, None, None, False),
                         tuple(model[k] for k in ("engine", "provider", "device", "state", "size", "predicted_peak", "loads", "progress",
                                                  "expires", "pinned")))
        self.assertEqual((200, "loaded"), (self.act("b", "load")[0], self.model("b")["state"]))
        # What has happened is told by the thread that loads, which the answer does not wait for.
        state = self.until_state(lambda state: len(state["events"]) == 2 and state)
        client, = state["devices"][0]["clients"]
        self.assertEqual(("b", 32 * MIB, CLASSES, 32 * MIB),
                         (client["name"], client["live"], set(client["live_class"]), client["live_class"]["weights"]))
        model = state["models"][0]
        self.assertEqual((32 * MIB, 32 * MIB, 32 * MIB, 1),
                         (model["size"], model["measured_peak"], model["measured"]["weights"], model["loads"]))
        self.assertEqual([("loading", "b"), ("loaded", "b")], [(event["what"], event["model"]) for event in state["events"]])
        self.assertEqual([1, 2], [event["number"] for event in state["events"]])
        self.assertTrue(all(abs(event["time"] - state["time"]) < DEADLINE for event in state["events"]))
        self.end(process)

    def test_the_past(self):
        process = self.two()
        self.assertEqual(200, self.act("b", "load")[0])
        past = self.until_past()
        self.assertEqual(sorted(past["time"]), past["time"])
        self.assertEqual([len(past["time"])], [len(s["bytes"]) for s in past["series"]])
        self.end(process)

    def test_requests(self):
        process = self.two()
        slow = self.begin("slow")
        self.until_state(lambda state: [r["state"] for r in state["requests"]] == ["running"])
        self.begin("b")
        waiting = self.until_state(lambda state: next((r for r in state["requests"] if r.get("reason") == "room"), None))
        self.assertEqual(("b", "/v1/completions", "waiting", 1), tuple(waiting[k] for k in ("model", "path", "state", "position")))
        running = self.state()["requests"][0]
        self.assertEqual(("slow", "running"), (running["model"], running["state"]))
        self.assertNotIn("reason", running)
        slow.close()
        self.until_state(lambda state: not state["requests"])
        self.assertEqual(1, self.model("slow")["evictions"])
        self.end(process)

    def test_by_hand(self):
        process = self.two()
        self.assertEqual((200, {"model": "b", "state": "loaded", "pinned": False, "size": 32 * MIB}), self.act("b", "load"))
        self.assertEqual((200, True), (lambda s, a: (s, a["pinned"]))(*self.act("b", "pin")))
        self.assertEqual((200, False), (lambda s, a: (s, a["pinned"]))(*self.act("b", "unpin")))
        status, answer = self.act("b", "unload")
        self.assertEqual((200, "unloaded", True, 32 * MIB, 0),
                         (status, answer["state"], *(answer["receipt"][k] for k in ("complete", "returned", "kept"))))
        self.assertEqual(200, self.act("b", "unload")[0])
        self.assertIn("cannot be suspended", (self.act("b", "load"), self.act("b", "suspend"))[1][1]["error"])
        for name, action in (("none", "load"), ("none", "unload"), ("none", "pin"), ("b", "dance")):
            self.assertEqual(404, self.act(name, action)[0], (name, action))
        self.assertEqual(405, self.ask("GET", "/weir/models/b/load")[0])
        self.end(process)

    def test_busy_workers(self):
        """The state answers and models are moved while the only worker has a run without end."""
        process = self.two("--workers", "1")
        self.begin("slow")
        self.until_state(lambda state: state["requests"])
        self.begin("b")
        self.until_state(lambda state: state["http"]["waiting"] == 1)
        self.assertEqual((200, True), (lambda s, a: (s, a["pinned"]))(*self.act("slow", "pin")))
        self.assertEqual(200, self.ask("GET", "/", raw=True)[0])
        self.end(process)


class Guarded(State):
    def test_who_may(self):
        process = self.two()
        for headers in ({"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
                        {"Host": "elsewhere.example"}):
            self.assertEqual(403, self.act("b", "load", headers)[0], headers)
        self.assertEqual("unloaded", self.model("b")["state"])
        self.assertEqual(200, self.act("b", "load", {"Sec-Fetch-Site": "same-origin", "Origin": f"http://127.0.0.1:{self.port}"})[0])
        self.assertEqual(413, self.ask("POST", "/weir/models/b/load", b"x" * 2000)[0])
        self.end(process)

    def test_the_page_alone_is_open(self):
        process = self.two("--key", "sesame")
        status, page = self.ask("GET", "/", raw=True)
        self.assertEqual((200, "text/html; charset=utf-8"), (status, self.headers["Content-Type"]))
        for path in ("/weir/state", "/weir/history"):
            self.assertEqual(401, self.ask("GET", path)[0])
        self.assertEqual(401, self.act("b", "load")[0])
        self.assertEqual(200, self.act("b", "load", {"Authorization": "Bearer sesame"})[0])
        self.assertNotIn(b"sesame", page)
        self.end(process)

    def test_its_policy(self):
        process = self.two()
        nonces = []
        for _ in range(2):
            page = self.ask("GET", "/", raw=True)[1].decode()
            policy = self.headers["Content-Security-Policy"]
            nonces.append(re.search(r"script-src 'nonce-([0-9a-f]{32})'", policy)[1])
            self.assertEqual([nonces[-1]] * 2, re.findall(r'<(?:style|script) nonce="(\w*)"', page))
            self.assertEqual(2, len(re.findall(r"<(?:style|script|link rel=\"style)", page)))
            for word in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'none'", "connect-src 'self'"):
                self.assertIn(word, policy)
            self.assertNotIn("unsafe", policy)
            self.assertNotIn("<!--", page)
            self.assertEqual([], re.findall(r"https?://", page))
        self.assertNotEqual(*nonces)
        self.assertEqual("nosniff", self.headers["X-Content-Type-Options"])
        self.end(process)


@unittest.skipIf(browser.BROWSER is None or browser.DRIVER is None, "no chromium and chromedriver here")
class Page(State):
    def setUp(self):
        super().setUp()
        self.browser = browser.Browser(self.folder)
        self.addCleanup(self.browser.end)
        self.browser.look(1200, 900)

    def open(self):
        self.browser.open(f"http://127.0.0.1:{self.port}/")

    def row(self, name, what):
        """Waits until that is true of the model's row."""
        return self.browser.until(f"""const row = [...document.querySelectorAll('#models tbody tr')].find(r => r.dataset.model === {json.dumps(name)});
            return row && ({what});""", f"{name}: {what}")

    def button(self, name, number):
        return f"#models tr[data-model='{name}'] button:nth-child({number})"

    def in_state(self, name, state):
        self.row(name, f"row.querySelector('.pill').textContent === '{state}'")

    def painted(self, least):
        """So many pixels of the picture have a colour of a model's."""
        return self.browser.until(f"""const c = document.querySelector('#timeline canvas'), all = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            let n = 0;
            for (let i = 0; i < all.length; i += 4) n += all[i + 3] > 100 && Math.max(all[i], all[i + 1], all[i + 2]) - Math.min(all[i], all[i + 1], all[i + 2]) > 40;
            return n >= {least};""", "a picture")

    def test_models_are_moved_by_hand(self):
        process = self.two()
        self.open()
        self.in_state("b", "unloaded")
        self.browser.click(self.button("b", 1))
        self.in_state("b", "loaded")
        self.browser.until("return document.querySelector('#toast').textContent === 'b is loaded'")
        self.painted(500)
        self.assertEqual("loaded", self.model("b")["state"])
        self.browser.script("document.querySelector(arguments[0]).focus()", self.button("b", 1))
        self.browser.press("\ue004", " ")  # Tab goes to Pin, past what cannot be done; the space bar presses it
        self.row("b", "row.querySelector('[aria-pressed=true]')")
        self.assertTrue(self.model("b")["pinned"])
        self.assertEqual("Pinned", self.browser.script("return document.activeElement.textContent"))
        self.browser.press(" ")
        self.row("b", "!row.querySelector('[aria-pressed=true]')")
        self.browser.click(self.button("b", 1))
        self.in_state("b", "unloaded")
        self.browser.until("return document.querySelector('#toast').textContent === 'b is unloaded: 32 MiB came back'")
        self.browser.until("return [...document.querySelectorAll('#events li')].some(e => e.textContent.endsWith('b is unloaded: 32 MiB came back'))")
        self.assertEqual([], self.browser.problems())
        self.end(process)

    def test_requests_and_why_they_wait(self):
        process = self.two()
        slow = self.begin("slow")
        self.until_state(lambda state: [r["state"] for r in state["requests"]] == ["running"])
        self.begin("b")
        self.open()
        self.browser.until("""return [...document.querySelectorAll('#requests li')].some(e => e.textContent.includes('slow runs'))
            && /b waits.*there is no room.*number 1 in the queue/.test(document.querySelector('#requests').textContent)""")
        self.row("b", "row.textContent.includes('1 waiting')")
        slow.close()
        self.browser.until("return document.querySelector('#requests .none').hidden === false")
        self.end(process)

    def test_keyboard_reads_the_picture(self):
        process = self.two()
        self.act("b", "load")
        self.until_past()
        self.open()
        self.painted(500)
        self.browser.script("document.querySelector('#timeline .plot').focus()")
        self.browser.press("\ue012")  # to the left
        self.browser.until("return document.querySelector('#read').textContent.includes('32 MiB. b weights 32 MiB')")
        self.end(process)

    def test_screens(self):
        """Light and dark, wide and narrow: nothing hangs over the side, and texts can be told from what is behind them."""
        self.write("a-model-with-quite-a-long-name-of-no-meaning-at-all.echo", "weights 9999999\ninput text text -1\n")
        process = self.serve("a-model-with-quite-a-long-name-of-no-meaning-at-all.echo", self.write("i<b onclick=x>.echo", "input text text -1\n"))
        self.open()
        self.in_state("i<b onclick=x>", "unloaded")
        self.assertEqual(0, self.browser.script("return document.querySelectorAll('#models b[onclick]').length"))
        for width in (1400, 800, 390, 320):
            for dark in (False, True):
                self.browser.look(width, 800, dark)
                self.browser.until("return !matchMedia('(prefers-color-scheme: dark)').matches === " + ("false" if dark else "true"))
                ink, page = self.browser.script("""const s = getComputedStyle(document.body), g = c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0);
                    return [g(s.color), g(s.backgroundColor)]""")
                self.assertGreater((ink - page) * (1 if dark else -1), 450)
                self.assertLessEqual(self.browser.script("return document.documentElement.scrollWidth"), width)
                self.assertEqual([], self.browser.script("""return [...document.querySelectorAll('button, input, b, h2')].filter(e => e.offsetParent &&
                    !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"""))
        self.assertEqual([], self.browser.problems())
        self.end(process)

    def test_a_key(self):
        process = self.two("--key", "sesame")
        self.open()
        self.browser.until("return !document.querySelector('#key').hidden")
        for key in ("wrong", "sesame"):
            self.browser.click("#keytext")
            self.browser.press(*key, "\ue007")
            self.browser.until("return document.querySelector('#keytext').value === ''")
            if key == "wrong":
                self.browser.until("return document.querySelector('#keynote').textContent.includes('not one') && !document.querySelector('#key').hidden")
        self.in_state("b", "unloaded")
        self.browser.click(self.button("b", 1))
        self.in_state("b", "loaded")
        self.end(process)

    def test_a_server_that_goes(self):
        process = self.two()
        self.open()
        self.browser.until("return document.querySelector('#live').textContent === 'live'")
        self.end(process)
        self.browser.until("return document.querySelector('#live').textContent === 'no answer'")


if __name__ == "__main__":
    harness.main()
