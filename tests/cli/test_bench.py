"""weir bench: that every row is measured, and that its ratio is that of the medians it prints."""

import harness


class Bench(harness.Case):
    def test_rows_and_ratios(self):
        answer = self.weir_json("bench", "--rounds", "2", "--laps", "50")
        self.assertEqual(answer["device"], "host")
        rows = answer["rows"]
        who = {row["who"] for row in rows}
        for part in ("mapped", "direct", "async", "blocks(64KiB)"):
            self.assertIn(f"weir: {part}", who)
        first = {}
        for row in rows:
            self.assertLessEqual(row["median"], row["p99"], row)
            if row["peer"]:
                first.setdefault(row["operation"], row)
        self.assertGreaterEqual(len(first), 3)
        for row in rows:
            peer = first.get(row["operation"])
            if peer is None or peer["median"] == 0:
                self.assertIsNone(row["ratio"], row)
            else:
                self.assertAlmostEqual(row["ratio"], row["median"] / peer["median"], places=6)

    def test_table(self):
        out, error = self.weir("bench", "--rounds", "1", "--laps", "20")
        self.assertIn("allocate and free 4 KiB on a stream", out)
        self.assertIn("C library: malloc and free", out)
        self.assertEqual(error, "")

    def test_bad_words(self):
        self.assertIn("--rounds 0", self.refused("bench", "--rounds", "0"))
        self.assertIn("--laps x", self.refused("bench", "--laps", "x"))
        self.assertIn("'word'", self.refused("bench", "word"))
        self.assertIn("--some", self.refused("bench", "--some"))
        self.assertIn("moon", self.weir("bench", "--device", "moon", status=1)[1])


if __name__ == "__main__":
    harness.main()
