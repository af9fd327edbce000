"""Trains a small transformer on texts of different lengths, padded to a fixed length or to each batch's longest; alone or with DDP."""

from __future__ import annotations

import argparse
import os
import random

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

Text = list[int]
WORDS = 1000
BATCH = 16


class Classifier(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.encoder = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        found: Tensor = self.head(self.encoder(self.words(words), src_key_padding_mask=mask == 0)[:, 0])
        return found


def padded(texts: list[Text], length: int) -> dict[str, Tensor]:
    length = length or max(map(len, texts))
    rows = [text + [0] * (length - len(text)) for text in texts]
    mask = [[1] * len(text) + [0] * (length - len(text)) for text in texts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


def own_batches(texts: list[Text], shares: str) -> list[list[Text]]:
    """Returns this rank's batches of sorted texts, shuffled in the same way on all ranks or by each rank in its own way."""
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    batches = [texts[n : n + BATCH] for n in range(0, len(texts), BATCH)]
    each = len(batches) // ranks
    own = batches[rank * each : (rank + 1) * each] if shares == "sorted" else batches[rank::ranks]
    random.Random(rank if shares == "shuffled" else 1).shuffle(own)
    return own


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--shortest", type=int, default=8)
    parser.add_argument("--longest", type=int, default=40)
    parser.add_argument("--length", type=int, default=0, help="of every batch; 0: of its longest text")
    parser.add_argument("--grouped", action="store_true", help="texts of similar lengths in a batch")
    shares = "the first of several ranks has the shortest texts, or each has some of all lengths, at the same time as others or not"
    parser.add_argument("--shares", choices=("sorted", "dealt", "shuffled"), help=shares)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    drawn = random.Random(0)
    lengths = [drawn.randint(options.shortest, options.longest) for _ in range(1600)]
    texts = [[drawn.randrange(1, WORDS) for _ in range(length)] for length in lengths]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if options.grouped or ranks > 1:
        texts.sort(key=len)
    if ranks > 1:
        texts = [text for batch in own_batches(texts, options.shares) for text in batch]
    shuffled = not options.grouped and ranks == 1
    loader = DataLoader(
        texts, batch_size=BATCH, shuffle=shuffled, collate_fn=lambda batch: padded(batch, options.length)
    )
    model: nn.Module = Classifier(64)
    if ranks > 1:
        distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    done = 0
    while done < options.steps:
        for batch in loader:
            found = model(batch["input_ids"], batch["attention_mask"])
            loss = nn.functional.cross_entropy(found, torch.zeros(len(found), dtype=torch.int64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
