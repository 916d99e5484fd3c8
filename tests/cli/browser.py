"""A browser without a screen for tests of pages: Chromium, by its driver, as WebDriver says. Debian's packages are chromium and
chromium-driver."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
DEADLINE = 600  # seconds
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window, with a profile in `folder`. To be ended."""

    def __init__(self, folder, width=1200, height=1000):
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
        self.session = None
        try:
            for line in self.driver.stdout:
                if "started successfully on port" in line:
                    self.at = "http://127.0.0.1:" + line.rsplit("port", 1)[1].strip(" .\n")
                    break
            words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--user-data-dir={folder}/browser", f"--window-size={width},{height}"]
            answer = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:chromeOptions": {"binary": BROWSER, "args": words},
                "goog:loggingPrefs": {"browser": "ALL"}}}})
            self.session = f"/session/{answer['sessionId']}"
        except BaseException:
            self.end()
            raise

    def end(self):
        if self.session:
            self.ask("DELETE", self.session)
        self.driver.terminate()
        self.driver.wait(DEADLINE)
        self.driver.stdout.close()

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.at + path, json.dumps(body).encode() if body is not None else None,
                                         {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def do(self, path, **body):
        return self.ask("POST", self.session + path, body)

    def cdp(self, command, **parameters):
        return self.do("/goog/cdp/execute", cmd=command, params=parameters)

    def open(self, address):
        self.do("/url", url=address)

    def script(self, text, *arguments):
        """What the script returns."""
        return self.do("/execute/sync", script=text, args=list(arguments))

    def look(self, width, height, dark=False):
        """Has a screen of this size, light or dark."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 600)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def find(self, css):
        return self.do("/element", using="css selector", value=css)

    def click(self, css):
        """As a mouse does: what is covered or outside is not clicked."""
        self.do(f"/element/{self.find(css)[ELEMENT]}/click")

    def press(self, *keys):
        """Keys, wherever the focus is."""
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.do("/actions", actions=[{"type": "key", "id": "keys", "actions": steps}])

    def until(self, text, what=None):
        """Waits until what the script returns is true, and answers it."""
        end = time.monotonic() + DEADLINE
        while not (answer := self.script(text)):
            if time.monotonic() > end:
                raise AssertionError(f"{what or text} did not come: {self.script('return document.body.innerText')}\n{self.problems()}")
            time.sleep(0.02)
        return answer

    def picture(self, path, whole=True):
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def problems(self):
        """What the page has complained of: errors of scripts, of its policy, of what it could not fetch."""
        return [entry["message"] for entry in self.ask("POST", self.session + "/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]
