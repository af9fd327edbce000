"""Trains small nets whose activation, normalisation, distances, products or distribution are composed by hand, or torch's own."""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

INPUTS = 32


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add(
        "--of",
        choices=("words", "pictures", "codes", "actions", "entities", "tokens", "views", "columns"),
        default="words",
    )
    add("--whole", action="store_true", help="torch's own operation")
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=256)
    add("--width", type=int, default=128)
    add("--layers", type=int, default=4)
    add("--codes", type=int, default=256)
    add("--norms", action="store_true", help="words: normalise by hand, too")
    return parser.parse_args()


class Gelu(nn.Module):
    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x: Tensor) -> Tensor:
        if self.whole:
            return functional.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class LayerNorm(nn.Module):
    def __init__(self, width: int, *, whole: bool) -> None:
        super().__init__()
        self.whole = whole
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.whole:
            return functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-6)
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        return self.weight * (x - mean) / torch.sqrt(var + 1e-6) + self.bias


class Words(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, whole = options.width, options.whole
        blocks = (
            nn.Sequential(
                LayerNorm(width, whole=whole or not options.norms),
                nn.Linear(width, 4 * width),
                Gelu(whole=whole or options.norms),
                nn.Linear(4 * width, width),
            )
            for _ in range(options.layers)
        )
        self.inputs, self.blocks = nn.Linear(INPUTS, width), nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.inputs(x)).pow(2).mean()


class Pictures(nn.Module):
    """ConvNeXt's way of normalising the channels of each pixel."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width // 4
        self.whole = options.whole
        self.inputs = nn.Conv2d(1, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(options.layers))
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x.view(-1, 1, INPUTS, 1).expand(-1, 1, INPUTS, 16))
        for layer in self.layers:
            x = layer(self.normalised(x)).relu()
        return x.mean()

    def normalised(self, x: Tensor) -> Tensor:
        if self.whole:
            rows = functional.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, 1e-6)
            return rows.permute(0, 3, 1, 2)
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Codes(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.whole = options.whole
        self.encoder = nn.Sequential(nn.Linear(INPUTS, 4 * width), nn.ReLU(), nn.Linear(4 * width, width // 4))
        self.decoder = nn.Sequential(nn.Linear(width // 4, 4 * width), nn.ReLU(), nn.Linear(4 * width, INPUTS))
        self.codebook = nn.Parameter(torch.randn(options.codes, width // 4))

    def forward(self, x: Tensor) -> Tensor:
        z = self.encoder(x)
        nearest = self.distances(z).argmin(1)
        code = self.codebook[nearest]
        return functional.mse_loss(self.decoder(z + (code - z).detach()), x) + functional.mse_loss(code, z.detach())

    def distances(self, z: Tensor) -> Tensor:
        if self.whole:
            return torch.cdist(z, self.codebook)
        difference = z.unsqueeze(1) - self.codebook.unsqueeze(0)
        return (difference**2).sum(-1)


class Actions(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.whole = options.whole
        self.net = nn.Sequential(nn.Linear(INPUTS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.mean, self.std = nn.Linear(width, 6), nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean(self.net(x))
        var = torch.exp(2 * self.std).expand_as(mean)
        policy = self.policy(mean, var)
        return -policy.log_prob(x[:, :6]).mean() - 0.01 * policy.entropy().mean()

    def policy(self, mean: Tensor, var: Tensor) -> Distribution:
        if self.whole:
            return Independent(Normal(mean, var.sqrt()), 1)
        return MultivariateNormal(mean, torch.diag_embed(var))


class Entities(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        limit = None if options.whole else 1.0
        self.table = nn.Embedding(options.codes, options.width, max_norm=limit)
        self.score = nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU(), nn.Linear(options.width, 1))

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.abs() * 1e4).long() % self.table.num_embeddings
        return self.score(self.table(ids).mean(1)).pow(2).mean()

    def limit(self) -> None:
        with torch.no_grad():
            self.table.weight.renorm_(2, 0, 1.0)


class Tokens(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.classes = options.codes
        self.inputs = nn.Embedding(options.codes, width) if options.whole else nn.Linear(options.codes, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.abs() * 1e4).long() % self.classes
        rows = self.inputs(ids) if isinstance(self.inputs, nn.Embedding) else self.projected(ids)
        return self.mix(rows).mean(1).pow(2).mean()

    def projected(self, ids: Tensor) -> Tensor:
        rows = functional.one_hot(ids, self.classes).float()
        return self.inputs(rows)


class Views(nn.Module):
    """Contrastive learning: two views of each sample meet those of all others."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.whole = options.whole
        self.net = nn.Sequential(nn.Linear(INPUTS, 8 * width), nn.ReLU(), nn.Linear(8 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.net(x), self.net(x + 0.1)
        if self.whole:
            scores = functional.normalize(one, dim=1) @ functional.normalize(other, dim=1).T
        else:
            scores = functional.cosine_similarity(one.unsqueeze(1), other.unsqueeze(0), dim=2)
        return functional.cross_entropy(scores / 0.2, torch.arange(len(x)))


class Unfolded(nn.Module):
    def __init__(self, width: int, *, whole: bool) -> None:
        super().__init__()
        self.whole = whole
        self.weight = nn.Parameter(torch.randn(width, width, 3, 3) / (3 * math.sqrt(width)))

    def forward(self, x: Tensor) -> Tensor:
        if self.whole:
            return functional.conv2d(x, self.weight, padding=1)
        columns = functional.unfold(x, 3, padding=1)
        return torch.matmul(self.weight.flatten(1), columns).view_as(x)


class Columns(nn.Module):
    """Convolutions with weights of their own, such as equalised ones, by the columns of `unfold`."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, whole = options.width // 8, options.whole
        self.inputs = nn.Conv2d(1, width, 3, padding=1)
        layers = ((Unfolded(width, whole=whole), nn.ReLU()) for _ in range(options.layers))
        self.layers = nn.Sequential(*(each for layer in layers for each in layer))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.inputs(x.view(-1, 1, INPUTS, 1).expand(-1, 1, INPUTS, 16))).pow(2).mean()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40 * options.batch, INPUTS))
    kinds = {
        "words": Words,
        "pictures": Pictures,
        "codes": Codes,
        "actions": Actions,
        "entities": Entities,
        "tokens": Tokens,
        "views": Views,
        "columns": Columns,
    }
    net = kinds[options.of](options)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    step = 0
    while step < options.steps:
        batches = BatchSampler(RandomSampler(data), options.batch, drop_last=True)
        for (x,) in DataLoader(data, sampler=batches, batch_size=None):
            loss = net(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if options.of == "entities" and options.whole:
                net.limit()
            step += 1
            if step == options.steps:
                break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
