#!/usr/bin/env python3
"""The mistakes of tests/mutants can all be made; and how their lists are read, and their places found."""

import contextlib
import importlib.machinery
import importlib.util
import io
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True

import mistakes as mi  # noqa: E402

loader = importlib.machinery.SourceFileLoader("mutants", str(SCRIPTS / "mutants"))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
loader.exec_module(mutants)

SOURCE = """\
#include "base.h"
#define TWICE(x) \\
    ((x) + (x))
#define BRACE {

/* A brace in a comment { and a quote " are none. */
struct pair {
    int first, second;
};

typedef struct lane {
    int first;
} lane;

enum { MOST = 8, LEAST = 1 };

static const char *const words[] = {"a { b", "c;", '"', "last"};
static int count;

static int take(struct pair *p, int by);

static int take(struct pair *p, int by)
{
    if (by > MOST) /* too
                      many */
        return 0;
    p->first += by; // a remark }
    return p->first;
}

static __attribute__((noinline)) int give(struct pair *p)
{
    struct pair copy = {.first = p->first};
    p->first += 1;
#ifdef ONE
    if (copy.first) {
#else
    if (copy.second) {
#endif
        count++;
    }
    return 0;
}

_Atomic(int) *last(void)
{
    count++;
    return 0;
}
"""


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("src/a.c", SOURCE)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def read(self, text, name="a.mut"):
        return mi.Reader(self.write(f"lists/{name}", text)).read()

    def one(self, places, source="src/a.c"):
        return self.read(f"source: {source}\n\na-name: what is wrong\n{places}")[0]

    def make(self, places, source="src/a.c"):
        return mi.make(self.one(places, source), mi.Sources(self.root))

    def becomes(self, places, old, new):
        """The source is as it was but for that."""
        self.assertEqual(SOURCE.count(old), 1)
        self.assertEqual(self.make(places), {"src/a.c": SOURCE.replace(old, new)})

    def refuses(self, where, what, text):
        with self.assertRaises(mi.FormError) as refused:
            self.read(text)
        self.assertIn(where, str(refused.exception))
        self.assertIn(what, str(refused.exception))

    def is_stale(self, what, places, source="src/a.c"):
        with self.assertRaises(mi.Stale) as refused:
            self.make(places, source)
        self.assertIn(what, str(refused.exception))


