"""scripts/record-trace: what its allocator writes down, over a libcuda.so.1 that is a heap, and what it tells of a trace."""

import ctypes
import gzip
import importlib.machinery
import importlib.util
import os
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAP = """
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *freed[10000];
static int count;
int cuCtxGetCurrent(void **context) { *context = NULL; return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 1; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = freed; return device; }
int cuDeviceGetDefaultMemPool(void **pool, int device) { *pool = NULL; return device; }
int cuMemPoolSetAttribute(void *pool, int attribute, void *value) { (void)pool, (void)value; return attribute != 4; }
/* What was freed last is the next one's, whoever that is. */
int cuMemAllocAsync(unsigned long long *out, size_t bytes, void *stream)
{
    (void)stream, (void)bytes;
    pthread_mutex_lock(&lock);
    *out = (unsigned long long)(count ? freed[--count] : malloc(8192));
    pthread_mutex_unlock(&lock);
    return *out == 0;
}
int cuMemFreeAsync(unsigned long long pointer, void *stream)
{
    (void)stream;
    pthread_mutex_lock(&lock);
    freed[count++] = (void *)pointer;
    pthread_mutex_unlock(&lock);
    usleep(100); /* for others to have it */
    return 0;
}
"""


def load_script():
    loader = importlib.machinery.SourceFileLoader("record_trace", str(ROOT / "scripts/record-trace"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Record(unittest.TestCase):
    THREADS, PAIRS = 3, 500

    def setUp(self):
        self.script = load_script()
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = Path(self.temporary.name)
        (self.folder / "heap.c").write_text(HEAP)
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o",
                        self.folder / "libcuda.so.1", self.folder / "heap.c"], check=True)
        ctypes.CDLL(str(self.folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)  # found by its name from now on
        self.rows = ctypes.CDLL(str(self.script.build(self.folder)))
        self.rows.record_allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.rows.record_allocate.restype = ctypes.c_void_p
        self.rows.record_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.rows.record_count.restype = ctypes.c_size_t
        self.rows.record_write.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def size(self, i, stream):
        return 1 + 37 * i * stream % 5000

    def work(self, stream):
        held = []
        for i in range(self.PAIRS):
            size = self.size(i, stream)
            held.append((self.rows.record_allocate(size, 0, stream * 4096), size))
            if i % 2:
                pointer, size = held.pop(i % len(held))
                self.rows.record_free(pointer, size, 0, stream * 4096)
        for pointer, size in held:
            self.rows.record_free(pointer, size, 0, stream * 4096)

    def read(self, path):
        head, *lines = path.read_text().splitlines()
        self.assertEqual(head, "Thread,Time,Action,Pointer,Size,Stream")
        return [line.split(",") for line in lines]

    def test_rows(self):
        threads = [threading.Thread(target=self.work, args=(1 + i,)) for i in range(self.THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIsNone(self.rows.record_allocate(0, 0, None))  # an empty tensor has no memory, and none to free
        self.rows.record_free(None, 0, 0, None)
        count = 2 * self.THREADS * self.PAIRS
        self.assertEqual(self.rows.record_count(), count)
        path = self.folder / "all.csv"
        self.assertEqual(self.rows.record_write(str(path).encode(), count), 0)
        self.assertNotEqual(self.rows.record_write(str(self.folder / "no/where.csv").encode(), count), 0)
        live, streams, most, before, sizes = {}, {}, 0, "", []
        for thread, time, action, pointer, size, stream in self.read(path):
            self.assertLessEqual(before, time)
            before = time
            self.assertEqual(streams.setdefault(thread, stream), stream)
            if action == "allocate":
                self.assertNotIn(pointer, live)
                live[pointer] = int(size)
                sizes.append((int(stream, 16) // 4096, int(size)))
            else:
                self.assertEqual((action, live.pop(pointer)), ("free", int(size)))
            most = max(most, sum(live.values()))
        self.assertEqual(live, {})
        self.assertEqual(sorted(sizes), sorted((s, self.size(i, s)) for s in range(1, 1 + self.THREADS) for i in range(self.PAIRS)))
        self.assertEqual(set(streams.values()), {hex((1 + i) * 4096) for i in range(self.THREADS)})
        self.check_told(path, count, most)

    def check_told(self, path, count, most):
        packed = self.folder / "all.csv.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        self.assertIn(f"{count} events on {self.THREADS} streams, at most {most >> 20} MiB live", self.script.tell(packed))
        part = self.folder / "part.csv"
        self.assertEqual(self.rows.record_write(str(part).encode(), 10), 0)
        self.assertEqual(self.read(part), self.read(path)[:10])

    def test_words(self):
        done = subprocess.run([ROOT / "scripts/record-trace", "nothing"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no program nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
