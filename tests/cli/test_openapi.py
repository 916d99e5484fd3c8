"""The document of what `weir serve` answers, against the table of its routes."""

import json
import re
import unittest

import harness

SERVE = harness.SOURCE / "src/cli/serve"
METHODS = {"get", "post", "put", "delete"}


def routes():
    """(method, path, whether it takes a body, whether no key is asked for) of each."""
    text = (SERVE / "serve.c").read_text()
    table = re.search(r"static const ws_route routes\[\] = \{(.*?)\n\};", text, re.S)[1]
    found = [(path, method, True, False) for path, method in re.findall(r'LACKING\("([^"]+)", "(\w+)"\)', table)]
    found += [(path, "POST", True, False) for path in re.findall(r'POST_JSON\("([^"]+)"', table)]
    for entry in re.findall(r"\{(\.method.*?)\},", table, re.S):
        method, path = re.search(r'\.method = "(\w+)",\s*\.path = "([^"]+)"', entry).groups()
        found.append((path, method, "most_body" in entry, ".open = true" in entry))
    return found


class Document(unittest.TestCase):
    def setUp(self):
        self.document = json.loads((SERVE / "openapi.json").read_text())

    def operations(self):
        for path, item in self.document["paths"].items():
            for method, operation in item.items():
                if method in METHODS:
                    yield path, method.upper(), item, operation

    def test_it_is_complete(self):
        told = {(re.sub(r"\{\w+\}", "{}", path), method) for path, method, _, _ in self.operations()}
        self.assertEqual({(path, method) for path, method, _, _ in routes()}, told)
        self.assertGreater(len(told), 40)

    def test_it_says_who_may_ask_and_what_is_sent(self):
        known = {(path, method): (body, free) for path, method, body, free in routes()}
        for path, method, item, operation in self.operations():
            body, free = known[re.sub(r"\{\w+\}", "{}", path), method]
            self.assertEqual(free, operation.get("security") == [], path)
            self.assertEqual(body and method != "GET", "requestBody" in operation, path)
            self.assertEqual(re.findall(r"\{(\w+)\}", path), [p["name"] for p in item.get("parameters", [])], path)
            self.assertEqual(free, "401" not in operation["responses"], path)

    def test_names_are_there_once(self):
        names = [operation["operationId"] for _, _, _, operation in self.operations()]
        self.assertEqual(sorted(set(names)), sorted(names))
        text = json.dumps(self.document)
        for reference in set(re.findall(r'"#/([^"]+)"', text)):
            place = self.document
            for step in reference.split("/"):
                self.assertIn(step, place, reference)
                place = place[step]
        for kind in ("schemas", "responses"):
            for name in self.document["components"][kind]:
                used = f'"#/components/{kind}/{name}"' in text
                self.assertTrue(used or kind == "responses", name)


if __name__ == "__main__":
    unittest.main()