class Lists(Case):
    def test_an_entry_has_a_name_a_sentence_a_test_and_places(self):
        found = self.read("# a remark\nsource: src/a.c\n\none-name: this: is wrong\n  # and one more\n  test core-a\n"
                          "  in take\n  - return 0;\n  + if (by)\n  +     return 1;\n  in MOST\n  - 8\n"
                          "other: it\n  in -\n  - count\n")
        self.assertEqual([(m.name, m.sentence, m.test, m.source) for m in found],
                         [("one-name", "this: is wrong", "core-a", "src/a.c"), ("other", "it", "", "src/a.c")])
        self.assertEqual([(p.name, p.old, p.new) for p in found[0].places],
                         [("take", "return 0;\n", "if (by)\n    return 1;\n"), ("MOST", "8\n", "")])

    def test_one_file_may_go_on_with_another_source(self):
        found = self.read("source: src/a.c\na: x\n  in f\n  - y\nsource: src/b.c\nb: x\n  in f\n  - y\n")
        self.assertEqual([m.source for m in found], ["src/a.c", "src/b.c"])

    def test_what_is_not_of_the_form_is_refused_with_its_line(self):
        head = "source: src/a.c\n"
        for where, what, text in [
                (":1", "no source is named", ""),
                (":1", "before its source", "a: x\n  in f\n  - y\n"),
                (":1", "neither", "something\n"),
                (":1", "neither", "source:\n"),
                (":2", "no name", head + "A name: x\n"),
                (":2", "no name", head + "a--b: x\n"),
                (":2", "no name", head + "../../b: x\n"),
                (":2", "neither", head + "a:\n  in f\n  - y\n"),
                (":2", "no place", head + "a: x\n"),
                (":2", "no place", head + "a: x\n  test t\n"),
                (":2", "belongs to no mistake", head + "  in f\n"),
                (":3", "not expected", head + "a: x\n  - y\n"),
                (":3", "not expected", head + "a: x\n  function f\n"),
                (":3", "not expected", head + "a: x\n  in\n"),
                (":3", "not expected", head + "a: x\n  in two words\n"),
                (":3", "not expected", head + "a: x\n  test $(reboot)\n"),
                (":4", "not expected", head + "a: x\n  test t\n  test u\n  in f\n  - y\n"),
                (":4", "not expected", head + "a: x\n  in f\n  test t\n  - y\n"),
                (":5", "not expected", head + "a: x\n  in f\n  + y\n  - z\n"),
                (":3", "no old text", head + "a: x\n  in f\n  + y\n"),
                (":3", "no old text", head + "a: x\n  in f\n  - /* y */\n  + z\n"),
                (":3", "is the old one", head + "a: x\n  in f\n  - a  b\n  + a b /* c */\n"),
                (":1", "not in the repository", "source: /etc/passwd\n"),
                (":1", "not in the repository", "source: src/../../x.c\n")]:
            with self.subTest(text=text):
                self.refuses(f"a.mut{where}", what, text)

    def test_bytes_that_are_no_text_are_refused(self):
        self.refuses("a.mut", "decode", b"source: src/a.c\na: \xff\n")

    def test_each_name_is_there_once_and_so_is_each_mistake(self):
        self.read("source: src/a.c\na: x\n  in f\n  - y\n")
        for second, what in [("a: z\n  in g\n  - y\n", "is in a.mut, too"),
                             ("b: z\n  in f\n  -  y\n", "under another name")]:
            self.write("lists/b.mut", "source: src/a.c\n" + second)
            with self.assertRaisesRegex(mi.FormError, what):
                mi.read_lists(self.root / "lists")
        self.write("lists/b.mut", "source: src/a.c\nb: z\n  in g\n  - y\n")
        self.assertEqual([m.name for m in mi.read_lists(self.root / "lists")], ["a", "b"])


class Places(Case):
    def test_of_a_function_which_has_the_text_once_though_others_have_it_too(self):
        self.becomes("  in take\n  - return 0;\n  + return 1;\n", "        return 0;\n    p", "        return 1;\n    p")
        self.becomes("  in last\n  - count++;\n", "{\n    count++;\n", "{\n    \n")

    def test_blanks_line_breaks_and_comments_do_not_count(self):
        old = "if (by > MOST) /* too\n                      many */\n        return 0;\n    p->first += by"
        self.becomes("  in take\n  - if (by>MOST) return\n  -    0; p -> first\n  + p->second\n", old, "p->second += by")

    def test_words_are_matched_whole(self):
        self.is_stale("0 times", "  in take\n  - rst += by\n")
        self.is_stale("0 times", "  in take\n  - p->fir\n")

    def test_new_lines_stand_where_the_old_ones_did(self):
        self.becomes("  in take\n  - return 0;\n  + if (by)\n  +     return 1;\n", "        return 0;\n    p",
                     "        if (by)\n            return 1;\n    p")

    def test_what_is_no_function_has_a_name_too(self):
        for name, old, new, whole in [
                ("pair", "second", "third", "int first, second"),
                ("lane", "int first;", "int one;", "int first;\n} lane"),
                ("MOST", "8", "9", "MOST = 8"), ("LEAST", "8", "9", "MOST = 8"), ("words", '"c;"', '"d"', '"c;"'),
                ("TWICE", "((x)", "(2 * (x)", "((x)"), ("count", "static int", "int", "static int count"),
                ("-", '"base.h"', '"b.h"', '"base.h"')]:
            with self.subTest(name=name):
                self.becomes(f"  in {name}\n  - {old}\n  + {new}\n", whole, whole.replace(old, new))

    def test_text_that_is_there_more_than_once_is_not_guessed_at(self):
        self.is_stale("2 times", "  in take\n  - p->first\n")
        self.is_stale("times, in - of", "  in -\n  - count\n")

    def test_text_of_another_function_is_not_taken(self):
        self.is_stale("0 times", "  in take\n  - count++\n")
        self.is_stale("0 times", "  in pair\n  - return 0\n")

    def test_a_comment_or_a_string_is_no_code(self):
        self.is_stale("0 times", "  in take\n  - a remark\n")
        self.is_stale("0 times", "  in words\n  - c;\n")

    def test_several_places_at_once(self):
        made = self.make("  in take\n  - return 0;\n  in MOST\n  - 8\n  + 1 << 30\n  in take\n  - += by\n  + -= by\n")
        self.assertEqual(made["src/a.c"].split(),
                         SOURCE.replace("        return 0;\n    p", "    p").replace("MOST = 8", "MOST = 1 << 30")
                         .replace("+= by", "-= by").split())

    def test_places_do_not_overlap(self):
        self.is_stale("overlaps", "  in take\n  - return p->first;\n  in take\n  - return p\n")

    def test_a_file_of_any_other_kind_has_places_too(self):
        self.write("CMakeLists.txt", "# it's a remark\nset(A 1)\nset(B 1)\n")
        made = self.make("  in -\n  - set(B 1)\n  + set(B 2)\n", "CMakeLists.txt")
        self.assertEqual(made, {"CMakeLists.txt": "# it's a remark\nset(A 1)\nset(B 2)\n"})


