"""The programs of bench/torch_programs.py: plain modules of torch.nn with random weights, in the sizes of GPT-2,
BERT-large and a Llama of 0.85 billion parameters. The seed decides the shapes of all steps, and so what they allocate.

    gpt2    training: 8 texts of 256 to 1024 tokens a step, autocast to bfloat16, dropout, AdamW
    bert    serving: 1 to 32 texts of 16 to 384 tokens a step, padded, float16
    llama   generation, bfloat16: 1 to 8 prompts of 64 to 512 tokens a step, and 16 to 40 tokens more for each; the keys
            and values of every layer grow by a concatenation with every token"""

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

    def step(self):
        length = self.chance.randrange(self.longest // 4, self.longest + 1, 8)
        tokens = torch.randint(self.vocabulary, (self.batch, length + 1), device=self.device)
        with torch.autocast(self.device.type, torch.bfloat16):
            told = self.net(tokens[:, :-1])
            loss = functional.cross_entropy(told.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return loss.item()


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

    @torch.inference_mode()
    def step(self):
        lengths = [self.chance.randint(16, self.longest) for _ in range(self.chance.randint(1, self.most))]
        tokens = torch.randint(self.vocabulary, (len(lengths), max(lengths)), device=self.device)
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

    def forward(self, x, angles, kept):
        answer, kept = self.attend(self.before(x), angles, kept)
        x = x + answer
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y)), kept


class Llama(nn.Module):
    def __init__(self, layers, width, heads, shared, inner, words):
        super().__init__()
        self.part, self.words = width // heads, nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, shared, inner) for _ in range(layers))
        self.after, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, begin, kept):
        """The next token of each text; `kept` has the keys and values of each layer, those of these tokens added."""
        places = torch.arange(begin, begin + tokens.shape[1], device=tokens.device, dtype=torch.float32)
        steps = 10000.0 ** (-torch.arange(0, self.part, 2, device=tokens.device, dtype=torch.float32) / self.part)
        turns = torch.outer(places, steps).repeat(1, 2)
        x = self.words(tokens)
        angles = (turns.cos().to(x.dtype), turns.sin().to(x.dtype))
        for i, layer in enumerate(self.layers):
            x, kept[i] = layer(x, angles, kept[i])
        return self.head(self.after(x[:, -1:])).argmax(-1)


class LlamaGenerate:
    def __init__(self, device, small, chance):
        self.device, self.chance = device, chance
        self.vocabulary, self.most, self.longest = (1000, 2, 32) if small else (32000, 8, 512)
        self.more = (4, 8) if small else (16, 40)
        layers, width, heads, shared, inner = (2, 64, 4, 2, 128) if small else (16, 2048, 32, 8, 5632)
        self.net = build(lambda: Llama(layers, width, heads, shared, inner, self.vocabulary), device, torch.bfloat16)
        self.net.eval()

    @torch.inference_mode()
    def step(self):
        batch, length = self.chance.randint(1, self.most), self.chance.randint(self.longest // 8, self.longest)
        tokens = torch.randint(self.vocabulary, (batch, length), device=self.device)
        kept, answers, begin = [None] * len(self.net.layers), [], 0
        for _ in range(self.chance.randint(*self.more)):
            answers.append(self.net(tokens, begin, kept))
            begin += tokens.shape[1]
            tokens = answers[-1]
        return torch.cat(answers, 1).cpu()


PROGRAMS = {"gpt2": Gpt2Train, "bert": BertServe, "llama": LlamaGenerate}


def begin(name, device, small, seed):
    """A program, whose step() does one and waits for its answer."""
    torch.manual_seed(seed)
    return PROGRAMS[name](torch.device(device), small, random.Random(seed))
