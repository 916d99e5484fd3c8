"""weir bench: that every row is measured, that ratios and goals are those of the figures it prints, and that peers are called
as bench/command/peer.h says."""

import os
import subprocess
import unittest
from pathlib import Path

import harness

SHORT = ("--rounds", "1", "--laps", "10")
STUB = harness.BUILD / "stub/cuda"


class Operations(harness.Case):
    def test_rows_and_ratios(self):
        answer = self.weir_json("bench", "--only", "operations", "--rounds", "2", "--laps", "50")
        self.assertEqual(answer["device"], "host")
        self.assertNotIn("allocator", answer)
        rows = answer["rows"]
        who = {row["who"] for row in rows}
        for part in ("mapped", "direct", "async"):
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
        out, error = self.weir("bench", "--rounds", "1", "--laps", "10")
        self.assertIn("allocate and free 4 KiB on a stream", out)
        self.assertIn("C library: malloc and free", out)
        self.assertIn("random, 10000 live", out)
        self.assertEqual(error, "")

    @unittest.skipUnless((STUB / "libcuda.so.1").exists() and not harness.SANITIZED, "the stub of CUDA is not built")
    def test_cuda_has_its_own_calls_beside_each_operation(self):
        rows = self.weir_json("bench", "--only", "operations", "--rounds", "1", "--laps", "10", "--device", "cuda:0",
                              LD_LIBRARY_PATH=str(STUB), STUB_CUDA_TOTAL="0x4000000000")["rows"]
        own = {(row["operation"], row["who"]) for row in rows if row["peer"]}
        for operation in ("allocate and free 4 KiB on a stream", "allocate and free 1 MiB on a stream"):
            for call in ("cuMemAllocAsync", "cuMemAlloc"):
                self.assertIn((operation, f"CUDA: {call}"), own)
        self.assertIn(("order one stream behind another", "CUDA: an event by hand"), own)

    def test_bad_words(self):
        self.assertIn("--rounds 0", self.refused("bench", "--rounds", "0"))
        self.assertIn("--laps x", self.refused("bench", "--laps", "x"))
        self.assertIn("--only all", self.refused("bench", "--only", "all"))
        self.assertIn("'word'", self.refused("bench", "word"))
        self.assertIn("--some", self.refused("bench", "--some"))
        self.assertIn("moon", self.weir("bench", "--only", "operations", "--device", "moon", status=1)[1])


class Plans(harness.Case):
    def test_problems_are_planned_and_checked(self):
        problem = self.folder / "small.16.csv"
        problem.write_text("id,lower,upper,size\na,0,3,8\nb,2,5,8\nc,3,6,8\nd,5,9,16\n")
        answer = self.weir_json("bench", "--only", "plans", "--rounds", "1", "--problems", str(problem))["plans"]
        row = answer["problems"][0]
        self.assertEqual((row["problem"], row["buffers"]), ("small.16.csv", 4))
        self.assertEqual((row["lower_bound"], row["arena"], row["proven"]), (24, 24, True))
        self.assertIsNone(row["peer_seconds"])
        for graph in answer["graphs"]:
            plain = "," not in graph["graph"]
            self.assertLessEqual(graph["quick_over_bound"], 1.02 if plain else 1.05, graph)
            self.assertLessEqual(graph["over_bound"], 1.01 if plain else 1.05, graph)

    def test_bad_problems(self):
        problem = self.folder / "bad.csv"
        problem.write_text("id,lower,upper,size\na,0,3,x\n")
        out, error = self.weir("bench", "--only", "plans", "--rounds", "1", "--problems", str(problem), status=1)
        self.assertIn("line 2", error)


class Peers(harness.Case):
    def build_peer(self):
        target = self.folder / "peers/peer-test.so"
        target.parent.mkdir()
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC",
                        "-o", target, Path(__file__).with_name("peer.c")], check=True)
        return target


