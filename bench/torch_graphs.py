"""Programs of bench/torch_models.py, with few shapes, whose work is in CUDA graphs: those that they capture themselves
(gpt2+graph) and those of torch.compile's graph trees (gpt2+compile).

    gpt2+graph      training with texts of four lengths: a captured graph of a whole step for each, all in one pool
    unet+graph      the same with pictures of four sizes; cuDNN does not search
    bert+graph      serving in four shapes, a captured graph for each, all in one pool
    llama+graph     a whole text a step; the tokens behind the prompt come from captured graphs, one for each size of a batch
    streams+graph   four captured graphs of a whole step, in which four streams fork and join
    gpt2+compile    training with texts of two lengths
    unet+compile    training with pictures of two sizes
    bert+compile    serving in four shapes
    llama+compile   as llama+graph, two sizes of a batch, one token compiled

rcnn has neither: its sizes depend on its numbers. Nor has loops, as a capture lets no other thread of the process allocate."""

import torch

from torch_models import BertServe, Gpt2Train, LlamaGenerate, Streams, UNetTrain

LENGTHS = (4, 3, 2, 1)  # quarters of the longest text
SIDES = ((2, 1), (1, 1), (1, 0), (0, 0))  # which of the sides are high and wide
SHAPES = ((1, 64), (4, 128), (8, 128), (16, 256))  # texts and tokens
SMALL_SHAPES = ((2, 32), (1, 16))


def compiled(work):
    torch._dynamo.config.cache_size_limit = 16
    return torch.compile(work, mode="reduce-overhead", dynamic=False)


class Few:
    """Each of these three times at first, as what is compiled or captured takes its time for each; then as chance has it."""

    def __init__(self, every, chance):
        self.every, self.chance, self.first = every, chance, [one for one in every for _ in range(3)]

    def one(self):
        return self.first.pop(0) if self.first else self.chance.choice(self.every)


