"""The bits of a language model's logits, whatever else is in the batch.

A small transformer in bfloat16, its weights drawn here, reads the same sequence alone, among 7 and among 64, and is
trained for a step. Within `ozaki.torch.emulate(accuracy="bf16")` the logits of that sequence, and the gradient that
arrives at its embeddings, have the same bits in every batch: each row of a product is rounded once, and has digits that
neither other rows nor the batch decide. PyTorch's own products add in an order that the shape may decide; on some
processors it does not while matrices are as small as here, and the bits are the same, too.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

import ozaki.torch

LAYERS, HEADS, WIDTH, LENGTH, WORDS = 2, 4, 64, 16, 96
BATCHES = (1, 7, 64)


class Block(nn.Module):
    """Attention and a layer of two products, each beside the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of embeddings, shape (batch, length, width)."""
        batch, length, _ = x.shape
        parts = self.queries(self.first(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        attended = scores.masked_fill(later, -torch.inf).softmax(-1) @ value
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.relu(self.up(self.second(x))))


class Model(nn.Module):
    """Logits of the next word, shape (batch, length, words)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        """Of the embeddings of words."""
        return self.last(self.blocks(embedded)) @ self.embedding.weight.T


def hash_of(x: torch.Tensor) -> str:
    """Of the bits of a tensor."""
    return hashlib.sha256(x.detach().cpu().contiguous().view(torch.int16).numpy().tobytes()).hexdigest()[:16]


def bits_of(batch: int, device: str, products: AbstractContextManager[Any]) -> tuple[str, str, float]:
    """Hashes of the first sequence's logits and of the gradient at its embeddings; the loss after a step."""
    torch.manual_seed(0)
    model = Model().to(torch.bfloat16).to(device)
    words = torch.randint(WORDS, (max(BATCHES), LENGTH + 1)).to(device)[:batch]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05 / batch)
    with products:
        for step in range(2):
            embedded = model.embedding(words[:, :-1])
            embedded.retain_grad()
            logits = model(embedded)
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), words[:, 1:].flatten(), reduction="sum")
            if step == 0:
                optimiser.zero_grad()
                loss.backward()
                found = hash_of(logits[0]), hash_of(embedded.grad[0])
                optimiser.step()
    return *found, loss.item() / batch


def main() -> None:
    """Print the hashes in each batch, by `ozaki` and by PyTorch."""
    device = "cuda" if torch.cuda.is_available() and find_spec("cupy") else "cpu"
    for name, accuracy in (("PyTorch", None), ("ozaki", "bf16")):
        found = set()
        for batch in BATCHES:
            products = nullcontext() if accuracy is None else ozaki.torch.emulate(accuracy=accuracy)
            logits, gradient, loss = bits_of(batch, device, products)
            print(f"{name:8} batch {batch:2}: logits {logits}, gradient {gradient}, loss after a step {loss:.3f}")
            found.add((logits, gradient))
        print(f"{name:8} {'the same bits' if len(found) == 1 else 'other bits'} in batches of {BATCHES}")
        assert accuracy is None or len(found) == 1


if __name__ == "__main__":
    main()
