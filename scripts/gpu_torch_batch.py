"""Runs tests of a file of PyTorch's in this process, for scripts/gpu_torch_tests.py.

    gpu_torch_batch.py FILE REPORT [NAME…]     these (class.test), or without names: lists all that it has

The file stays as it is. REPORT gets a line of JSON when a test begins and one when it ends, so that whoever started this knows what
ran when the process is killed by a test, or hangs in one. After a test that failed the device is looked at: an error of CUDA's that
stays would fail all others, so this ends then (status 3), and the rest is for a new process."""

import faulthandler
import importlib
import json
import os
import sys
import time
import unittest
from pathlib import Path

POISONED = 3
LONG = 40  # seconds after which a test says where it is
# What a newer PyTorch calls otherwise than the files do.
RENAMED = {"torch.testing._internal.inductor_utils": {"HAS_CUDA": "HAS_CUDA_AND_TRITON"}}


def load(path):
    text = path.read_text()
    for name, names in RENAMED.items():
        if name in text:
            module = importlib.import_module(name)
            for old, new in names.items():
                if not hasattr(module, old):
                    setattr(module, old, getattr(module, new))
    sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem)


def cases_of(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from cases_of(one)
        else:
            yield one


def name_of(case):
    return f"{type(case).__name__}.{getattr(case, '_testMethodName', case)}"


def said_of(error):
    lines = [line.strip() for line in str(error[1]).splitlines() if line.strip()]
    return f"{error[0].__name__}: {' / '.join(lines)}"[:600]


class Told(unittest.TestResult):
    def __init__(self, report):
        super().__init__()
        self.report, self.begun, self.outcome, self.of_class = report, 0, ("passed", ""), ""

    def tell(self, **line):
        self.report.write(json.dumps(line) + "\n")
        self.report.flush()

    def startTest(self, test):
        super().startTest(test)
        self.begun, self.outcome = time.monotonic(), ("passed", "")
        self.tell(begin=name_of(test))
        faulthandler.dump_traceback_later(LONG, exit=False)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        self.tell(test=name_of(test), went=self.outcome[0], why=self.outcome[1], seconds=round(time.monotonic() - self.begun, 2))
        if self.outcome[0] == "failed" and poisoned():
            self.tell(end="the device answers nothing but errors")
            os._exit(POISONED)

    def addError(self, test, err):
        super().addError(test, err)
        self.outcome = ("failed", said_of(err))
        if not isinstance(test, unittest.TestCase):  # what its class begins or ends with
            self.of_class = self.outcome[1]

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcome = ("failed", said_of(err))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcome = ("failed", said_of(err))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = ("skipped", reason[:200])

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = ("failed", "it succeeded, which was not expected")


def poisoned():
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def main():
    path, report, names = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    sys.argv = [str(path)]  # which PyTorch's own tools read
    os.chdir(path.parent)
    cases = {name_of(case): case for case in cases_of(unittest.defaultTestLoader.loadTestsFromModule(load(path)))}
    with open(report, "a", encoding="utf-8") as file:
        told = Told(file)
        if not names:
            told.tell(every=list(cases))
        else:
            unittest.TestSuite(cases[name] for name in names).run(told)
            told.tell(end=told.of_class or "done")
    sys.stdout.flush()
    os._exit(0)  # what frees what while a process ends is not looked at


if __name__ == "__main__":
    main()