class Captured:
    """What is asked for again under the same key is a captured graph by then; on the processor it is done as it is."""

    def __init__(self, device):
        self.known, self.on_device = {}, device.type == "cuda"
        self.pool, self.aside = (torch.cuda.graph_pool_handle(), torch.cuda.Stream()) if self.on_device else (None, None)

    def run(self, key, work):
        if key not in self.known:
            self.known[key] = self.capture(work) if self.on_device else work
        self.known[key]()

    def capture(self, work):
        self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):
            work()
        torch.cuda.current_stream().wait_stream(self.aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            work()
        return graph.replay


# ---- captured by the program -----------------------------------------------------------------------------------------

class Gpt2Graph(Gpt2Train):
    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.adam = torch.optim.AdamW(self.net.parameters(), lr=1e-4, capturable=device.type == "cuda")
        self.tokens, self.loss = self.drawn(self.longest), torch.zeros((), device=device)
        self.captured, self.lengths = Captured(device), Few(LENGTHS, chance)

    def once(self, length):
        self.loss.copy_(self.learn(self.tokens[:, :length + 1]))

    def step(self):
        length = self.longest // 4 * self.lengths.one()
        self.tokens[:, :length + 1].copy_(self.drawn(length))
        self.captured.run(length, lambda: self.once(length))
        return self.loss.item()


class UNetGraph(UNetTrain):
    search = False

    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        parts = [part for group in self.adam.param_groups for part in group["params"]]
        self.adam = torch.optim.AdamW(parts, lr=1e-4, capturable=device.type == "cuda")
        self.loss, self.pictures = torch.zeros((), device=device), {}
        self.captured, self.sizes = Captured(device), Few(SIDES, chance)

    def once(self, size):
        self.loss.copy_(self.learn(self.pictures[size]))

    def step(self):
        size = tuple(self.sides[min(side, len(self.sides) - 1)] for side in self.sizes.one())
        drawn = self.drawn(*size)
        self.pictures.setdefault(size, drawn).copy_(drawn)
        self.captured.run(size, lambda: self.once(size))
        return self.loss.item()


class BertShapes(BertServe):
    """Few shapes, whose words are all there."""

    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.shapes = Few(SMALL_SHAPES if small else SHAPES, chance)

    def drawn(self, shape):
        return torch.randint(self.vocabulary, shape, device=self.device, generator=self.draw)

    def mask(self, shape):
        return torch.ones(shape[0], 1, 1, shape[1], dtype=torch.bool, device=self.device)


class BertGraph(BertShapes):
    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.captured, self.of_shape = Captured(device), {}

    def once(self, shape):
        tokens, mask, answer = self.of_shape[shape]
        answer.copy_(self.net(tokens, mask))

    @torch.inference_mode()
    def step(self):
        shape = self.shapes.one()
        drawn = self.drawn(shape)
        if shape not in self.of_shape:
            self.of_shape[shape] = drawn, self.mask(shape), torch.zeros(shape[0], 2, device=self.device)
        self.of_shape[shape][0].copy_(drawn)
        self.captured.run(shape, lambda: self.once(shape))
        return self.of_shape[shape][2].cpu()


class Decoder:
    """What one token more reads and writes, for one size of a batch."""

    def __init__(self, net, batch, most, device):
        part, shared = net.part, net.layers[0].shared
        self.tokens, self.place = (torch.zeros(*shape, dtype=torch.long, device=device) for shape in ((batch, 1), (1,)))
        self.kept = [tuple(torch.zeros(batch, shared, most, part, dtype=net.words.weight.dtype, device=device) for _ in range(2))
                     for _ in net.layers]

    def once(self, one_more):
        self.tokens.copy_(one_more(self.tokens, self.place, self.kept))
        self.place.add_(1)


class LlamaGraph(LlamaGenerate):
    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.most_tokens, self.decoders, self.captured = self.longest + self.more[1], {}, Captured(device)
        self.batches = Few((1, 2) if small else (1, 2, 4, 8), chance)

    def decoder(self, batch):
        if batch not in self.decoders:
            self.decoders[batch] = Decoder(self.net, batch, self.most_tokens, self.device)
        return self.decoders[batch]

    def one_more(self, decoder):
        self.captured.run(decoder, lambda: decoder.once(self.net.one_more))

    @torch.no_grad()
    def step(self):
        batch, length = self.batches.one(), self.chance.randint(self.longest // 8, self.longest)
        tokens, kept = torch.randint(self.vocabulary, (batch, length), device=self.device), [None] * len(self.net.layers)
        decoder, answers = self.decoder(batch), [self.net(tokens, 0, kept)]
        for mine, whole in zip(kept, decoder.kept):
            for one, every in zip(mine, whole):
                every[:, :, :length].copy_(one)
        decoder.tokens.copy_(answers[0])
        decoder.place.fill_(length)
        for _ in range(self.chance.randint(*self.more) - 1):
            self.one_more(decoder)
            answers.append(decoder.tokens.clone())
        return torch.cat(answers, 1).cpu()


class StreamsGraph(Streams):
    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.of_graph = [(self.heights(), torch.zeros(32, device=device)) for _ in range(4)]
        self.captured, self.which = Captured(device), Few(range(4), chance)

    def once(self, which):
        heights, sums = self.of_graph[which]
        sums.copy_(self.work(heights))

    def step(self):
        which = self.which.one()
        self.captured.run(which, lambda: self.once(which))
        return self.of_graph[which][1].cpu()


# ---- by torch.compile ------------------------------------------------------------------------------------------------

class Gpt2Compile(Gpt2Train):
    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.net, self.lengths = compiled(self.net), Few(LENGTHS[::2], chance)

    def step(self):
        torch.compiler.cudagraph_mark_step_begin()
        return self.learn(self.drawn(self.longest // 4 * self.lengths.one())).item()


class UNetCompile(UNetTrain):
    search = False

    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.net, self.few = compiled(self.net), Few(self.sides[:2], chance)

    def step(self):
        torch.compiler.cudagraph_mark_step_begin()
        side = self.few.one()
        return self.learn(self.drawn(side, side)).item()


class BertCompile(BertShapes):
    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.net = compiled(self.net)

    @torch.inference_mode()
    def step(self):
        shape = self.shapes.one()
        torch.compiler.cudagraph_mark_step_begin()
        return self.net(self.drawn(shape), self.mask(shape)).float().cpu()


class LlamaCompile(LlamaGraph):
    def __init__(self, device, small, chance):
        super().__init__(device, small, chance)
        self.once, self.batches = compiled(self.net.one_more), Few((1, 2) if small else (2, 8), chance)

    def decoder(self, batch):
        """Graph trees take no graph that changes what they are given, unless it always lies at the same place."""
        decoder = super().decoder(batch)
        for whole in decoder.kept:
            for every in whole:
                torch._dynamo.mark_static_address(every)
        return decoder

    def one_more(self, decoder):
        torch.compiler.cudagraph_mark_step_begin()
        decoder.once(self.once)


PROGRAMS = {"gpt2+graph": Gpt2Graph, "unet+graph": UNetGraph, "bert+graph": BertGraph, "llama+graph": LlamaGraph,
            "streams+graph": StreamsGraph, "gpt2+compile": Gpt2Compile, "unet+compile": UNetCompile, "bert+compile": BertCompile,
            "llama+compile": LlamaCompile}