class Moves(Case):
    def test_a_function_that_has_moved_is_found(self):
        self.write("src/b/c.h", SOURCE)
        self.write("src/a.c", "static int other(void)\n{\n    return take(0, 0);\n}\n")
        made = self.make("  in take\n  - return 0;\n  + return 1;\n")
        self.assertEqual(list(made), ["src/b/c.h"])
        (self.root / "src/a.c").unlink()
        self.assertEqual(self.make("  in take\n  - return 0;\n  + return 1;\n"), made)

    def test_places_that_are_in_two_files_now_are_found_in_both(self):
        self.write("src/b.c", "void elsewhere(void)\n{\n    stop();\n}\n")
        made = self.make("  in take\n  - return 0;\n  in elsewhere\n  - stop();\n")
        self.assertEqual(sorted(made), ["src/a.c", "src/b.c"])

    def test_where_two_could_be_meant_none_is(self):
        self.write("src/b.c", SOURCE)
        self.is_stale("2 times, in take of src/gone.c, which is not there", "  in take\n  - return 0;\n", "src/gone.c")

    def test_a_namesake_elsewhere_does_not_stand_in_for_one_that_has_changed(self):
        self.write("src/b.c", SOURCE.replace("return 0", "return 7"))
        self.is_stale("0 times, in take of src/a.c", "  in take\n  - return 7;\n")

    def test_where_the_text_went_is_told(self):
        self.write("src/b.c", "void elsewhere(void)\n{\n    stop();\n}\n")
        self.is_stale("0 times, in take of src/a.c; it is in elsewhere of src/b.c", "  in take\n  - stop();\n")
        self.write("src/c.c", "void too(void)\n{\n    stop();\n}\n")
        with self.assertRaisesRegex(mi.Stale, "0 times, in take of src/a.c$"):
            self.make("  in take\n  - stop();\n")

    def test_a_whole_file_does_not_move(self):
        self.write("src/b.c", SOURCE)
        self.is_stale("0 times", '  in -\n  - "base.h"\n', "src/gone.c")


