"""The models that scripts/gpu-onnx measures with, exported by PyTorch with random weights.

    gpu_models.py FOLDER
"""

import sys
from pathlib import Path


def encoder(torch, layers=12, width=768, heads=12, words=30522):
    """An encoder of the shape of BERT."""
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

        def split(self, x):
            return x.view(x.size(0), x.size(1), heads, width // heads).transpose(1, 2)

        def forward(self, x, mask):
            q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
            weights = torch.softmax(q @ k.transpose(-1, -2) / (width // heads) ** 0.5 + mask, dim=-1)
            mixed = (weights @ v).transpose(1, 2).reshape(x.size(0), x.size(1), width)
            x = self.first(x + self.o(mixed))
            return self.second(x + self.down(nn.functional.gelu(self.up(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.place, self.kind = (nn.Embedding(n, width) for n in (words, 512, 2))
            self.norm, self.layers = nn.LayerNorm(width), nn.ModuleList(Layer() for _ in range(layers))
            self.pool = nn.Linear(width, width)

        def forward(self, input_ids, attention_mask, token_type_ids):
            places = torch.arange(input_ids.size(1))
            x = self.norm(self.word(input_ids) + self.place(places) + self.kind(token_type_ids))
            mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
            for layer in self.layers:
                x = layer(x, mask)
            return torch.tanh(self.pool(x[:, 0]))

    return Encoder()


def small(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                         nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 100))


def export(torch, model, inputs, path, names, output):
    axes = {name: {0: "batch"} for name in (*names, output)}
    for name in names:
        if name != "x":
            axes[name][1] = "tokens"
    for exporter in (False, True):
        try:
            torch.onnx.export(model.eval(), inputs, str(path), input_names=list(names), output_names=[output],
                              dynamic_axes=axes, opset_version=17 if not exporter else 18, dynamo=exporter)
            return
        except Exception as error:  # the older exporter may be gone
            print(f"{path.name}: {error}", file=sys.stderr)
    sys.exit(f"{path.name} could not be exported")


def make_models(folder):
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.onnx" for name in ("resnet50", "bert", "small")}
    if all(path.exists() for path in paths.values()):
        return paths
    import torch
    import torchvision
    torch.manual_seed(1)
    ids = torch.ones(2, 8, dtype=torch.int64)
    with torch.no_grad():
        export(torch, torchvision.models.resnet50(weights=None), (torch.zeros(2, 3, 224, 224),), paths["resnet50"],
               ("x",), "y")
        export(torch, small(torch), (torch.zeros(2, 3, 224, 224),), paths["small"], ("x",), "y")
        export(torch, encoder(torch), (ids, ids, ids * 0), paths["bert"],
               ("input_ids", "attention_mask", "token_type_ids"), "pooled")
    return paths


if __name__ == "__main__":
    make_models(Path(sys.argv[1]))