class Allocator(Peers):
    def allocator(self, *words, **environment):
        return self.weir_json("bench", "--only", "allocator", *SHORT, *words, **environment)["allocator"]

    def rows(self, part, by):
        return {row["load"]: row for row in part["rows"] if row["by"] == by}

    def check_rows(self, part):
        weir = self.rows(part, part["rows"][0]["by"])
        self.assertEqual(len(weir), 14)
        self.assertTrue(all(row["own"] for row in weir.values()))
        for row in part["rows"]:
            if "failed" in row:
                self.assertIsNone(row["ns"])
                continue
            self.assertLessEqual(row["p50"], row["p99"], row)
            alone = row["load"].startswith("pair") and "threads" not in row["load"]
            self.assertEqual(row["ns"], row["p50"] if alone else row["mean"], row)
            self.assertGreater(row["ns"], 0)
            self.assertAlmostEqual(row["of_weir"], row["ns"] / weir[row["load"]]["ns"], places=6)
        return weir

    def test_host(self):
        part = self.allocator()
        self.check_rows(part)
        self.assertEqual(part["threads"], min(16, len(os.sched_getaffinity(0))))
        own, peers = self.rows(part, "weir, no stream"), {row["by"] for row in part["rows"] if not row["own"]}
        self.assertIn("malloc", peers)
        mimalloc = [name for name in peers if name.startswith("mimalloc")]
        if not mimalloc:
            self.assertIn("libmimalloc", "".join(part["left_out"]))
            self.assertEqual(part["goals"], [])
            return
        other = self.rows(part, mimalloc[0])
        self.assertEqual(len(part["goals"]), 8)
        for goal in part["goals"]:
            self.assertAlmostEqual(goal["measured"], own[goal["load"]]["ns"] / other[goal["load"]]["ns"], places=6)
            self.assertEqual(goal["met"], goal["measured"] <= goal["wanted"])

    def test_resource(self):
        part = self.allocator("--resource", "direct")
        self.assertEqual(part["rows"][0]["by"], "weir: direct")
        done = self.weir_json("bench", "--only", "allocator", *SHORT, "--resource", "none", status=1)
        self.assertIn("none", done["allocator"]["rows"][0]["failed"])
        self.one_line(self.error)

    def test_peers(self):
        target = self.build_peer()
        part = self.allocator("--peer", target)
        self.assertEqual(self.error, "")
        self.check_rows(part)
        watched, small = self.rows(part, "watched"), self.rows(part, "small")
        self.assertTrue(all("failed" not in row for row in watched.values()), watched)
        self.assertEqual({load for load, row in small.items() if "failed" in row},
                         {"pair, 64 MiB", "pair, 66000001 B", "pair, 1200007 B", "random, 1000 live", "random, 10000 live",
                          "random, 1000 live, any size", "random, 10000 live, any size"})
        self.assertIn("absent: its library is not here", part["left_out"])
        header = Path("bench/command/peer.h")
        self.assertIn(f"strange: its table is not that of {header}", part["left_out"])
        self.assertTrue((Path(__file__).parent.parent.parent / header).exists())

    def test_peers_of_a_folder(self):
        folder = self.build_peer().parent
        self.write("peers/broken.so", "this is no shared object")
        self.write("peers/words.txt", "nor is this")
        part = self.allocator("--peer", folder, "--peer", self.folder / "nowhere.so")
        self.assertEqual(len(self.rows(part, "watched")), 14)
        left_out = "\n".join(part["left_out"])
        self.assertEqual(left_out.count("broken.so"), 1)
        self.assertIn("nowhere.so", left_out)
        self.assertNotIn("words.txt", left_out)

    @unittest.skipUnless((STUB / "libcuda.so.1").exists() and not harness.SANITIZED, "the stub of CUDA is not built")
    def test_cuda(self):
        part = self.allocator("--device", "cuda:0", LD_LIBRARY_PATH=str(STUB), STUB_CUDA_TOTAL="0x4000000000")
        weir = self.check_rows(part)
        self.assertEqual(len(self.rows(part, "CUDA: cuMemAllocAsync")), 14)
        wanted = {goal["load"]: goal for goal in part["goals"]}
        self.assertEqual(set(wanted), set(weir))
        for load, goal in wanted.items():
            self.assertAlmostEqual(goal["measured"], weir[load]["ns"], places=6)
            self.assertEqual(goal["wanted"], 100 if load.startswith("freed") else 25 if "B" in load else 50)


class Lending(harness.Case):
    def check_steps(self, answer):
        taken, back, given = answer["lending"]
        self.assertEqual(taken["bytes"], back["bytes"])
        self.assertEqual((back["driver_calls"], back["moved"]), (0, 0))
        self.assertEqual(back["without_driver_call"], back["bytes"])
        self.assertGreater(given["driver_calls"], 0)
        for step in answer["lending"]:
            self.assertGreater(step["us"], 0)
        self.assertEqual(answer["lending_beside"], [])
        return back, given

    def test_host(self):
        answer = self.weir_json("bench", "--only", "lending")
        self.check_steps(answer)
        self.assertEqual(answer["lending_goals"], [])
        out, error = self.weir("bench", "--only", "lending")
        self.assertIn("taken back and forth, where it fits", out)
        self.assertEqual(error, "")

    @unittest.skipUnless((STUB / "libcuda.so.1").exists() and not harness.SANITIZED, "the stub of CUDA is not built")
    def test_cuda_without_kernels(self):
        environment = {"LD_LIBRARY_PATH": str(STUB), "STUB_CUDA_TOTAL": "0x4000000000"}
        answer = self.weir_json("bench", "--only", "lending", "--device", "cuda:0", **environment)
        back, given = self.check_steps(answer)
        again, went = answer["lending_goals"]
        self.assertAlmostEqual(again["measured"], back["us"] * 2**30 / back["bytes"], places=3)
        self.assertAlmostEqual(went["measured"], given["us"] / 1000 * 2**30 / given["bytes"], places=3)
        self.assertEqual((again["wanted"], went["wanted"]), (10, 150))


