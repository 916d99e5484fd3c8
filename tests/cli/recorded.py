"""Made-up recordings in weir's CSV, and what follows from them, worked out here by itself."""

import random
import sys

CLASSES = ("weights", "activations", "kv", "scratch", "other")
HEADER = "Thread,Time,Action,Pointer,Size,Stream,Client,Class,Tag,Order,Nanoseconds"
BASE = 0x7f0000000000
UNIT = 4096
HOSTILE = '</script><img src=x onerror=document.title="run">'
KINDS = (("bert.onnx", "weights", "encoder, 0"), ("bert.onnx", "activations", HOSTILE), ("tiny", "kv", "k"), ("tiny", "weights", ""),
         ('<b>"co" & \'\\</b>', "scratch", "wörk\u2028"))


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def rows(count, seed=1, kinds=KINDS, sizes=(1, 2, 16, 100), most=200):
    """(action, pointer, bytes, stream, client, class, tag), so many."""
    chance = random.Random(seed)
    live, holes, top, made = {}, [], BASE, []
    while len(made) < count:
        if live and (chance.random() < .48 or len(live) > most):
            pointer = chance.choice(list(live))
            size, kind = live.pop(pointer)
            made.append(("free", pointer, size, chance.randrange(1, 4), *kind))
            holes.append((pointer, size))
            continue
        kind, size = chance.choice(kinds), chance.choice(sizes) * UNIT
        if chance.random() < .01:
            made.append(("allocate failure", 0, size * 9, 1, *kind))
            continue
        fitting = [hole for hole in holes if hole[1] >= size]
        if fitting:
            hole = chance.choice(fitting)
            holes.remove(hole)
            pointer = hole[0]
            if hole[1] > size:
                holes.append((pointer + size, hole[1] - size))
        else:
            pointer, top = top, top + size
        live[pointer] = (size, kind)
        made.append(("allocate", pointer, size, chance.randrange(1, 4), *kind))
    return made


def text(made):
    lines = [HEADER]
    for order, (action, pointer, size, stream, client, name, tag) in enumerate(made, 1):
        lines.append(f"1,00:00:00.000000,{action},{pointer:#x},{size},{stream},{quoted(client)},{name},{quoted(tag)},{order},{10**9 + 7000 * order}")
    return "\n".join(lines) + "\n"


class Sums:
    """Follows the rows one by one."""

    def __init__(self, made):
        self.live, self.clients, self.tags, self.blocks, self.owners = 0, {}, {}, {}, {}
        self.peak, self.peak_event, self.allocations, self.frees, self.refused = 0, 0, 0, 0, 0
        self.lends, self.sizes, self.history, self.client_peaks, self.at_peak = {}, {}, [], {}, {}
        for order, row in enumerate(made, 1):
            self.take(order, *row)

    def take(self, order, action, pointer, size, _stream, client, name, tag):
        held = self.clients.setdefault(client, dict.fromkeys(CLASSES, 0))
        kind = self.tags.setdefault((client, name, tag), {"live": 0, "peak": 0, "allocations": 0, "bytes": 0})
        if action == "allocate":
            self.lend(pointer, size, client)
            self.blocks[pointer] = (size, client, name, tag)
            self.allocations += 1
            kind["allocations"] += 1
            kind["bytes"] += size
            least = 1 << (size.bit_length() - 1)
            counted = self.sizes.setdefault(least, [0, 0])
            counted[0] += 1
            counted[1] += size
        elif action == "free":
            del self.blocks[pointer]
            self.frees += 1
            size = -size
        else:
            self.refused += 1
            size = 0
        self.live += size
        held[name] += size
        kind["live"] += size
        kind["peak"] = max(kind["peak"], kind["live"])
        if sum(held.values()) > self.client_peaks.get(client, (0, {}))[0]:
            self.client_peaks[client] = (sum(held.values()), dict(held))
        if self.live > self.peak:
            self.peak, self.peak_event, self.at_peak = self.live, order, dict(self.blocks)
        self.history.append((self.live, {key: dict(value) for key, value in self.clients.items()}))

    def lend(self, pointer, size, client):
        """Page by page: whose it was before."""
        counted = set()
        for page in range(pointer // UNIT, (pointer + size) // UNIT):
            before = self.owners.get(page, client)
            self.owners[page] = client
            if before != client:
                lent = self.lends.setdefault((before, client), [0, 0])
                lent[0] += UNIT
                lent[1] += before not in counted
                counted.add(before)


def many(count, write):
    """A trace of so many events, quickly: six clients, equal places, 2,000 blocks at once."""
    chance, live, holes, top = random.Random(1), [], [], BASE
    kinds = [(f"model{i}", name, f"layer {j}") for i in range(6) for name in ("weights", "activations", "kv") for j in range(5)]
    write(HEADER + "\n")
    for order in range(1, count + 1):
        if live and (chance.random() < .49 or len(live) > 2000):
            at = chance.randrange(len(live))
            (pointer, size, kind), live[at] = live[at], live[-1]
            live.pop()
            holes.append(pointer)
            action = "free"
        else:
            kind, size, action = chance.choice(kinds), chance.choice((UNIT, 16 * UNIT, 256 * UNIT)), "allocate"
            pointer, top = (holes.pop(), top) if holes else (top, top + 256 * UNIT)
            live.append((pointer, size, kind))
        write(f"1,00:00:00.000000,{action},{pointer:#x},{size},{1 + order % 4},{','.join(kind)},{order},{2000 * order}\n")


if __name__ == "__main__":
    many(int(sys.argv[1]), sys.stdout.write)