class HostileSources(Case):
    def test_none_of_them_is_more_than_stale(self):
        for text in ["", "{", "}}}}", "((((", "int f(void) {", "/* no end", '"no end', "'", "#", "#define", "#else",
                     "#endif",
                     "\\", "enum", "= {", "\0\0", b"\xff\xfe{", "(" * 20000, ";" * 20000,
                     "int f(void)\n{\n#if 1\n    {\n#else\n    {\n#endif\n    }\n}\n"]:
            with self.subTest(text=text[:40]):
                self.write("src/a.c", text)
                self.is_stale("0 times", "  in f\n  - x\n")

    def test_bytes_that_are_no_text_stay_as_they_are(self):
        file = self.write("src/a.c", b"int f(void)\n{\n    return \"\xff\", 1;\n}\n")
        made = self.make("  in f\n  - 1\n  + 2\n")
        file.write_text(made["src/a.c"], errors="surrogateescape")
        self.assertEqual(file.read_bytes(), b"int f(void)\n{\n    return \"\xff\", 2;\n}\n")

    def test_functions_are_found_between_what_looks_like_their_ends(self):
        for between in ["", "}", "}}\n}", 'extern "C" {', "struct a;", "int a[] = {1, 2};", "int b = a(1);",
                        "#define C {",
                        "int d(void)\n{\n#if A\n    {\n#if B\n        b();\n#endif\n#else\n    {\n#endif\n    }\n}"]:
            with self.subTest(between=between):
                source = mi.Source('int g(void)\n{\n    return \'}\' + "}"[0];\n}\n' + between +
                                   "\nint h(void)\n{\n    return 1;\n}\nint i(void) { return 2; }\n")
                self.assertEqual([len(source.find(mi.Place(name, "", "return"))) for name in "ghi"], [1, 1, 1])

    def test_what_something_is_made_of_is_not_its_name(self):
        for text, name, inner in [("static int a[] = {b};", "a", "b"), ("int a = b(1);", "a", "b"),
                                  ("int a(int b) {}", "a", "b"), ("int a(void) { b(); }", "a", "b"),
                                  ("struct a { int b; };", "a", "b"), ("enum a { C = b(1, 2) + d };", "C", "d")]:
            with self.subTest(text=text):
                self.assertTrue(mi.Source(text).has(name))
                self.assertFalse(mi.Source(text).has(inner))
        self.assertFalse(mi.Source("int a(int b);").has("a"))


class Hints(Case):
    TEXT = "source: src/a.c\n\na-b: it\n  in f\n  - x\n\na: it\n  # why\n  test old\n  in f\n  - y\n"

    def test_the_test_that_finds_a_mistake_is_written_beside_it(self):
        found = {m.name: m for m in self.read(self.TEXT)}
        for name in ("a", "a-b"):
            mi.note_test(found[name], "core-new")
        text = self.TEXT.replace("  # why\n  test old\n", "  test core-new\n  # why\n")
        text = text.replace("a-b: it\n", "a-b: it\n  test core-new\n")
        self.assertEqual((self.root / "lists/a.mut").read_text(), text)
        self.assertEqual([m.test for m in self.read(text)], ["core-new", "core-new"])

    def test_one_that_has_gone_meanwhile_is_not_missed(self):
        found = self.read(self.TEXT)
        self.read(self.TEXT[:self.TEXT.index("\na:") + 1])
        mi.note_test(found[1], "core-new")
        found[0].file.unlink()
        mi.note_test(found[0], "core-new")
        self.assertFalse(found[0].file.exists())


class Tidying(Case):
    HEAD = "# of old times\nsource: src/a.c\n"
    TAKE = "take: x\n  test core-a\n  # why\n  in take\n  - return 0;\n"
    GIVE = "give: x\n  in give\n  - return 0;\n  in take\n  - return 0;\n"
    WORDS = "words: x\n  in words\n  - \"c;\"\n"

    def tidied(self, lists):
        for name, text in lists.items():
            self.write(f"lists/{name}", text)
        moved = mi.tidy(self.root / "lists", mi.Sources(self.root))
        return moved, {file.name: file.read_text() for file in (self.root / "lists").glob("*")}

    def test_where_nothing_has_moved_all_stays(self):
        lists = {"any-name.mut": "\n".join([self.HEAD, self.GIVE, self.TAKE])}
        self.assertEqual(self.tidied(lists), (0, lists))

    def test_each_goes_where_its_first_place_is(self):
        end = SOURCE.index("static int take(struct pair *p, int by)\n{")
        self.write("src/a.c", SOURCE[:end])
        self.write("src/b/c.c", SOURCE[end:])
        moved, lists = self.tidied({"any-name.mut": "\n".join([self.HEAD, self.TAKE, self.WORDS, self.GIVE])})
        self.assertEqual(moved, 2)
        self.assertEqual(lists, {"any-name.mut": "\n".join([self.HEAD, self.WORDS]),
                                 "b-c.mut": "\n".join(["source: src/b/c.c\n", self.GIVE, self.TAKE])})
        self.assertEqual(self.tidied(lists), (0, lists))

    def test_a_list_of_which_nothing_is_left_goes_and_what_was_there_stays(self):
        (self.root / "src/a.c").rename(self.root / "src/b.h")
        moved, lists = self.tidied({"a.mut": "\n".join([self.HEAD, self.TAKE]),
                                    "b.h.mut": "\n".join(["source: src/b.h\n", self.WORDS])})
        self.assertEqual((moved, lists), (1, {"b.h.mut": "\n".join(["source: src/b.h\n", self.TAKE, self.WORDS])}))

    def test_where_one_is_stale_nothing_is_touched(self):
        lists = {"a.mut": "\n".join([self.HEAD, self.WORDS]), "b.mut": "source: src/gone.c\n\n" + self.TAKE +
                 "\nlost: x\n  in nothing\n  - x\n"}
        with self.assertRaises(mi.Stale):
            self.tidied(lists)
        self.assertEqual({file.name: file.read_text() for file in (self.root / "lists").glob("*")}, lists)