class Traces(Peers):
    """A trace of two streams that has 4 MiB live at its peak, in which half of it becomes one block."""

    def trace(self):
        rows = ["Thread,Time,Action,Pointer,Size,Stream"]
        rows += [f"1,00:00:00.00000{i},allocate,0x{i + 1}0000000,{harness.MIB},{1 + i % 2}" for i in range(4)]
        rows += [f"1,00:00:00.00001{i},free,0x{i + 1}0000000,{harness.MIB},{1 + i % 2}" for i in (0, 1)]
        rows += [f"1,00:00:00.000020,allocate,0x90000000,{2 * harness.MIB},1", f"1,00:00:00.000021,free,0x90000000,{2 * harness.MIB},1"]
        rows += [f"1,00:00:00.00003{i},free,0x{i + 1}0000000,{harness.MIB},{1 + i % 2}" for i in (2, 3)]
        return self.write("small.csv", "\n".join(rows) + "\n")

    def traces(self, *words, **environment):
        return self.weir_json("bench", "--only", "traces", *words, **environment)["traces"]

    def test_rows_and_goals(self):
        part = self.traces("--traces", self.trace(), "--peer", self.build_peer(), "--lag", "0")
        self.assertEqual(self.error, "")
        rows = {row["by"]: row for row in part["rows"]}
        self.assertEqual(set(rows), {"weir", "watched", "wasteful"})
        for row in rows.values():
            self.assertEqual((row["trace"], row["events"], row["streams"], row["peak_requested"]), ("small", 10, 2, 4 * harness.MIB))
            self.assertGreater(row["ns"], 0)
            self.assertIsNone(row["lag_min_cap"])
        watched, weir = rows["watched"], rows["weir"]
        self.assertEqual((watched["held"], watched["min_cap"], watched["driver_calls"]), (1, 1, None))
        wasteful = rows["wasteful"]
        self.assertEqual(wasteful["held"], 2)
        self.assertAlmostEqual(wasteful["min_cap"], 2, places=2)
        self.assertGreaterEqual(wasteful["min_cap"], 2)
        self.assertEqual((wasteful["ns_105"], wasteful["ns_110"]), (None, None))
        self.assertGreater(watched["ns_105"], 0)
        self.assertGreaterEqual(weir["held"], 1)
        self.assertEqual(weir["min_cap"], 1)
        goals = {goal["what"]: goal for goal in part["goals"]}
        self.assertEqual(goals["least cap over requested"]["wanted"], 1.03)
        self.assertEqual(goals["held without a cap over requested"]["measured"], weir["held"])
        self.assertAlmostEqual(goals["cost under 1.05, of that without"]["measured"], weir["ns_105"] / weir["ns"], places=6)
        self.assertNotIn("cost there, of expandable segments' at theirs", goals)

    def test_lag(self):
        part = self.traces("--traces", self.trace(), "--lag", "2")
        self.assertEqual(part["lag"], 2)
        self.assertGreaterEqual(part["rows"][0]["lag_held"], 1)
        self.assertGreaterEqual(part["rows"][0]["lag_min_cap"], 1)

    def test_folder_and_table(self):
        folder = self.trace().parent / "traces"
        folder.mkdir()
        (self.folder / "small.csv").rename(folder / "first.csv")
        (folder / "second.csv").write_bytes((folder / "first.csv").read_bytes())
        out, error = self.weir("bench", "--only", "traces", "--traces", folder, "--lag", "0")
        self.assertEqual(error, "")
        for name in ("first", "second", "least cap over requested"):
            self.assertIn(name, out)

    def test_bad_words(self):
        self.assertIn("--traces", self.refused("bench", "--only", "traces"))
        self.assertIn("--lag x", self.refused("bench", "--lag", "x"))
        self.assertIn("nowhere", self.weir("bench", "--traces", "nowhere", "--only", "traces", status=1)[1])


if __name__ == "__main__":
    harness.main()
