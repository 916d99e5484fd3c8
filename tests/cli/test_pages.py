"""The pictures of the pages that weir run and weir report write, in a browser: no label lies over another one, however narrow the
window is and wherever peak and budget are."""

import itertools
import unittest

import browser
import harness
import recorded
from harness import MIB

WINDOWS = ((1200, 900), (720, 900), (320, 800))
SAID = """
const plot = document.querySelector("#plot").getBoundingClientRect();
return [...document.querySelectorAll("#plot svg text")].map(text => {
  const box = text.getBoundingClientRect();
  return [text.textContent, box.left - plot.left, box.top - plot.top, box.right - plot.left, box.bottom - plot.top];
});
"""

# A canvas keeps no texts: their boxes are noted as they are drawn, then the page draws again.
DRAWN = """
const noted = [], draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  if (this.canvas.closest("#timeline")) {
    const m = this.measureText(text);
    noted.push([text, x - m.actualBoundingBoxLeft, y - m.actualBoundingBoxAscent, x + m.actualBoundingBoxRight, y + m.actualBoundingBoxDescent]);
  }
  draw.call(this, text, x, y);
};
dispatchEvent(new Event("resize"));
CanvasRenderingContext2D.prototype.fillText = draw;
return noted;
"""


def meet(a, b):
    """Whether two labels lie over one another, by more than the rounding of a pixel."""
    return min(a[3], b[3]) - max(a[1], b[1]) > 0.5 and min(a[4], b[4]) - max(a[2], b[2]) > 0.5


@unittest.skipIf(browser.BROWSER is None or browser.DRIVER is None, "no chromium with its driver here")
class Labels(harness.Case):
    def setUp(self):
        super().setUp()
        self.window = browser.Browser(self.folder)
        self.addCleanup(self.window.end)

    def look(self, page, script, *wanted):
        """Looks at the labels of each window, along both axes, up to the peak and up to the budget."""
        self.window.open(f"file://{self.folder}/{page}")
        for (width, height), x, y in itertools.product(WINDOWS, ("event", "time"), ("peak", "budget")):
            self.window.look(width, height)
            for name, chosen in (("x", x), ("y", y)):
                self.window.script(f"document.querySelector('input[name={name}][value={chosen}]').click()")
            labels = self.window.script(script)
            at = f"{page} {width}x{height} by {x} up to the {y}: "
            for word in wanted:
                self.assertTrue(any(label[0].startswith(word) for label in labels), f"{at}{labels}")
            for a, b in itertools.combinations(labels, 2):
                self.assertFalse(meet(a, b), f"{at}{a} and {b}")
            wide = self.window.script("return document.querySelector('.plot, #plot').clientWidth")
            for label in labels:
                self.assertTrue(-1 <= label[1] and label[3] <= wide + 1, f"{at}{label} leaves the picture")
        self.assertEqual([], self.window.problems())

    def run_page(self, budget, *weights):
        """Models of so many MiB, whose names are of wide letters."""
        words = [f"{'mW' * 4 * i}{i}.echo" for i in range(len(weights))]
        for word, size in zip(words, weights):
            self.write(word, f"input a f32 -1 3\nweights {size * MIB}\nscratch {MIB}\n")
        self.weir("run", *words, "--budget", f"{budget}MiB", "--report", "run.html")
        self.look("run.html", SAID, "peak ", "budget ")

    def test_run_with_a_budget_above_the_picture(self):
        self.run_page(1000, 197)

    def test_run_of_several(self):
        self.run_page(1000, 100, 3, 60, 25, 9)
        self.run_page(1000, 3, 3, 3, 180)

    def test_run_whose_peak_is_near_the_budget(self):
        for budget in (200, 204, 212, 230):
            self.run_page(budget, 97, 100)

    def test_report(self):
        made = recorded.rows(2000)
        self.write("t.csv", recorded.text(made))
        peak = recorded.Sums(made).peak
        for budget in (peak, peak * 21 // 20, peak * 5):
            self.weir("report", "t.csv", "--budget", budget, "-o", "report.html")
            self.look("report.html", DRAWN, "budget ")


if __name__ == "__main__":
    harness.main()