class Command(Case):
    def run_with(self, *words):
        with mock.patch.multiple(mutants, ROOT=self.root, LISTS=self.root / "lists"), \
                mock.patch.object(sys, "argv", ["mutants", *words]), \
                contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                status = mutants.main()
            except SystemExit as end:
                status = end.code
        return status, out.getvalue() + errors.getvalue()

    def test_check_tells_which_are_stale_and_where(self):
        self.write("lists/a.mut", "source: src/a.c\ngood: x\n  in take\n  - += by\nbad: x\n  in take\n  - -= by\n")
        status, text = self.run_with("--check")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"^stale +bad +a.mut:6: the old text is there 0 times, in take of src/a.c\n1 stale of 2$")
        self.assertEqual(self.run_with("--check", "good"), (0, "0 stale of 1\n"))

    def test_the_engines_have_lists_of_their_own(self):
        self.write("lists/a.mut", "source: src/a.c\ngood: x\n  in take\n  - += by\n")
        self.write("lists/engines/a.mut", "source: src/a.c\nother: x\n  in take\n  - -= by\n")
        with mock.patch.multiple(mutants, **{name: getattr(mutants, name) for name in
                                             ("SCRATCH", "LOGS", "TESTS", "ROOMS", "OPTIONS", "CLEAN", "CHANGED")}):
            self.assertRegex(self.run_with("--engines", "--check")[1], "^stale +other .*\n1 stale of 1$")
            self.assertNotIn("-DWEIR_ENGINES=OFF", mutants.OPTIONS)
            self.assertEqual(mutants.CHANGED.tree.parent.parent.name, "engines")
        self.assertEqual(self.run_with("--check", "good"), (0, "0 stale of 1\n"))
        self.assertRegex(self.run_with("--check")[1], "1 stale of 2$")

    def test_what_is_known_to_find_one_is_tried(self):
        known = [mi.Mistake(f"m-{i}", "", None, 0, "src/a.c", test) for i, test in enumerate(["predict-fit", "", "a-b", "a-b"])]
        with mock.patch.object(mutants, "TESTS", "^core"):
            pattern = mutants.tests_for(known)
            tried = [name for name in ("core-ladder", "predict-fit", "predict-fits", "a-b", "xa-b", "other") if re.search(pattern, name)]
        self.assertEqual(tried, ["core-ladder", "predict-fit", "a-b"])

    def test_a_list_that_cannot_be_read_is_told(self):
        self.write("lists/a.mut", "source: src/a.c\nnonsense\n")
        self.assertIn("a.mut:2: 'nonsense' is neither", self.run_with("--check")[0])

    def test_a_name_that_is_none_is_told(self):
        self.write("lists/a.mut", "source: src/a.c\ngood: x\n  in take\n  - += by\n")
        self.assertIn("is called goat", self.run_with("--check", "goat")[0])

    def test_a_sample_is_each_so_many_th(self):
        all_of_them = [mi.Mistake(f"m-{i}", "", None, 0, "") for i in range(10)]
        self.assertEqual([m.name for m in mutants.choose(all_of_them, [], 4)], ["m-0", "m-4", "m-8"])
        self.assertEqual(self.run_with("--check", "--sample", "0")[0], 2)


