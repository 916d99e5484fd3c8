"""The programs of bench/torch_programs.py: plain modules of torch.nn with random weights, in the sizes of GPT-2,
BERT-large and a Llama of 0.85 billion parameters. The seed decides the shapes of all steps, and so what they allocate.

    gpt2    training: 8 texts of 256 to 1024 tokens a step, autocast to bfloat16, dropout, AdamW
    bert    serving: 1 to 32 texts of 16 to 384 tokens a step, padded, float16
    llama   generation, bfloat16: 1 to 8 prompts of 64 to 512 tokens, and 16 to 40 tokens more for each, 8 of them a step; the
            keys and values of every layer grow by a concatenation with every token
    unet    training on pictures of nine sizes, cuDNN looking for its fastest convolutions
    rcnn    training of torchvision's Mask R-CNN; what its second stage sees varies with what the first one says
    streams four streams that read each other's arrays
    loops   gpt2 trained by one thread while another serves bert, on a stream of its own

The same with captured graphs (gpt2+graph) and with torch.compile (gpt2+compile) are in torch_graphs.py. What a step draws by chance
is the same in every process with the same seed, also where two threads draw; its answer is what the host has got when it ends."""

import concurrent.futures
import random

import torch
from torch import nn
from torch.nn import functional


def build(make, device, dtype):
    """A net made in its own type: one that is converted would peak before its first step."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return make()
    finally:
        torch.set_default_dtype(before)


def own_chance(device):
    """On the device: what other parts of the program draw there, and when, changes nothing."""
    return torch.Generator(device).manual_seed(torch.initial_seed())


class Attention(nn.Module):
    def __init__(self, width, heads, dropout=0.0, causal=False):
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = self.inward(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        x = functional.scaled_dot_product_attention(q, k, v, mask, dropout, self.causal)
        return functional.dropout(self.outward(x.transpose(1, 2).reshape(batch, length, width)), dropout)


class Feed(nn.Sequential):
    def __init__(self, width, dropout=0.0, approximate="none"):
        inner = 4 * width
        super().__init__(nn.Linear(width, inner), nn.GELU(approximate), nn.Linear(inner, width), nn.Dropout(dropout))


# ---- GPT-2, trained --------------------------------------------------------------------------------------------------

class Gpt2Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads, 0.1, causal=True)
        self.between, self.feed = nn.LayerNorm(width), Feed(width, 0.1, "tanh")

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, words, longest):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.dropout, self.after = nn.Dropout(0.1), nn.LayerNorm(width)
        self.layers = nn.Sequential(*(Gpt2Layer(width, heads) for _ in range(layers)))
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return functional.linear(self.after(self.layers(self.dropout(x))), self.words.weight)


class Gpt2Train:
    def __init__(self, device, small, chance):
        self.device, self.chance = device, chance
        self.vocabulary, self.batch, self.longest = (1000, 2, 64) if small else (50257, 8, 1024)
        layers, width, heads = (2, 64, 4) if small else (12, 768, 12)
        self.net = build(lambda: Gpt2(layers, width, heads, self.vocabulary, self.longest), device, torch.float32)
        self.adam = torch.optim.AdamW(self.net.parameters(), lr=1e-4)

    def drawn(self, length):
        return torch.randint(self.vocabulary, (self.batch, length + 1), device=self.device)

    def learn(self, tokens):
        with torch.autocast(self.device.type, torch.bfloat16):
            told = self.net(tokens[:, :-1])
            loss = functional.cross_entropy(told.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return loss.detach()

    def step(self):
        return self.learn(self.drawn(self.chance.randrange(self.longest // 4, self.longest + 1, 8))).item()


# ---- BERT, serving ---------------------------------------------------------------------------------------------------

class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.between = Attention(width, heads), nn.LayerNorm(width)
        self.feed, self.after = Feed(width), nn.LayerNorm(width)

    def forward(self, x, mask):
        x = self.between(x + self.attention(x, mask))
        return self.after(x + self.feed(x))


class Bert(nn.Module):
    def __init__(self, layers, width, heads, words, longest):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.before = nn.LayerNorm(width)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, tokens, mask):
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.before(self.words(tokens) + places)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(torch.tanh(self.pool(x[:, 0])))


class BertServe:
    def __init__(self, device, small, chance):
        self.device, self.chance = device, chance
        self.vocabulary, self.most, self.longest = (1000, 4, 32) if small else (30522, 32, 384)
        layers, width, heads = (2, 64, 4) if small else (24, 1024, 16)
        self.net = build(lambda: Bert(layers, width, heads, self.vocabulary, self.longest), device, torch.float16)
        self.net.eval()
        self.draw = own_chance(device)

    @torch.inference_mode()
    def step(self):
        lengths = [self.chance.randint(16, self.longest) for _ in range(self.chance.randint(1, self.most))]
        tokens = torch.randint(self.vocabulary, (len(lengths), max(lengths)), device=self.device, generator=self.draw)
        there = torch.arange(max(lengths), device=self.device) < torch.tensor(lengths, device=self.device)[:, None]
        return self.net(tokens, there[:, None, None, :]).float().cpu()


# ---- a Llama, generating ---------------------------------------------------------------------------------------------

def rotated(x, angles):
    first, second = x.chunk(2, -1)
    return x * angles[0] + torch.cat([-second, first], -1) * angles[1]


class LlamaLayer(nn.Module):
    def __init__(self, width, heads, shared, inner):
        super().__init__()
        self.heads, self.shared, part = heads, shared, width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.outward = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, shared * part, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def attend(self, x, angles, kept):
        """What it answers, and the keys and values of all tokens so far."""
        batch, length, width = x.shape
        q, k, v = (part(x).view(batch, length, heads, -1).transpose(1, 2)
                   for part, heads in ((self.q, self.heads), (self.k, self.shared), (self.v, self.shared)))
        q, k = rotated(q, angles), rotated(k, angles)
        if kept:
            k, v = torch.cat([kept[0], k], 2), torch.cat([kept[1], v], 2)
        every_k, every_v = (one.repeat_interleave(self.heads // self.shared, 1) for one in (k, v))
        x = functional.scaled_dot_product_attention(q, every_k, every_v, is_causal=length > 1)
        return self.outward(x.transpose(1, 2).reshape(batch, length, width)), (k, v)

    def feed(self, x):
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def forward(self, x, angles, kept):
        answer, kept = self.attend(self.before(x), angles, kept)
        return self.feed(x + answer), kept

    def one_more(self, x, angles, kept, place, there):
        """A token behind those in `kept`, whose keys and values lie in memory for the longest text: nothing changes its size."""
        batch, _, width = x.shape
        y = self.before(x)
        q, k, v = (part(y).view(batch, 1, heads, -1).transpose(1, 2)
                   for part, heads in ((self.q, self.heads), (self.k, self.shared), (self.v, self.shared)))
        for every, one in zip(kept, (rotated(k, angles), v)):
            every.index_copy_(2, place, one)
        every_k, every_v = (one.repeat_interleave(self.heads // self.shared, 1) for one in kept)
        answer = functional.scaled_dot_product_attention(rotated(q, angles), every_k, every_v, there)
        return self.feed(x + self.outward(answer.transpose(1, 2).reshape(batch, 1, width)))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, shared, inner, words):
        super().__init__()
        self.part, self.words = width // heads, nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, shared, inner) for _ in range(layers))
        self.after, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, begin, kept):
        """The next token of each text; `kept` has the keys and values of each layer, those of these tokens added."""
        x = self.words(tokens)
        angles = self.angles(torch.arange(begin, begin + tokens.shape[1], device=tokens.device), x.dtype)
        for i, layer in enumerate(self.layers):
            x, kept[i] = layer(x, angles, kept[i])
        return self.head(self.after(x[:, -1:])).argmax(-1)

    def angles(self, places, dtype):
        steps = 10000.0 ** (-torch.arange(0, self.part, 2, device=places.device, dtype=torch.float32) / self.part)
        turns = torch.outer(places.float(), steps).repeat(1, 2)
        return turns.cos().to(dtype), turns.sin().to(dtype)

    def one_more(self, tokens, place, kept):
        """The same for one token a text at `place`, a number on the device, with keys and values as in LlamaLayer.one_more."""
        x = self.words(tokens)
        angles = self.angles(place, x.dtype)
        there = torch.arange(kept[0][0].shape[2], device=tokens.device) <= place
        for layer, mine in zip(self.layers, kept):
            x = layer.one_more(x, angles, mine, place, there[None, None, None])
        return self.head(self.after(x)).argmax(-1)


class LlamaGenerate:
    def __init__(self, device, small, chance):
        self.device, self.chance = device, chance
        self.vocabulary, self.most, self.longest = (1000, 2, 32) if small else (32000, 8, 512)
        self.more = (4, 8) if small else (16, 40)
        layers, width, heads, shared, inner = (2, 64, 4, 2, 128) if small else (16, 2048, 32, 8, 5632)
        self.net = build(lambda: Llama(layers, width, heads, shared, inner, self.vocabulary), device, torch.bfloat16)
        self.net.eval()

        self.texts, self.kept, self.begin, self.left = None, None, 0, 0

    def next_texts(self):
        batch, length = self.chance.randint(1, self.most), self.chance.randint(self.longest // 8, self.longest)
        self.texts = torch.randint(self.vocabulary, (batch, length), device=self.device)
        self.kept, self.begin, self.left = [None] * len(self.net.layers), 0, self.chance.randint(*self.more)

    @torch.inference_mode()
    def step(self):
        if not self.left:
            self.kept = None
            self.next_texts()
        answers = []
        for _ in range(min(self.left, 8)):
            answers.append(self.net(self.texts, self.begin, self.kept))
            self.begin += self.texts.shape[1]
            self.texts = answers[-1]
        self.left -= len(answers)
        return torch.cat(answers, 1).cpu()


# ---- more programs ---------------------------------------------------------------------------------------------------

class UNetTrain:
    """Pictures of nine sizes, each at the first steps once, with cuDNN looking for its fastest convolutions: workspaces come and go."""
    search = True

    def __init__(self, device, small, chance):
        self.device, self.chance = device, chance
        self.batch, self.sides, width = (1, (32, 64), 8) if small else (8, (128, 256, 384), 64)
        torch.backends.cudnn.benchmark = self.search and not small
        self.first = [(high, wide) for high in self.sides for wide in self.sides]
        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())
        with torch.device(device):
            self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
            self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
            self.last = nn.Conv2d(width, 2, 1)
        parts = [*self.down.parameters(), *self.up.parameters(), *self.last.parameters()]
        self.adam = torch.optim.AdamW(parts, lr=1e-4)

    def net(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = kept.pop()
        for block in self.up:
            x = block(torch.cat([functional.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.last(x)

    def drawn(self, high, wide):
        return torch.rand(self.batch, 3, high, wide, device=self.device)

    def learn(self, x):
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = functional.cross_entropy(self.net(x), (x.mean(1) > 0.5).long())
        loss.backward()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return loss.detach()

    def step(self):
        size = self.first.pop() if self.first else [self.chance.choice(self.sides) for _ in range(2)]
        return self.learn(self.drawn(*size)).item()


class MaskRcnnTrain:
    """torchvision's Mask R-CNN: pictures of several sizes with 1 to 20 things on each; how many boxes the second stage sees
    depends on what the first one says."""

    def __init__(self, device, small, chance):
        from torchvision.models import detection
        self.device, self.chance = device, chance
        self.batch, self.sides, words = (1, (64, 96), {"min_size": 64, "max_size": 96}) if small else (2, (480, 800), {})
        with torch.device(device):
            self.net = detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, **words)
        self.net.to(device).train()
        self.descent = torch.optim.SGD(self.net.parameters(), lr=1e-6)
        self.draw = own_chance(device)

    def target(self, high, wide):
        count = self.chance.randint(1, 20)
        size = torch.tensor([wide, high], device=self.device)
        corner, more = (torch.rand(count, 2, device=self.device, generator=self.draw) for _ in range(2))
        boxes = torch.cat([corner * size * 0.6, corner * size * 0.6 + size * 0.1 + more * size * 0.3], 1)
        return {"boxes": boxes, "labels": torch.randint(1, 91, (count,), device=self.device, generator=self.draw),
                "masks": torch.randint(2, (count, high, wide), dtype=torch.uint8, device=self.device, generator=self.draw)}

    def step(self):
        sizes = [tuple(self.chance.randrange(*self.sides, 16) for _ in range(2)) for _ in range(self.batch)]
        images = [torch.rand(3, *size, device=self.device, generator=self.draw) for size in sizes]
        loss = sum(self.net(images, [self.target(*size) for size in sizes]).values())
        loss.backward()
        self.descent.step()
        self.descent.zero_grad(set_to_none=True)
        return loss.item()


class Loops:
    """gpt2 is trained by one thread while another serves bert on a stream of its own: a step is one there and three here."""

    def __init__(self, device, small, chance):
        self.train, self.serve = (make(device, small, random.Random(chance.random())) for make in (Gpt2Train, BertServe))
        self.thread = concurrent.futures.ThreadPoolExecutor(1)
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None

    def serving(self):
        with torch.cuda.stream(self.stream):
            return [self.serve.step().flatten() for _ in range(3)]

    def step(self):
        beside = self.thread.submit(self.serving)
        loss = self.train.step()
        return torch.cat([torch.tensor([loss]), *beside.result()])


class Streams:
    """Four streams, whose arrays one of the others reads."""

    def __init__(self, device, small, chance):
        self.device, self.chance = device, chance
        self.most, self.streams = (64, 2) if small else (2048, 4)
        self.streams = [torch.cuda.Stream() for _ in range(self.streams)] if device.type == "cuda" else []

    def heights(self):
        return [self.chance.randrange(8, self.most, 8) for _ in range(32)]

    def work(self, heights):
        sums, last = [], None
        for stream in self.streams:
            stream.wait_stream(torch.cuda.current_stream())
        for turn, height in enumerate(heights):
            stream = self.streams[turn % len(self.streams)] if self.streams else None
            with torch.cuda.stream(stream):
                x = torch.rand(height, self.most, device=self.device)
                y = x @ x.T
                if last is not None and stream is not None:
                    stream.wait_stream(last[1])
                    last[0].record_stream(stream)
                sums.append((y.sum() + (last[0].sum() if last is not None else 0)).reshape(1))
                last = (y, stream)
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        for one in sums if self.streams else ():
            one.record_stream(torch.cuda.current_stream())
        return torch.cat(sums)

    def step(self):
        return self.work(self.heights()).cpu()


PROGRAMS = {"gpt2": Gpt2Train, "bert": BertServe, "llama": LlamaGenerate, "unet": UNetTrain, "rcnn": MaskRcnnTrain, "streams": Streams,
            "loops": Loops}


def begin(name, device, small, seed):
    """A program, whose step() does one and waits for its answer."""
    torch.manual_seed(seed)
    programs = PROGRAMS
    if "+" in name:
        import torch_graphs
        programs = torch_graphs.PROGRAMS
    return programs[name](torch.device(device), small, random.Random(seed))