class Building(unittest.TestCase):
    def test_the_compilers_first_complaint_is_told(self):
        for text, line in [("[1/2] cc error.c\na.c:3:1: warning: b\n  src/a.c:4:2: error: no\na.c:5:2: error: neither\n",
                            "src/a.c:4:2: error: no"),
                           ("ld: undefined reference to `b'\ncollect2: error: 1\n", "ld: undefined reference to `b'"),
                           ("ninja: unknown", "ninja: unknown"), ("", "")]:
            self.assertEqual(mutants.complaint(text), line)


class Order(Case):
    def test_the_known_test_is_first_and_what_is_linked_anew_is_last(self):
        kinds = {"alone": b"\x7fELF", "shared": b"\x7fELF libweir.so.1", "known": b"\x7fELF"}
        tests = [mock.Mock(command=[str(self.write(name, kinds[name]))]) for name in ("alone", "shared", "known")]
        tests.append(mock.Mock(command=[sys.executable, "-V"]))
        for test, name in zip(tests, ("alone", "shared", "known", "script")):
            test.name = name
        with mock.patch.multiple(mutants, SCRATCH=self.root, TESTS="^(alone|shared|known|script)$"):
            for known, order in [("known", [["known"], ["shared", "script"], ["alone"]]),
                                 ("", [["shared", "script"], ["alone", "known"]])]:
                self.assertEqual([[test.name for test in stage] for stage in mutants.stages(tests, known, "src/a.c")], order)
            self.assertEqual(mutants.stages(tests[:1], "none", "src/a.c"), [tests[:1]])

    def test_those_of_the_room_come_before_the_cores_and_are_for_its_mistakes_alone(self):
        tests = [mock.Mock(command=[sys.executable]) for _ in range(4)]
        for test, name in zip(tests, ("core-one", "far-one", "near-one", "near-two")):
            test.name = name
        with mock.patch.multiple(mutants, TESTS="^(core|near-one)", ROOMS=(("src/near/", "^near"), ("src/far/", "^far"))):
            for source, known, order in [("src/near/a.c", "", [["near-one", "near-two"], ["core-one"]]),
                                         ("src/near/a.c", "near-two", [["near-two"], ["near-one"], ["core-one"]]),
                                         ("src/far/a.c", "", [["far-one"], ["core-one", "near-one"]]),
                                         ("src/a.c", "", [["core-one", "near-one"]])]:
                with self.subTest(source=source, known=known):
                    self.assertEqual([[test.name for test in stage] for stage in mutants.stages(tests, known, source)], order)

    def test_each_room_that_has_mistakes_and_tests_of_its_own_has_them_tried(self):
        rooms = {path.name for path in (ROOT / "tests").iterdir() if (path / "tests.cmake").is_file()}
        for source in {mistake.source for mistake in mi.read_lists(ROOT / "tests/mutants")}:
            room = Path(source).parts[1]
            with self.subTest(source=source):
                self.assertTrue(room not in rooms or mutants.room_of(source) != "^$" or re.search(mutants.TESTS, room))


class TheLists(unittest.TestCase):
    """Those of this repository."""

    def test_each_can_be_made(self):
        found, sources, stale = mi.read_lists(ROOT / "tests/mutants"), mi.Sources(ROOT), []
        self.assertGreater(len(found), 400)
        of_engines = mi.read_lists(ROOT / "tests/mutants/engines")
        self.assertGreater(len(of_engines), 40)
        self.assertEqual({mistake.name for mistake in found} & {mistake.name for mistake in of_engines}, set())
        found += of_engines
        for mistake in found:
            try:
                mi.make(mistake, sources)
            except mi.Stale as why:
                stale.append(f"{mistake.name}: {why}")
        self.assertEqual(stale, [], "these are to be made anew from what the code is now")


if __name__ == "__main__":
    unittest.main()
