"""A network trained to the same bits: on a CPU or a GPU, by one thread or two, whatever the order of the batch.

`ozaki.torch.emulate` runs every matrix product of PyTorch, forward and backward, by a given number of slices, whose
products are summed exactly: their bits depend on neither machine nor order. What is left is elementwise, and of
operations that IEEE 754 defines to the bit: sums, products, maxima. So nothing here calls exp (the loss is the squared
error), the step is a power of two (so that a GPU may fuse its product with a sum), a bias is a weight of an input that
is always one, and even the loss is summed by a product.

The task is the LED display of Breiman, Friedman, Olshen and Stone (1984): which digit do seven segments show, each of
them wrong with a chance of 10 percent? No rule knows it more often than in 74 percent of all cases. Seventeen more
inputs say nothing.

The oracle are the same steps written in NumPy, gradients by hand, and a hash of all weights, which this file names: a
machine that computes other bits finds another one.
"""

import hashlib
import random
from importlib.util import find_spec

import numpy as np
import torch

import ozaki.torch

SEGMENTS = (
    "1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011",
)  # fmt: skip
SAMPLES, HIDDEN, STEPS, RATE, MOMENTUM = 1024, 48, 16, 2.0**-2, 0.75
SLICES = 7  # residues: as accurate as float32 products, or more
PUBLISHED = "482dac5e8adcea6b"


def display(samples, chance):
    """What displays show, with random bits behind it and a one, and ones and zeros for the digits."""
    digits = [chance.randrange(10) for _ in range(samples)]
    shown = [
        [(bit == "1") ^ (chance.random() < 0.1) for bit in SEGMENTS[digit]] + [chance.random() < 0.5 for _ in range(17)]
        for digit in digits
    ]
    inputs = torch.tensor([[*row, True] for row in shown], dtype=torch.float32)
    return inputs, torch.nn.functional.one_hot(torch.tensor(digits), 10).float()


def weights(rows, columns, chance):
    return torch.tensor([[chance.random() - 0.5 for _ in range(columns)] for _ in range(rows)]) / 4


def outputs(inputs, first, second):
    hidden = torch.relu(inputs @ first)
    return torch.cat([hidden, torch.ones_like(hidden[:, :1])], dim=1) @ second


def start():
    chance = random.Random(1)
    return weights(len(SEGMENTS[0]) + 18, HIDDEN, chance), weights(HIDDEN + 1, 10, chance)


def trained(inputs, targets, device="cpu", threads=1):
    """The weights after some steps of gradient descent with momentum."""
    layers = [layer.to(device).requires_grad_() for layer in start()]
    inputs, targets = inputs.to(device), targets.to(device)
    torch.set_num_threads(threads)
    optimizer = torch.optim.SGD(layers, lr=RATE, momentum=MOMENTUM)
    for _ in range(STEPS):
        optimizer.zero_grad()
        off = (outputs(inputs, *layers) - targets).flatten()
        loss = off @ off / SAMPLES  # a power of two
        loss.backward()
        optimizer.step()
    return layers


def trained_in_numpy(inputs, targets):
    """The same, each operation written out."""

    def product(a, b):
        return ozaki.matmul(a, b, scheme="residues", slices=SLICES)

    inputs, targets, first, second = (x.numpy() for x in (inputs, targets, *start()))
    momenta = [np.zeros_like(first), np.zeros_like(second)]
    rate, momentum, zero, ones = np.float32(RATE), np.float32(MOMENTUM), np.float32(0), np.ones_like(inputs[:, :1])
    for _ in range(STEPS):
        hidden = np.maximum(product(inputs, first), zero)
        extended = np.concatenate([hidden, ones], axis=1)
        slopes = (product(extended, second) - targets) * np.float32(2 / SAMPLES)
        hidden_slopes = np.where(hidden > 0, product(slopes, second.T)[:, :-1], zero)
        gradients = product(inputs.T, hidden_slopes), product(extended.T, slopes)
        momenta = [momentum * m + gradient for m, gradient in zip(momenta, gradients, strict=True)]
        first, second = first - rate * momenta[0], second - rate * momenta[1]
    return torch.from_numpy(first), torch.from_numpy(second)


def digest(layers):
    """The first digits of a hash of all bits."""
    content = b"".join(layer.detach().cpu().numpy().astype("<f4").tobytes() for layer in layers)
    return hashlib.sha256(content).hexdigest()[:16]


def emulation():
    return ozaki.torch.emulate(scheme="residues", slices=SLICES, reproducible=True)


def main():
    inputs, targets = display(SAMPLES, random.Random(0))
    backwards = inputs.flip(0), targets.flip(0)
    ways = {
        "one thread": (inputs, targets, "cpu", 1),
        "two threads": (inputs, targets, "cpu", 2),
        "batch backwards": (*backwards, "cpu", 1),
    }
    if torch.cuda.is_available() and find_spec("cupy"):
        ways["GPU"] = (inputs, targets, "cuda", 1)
    before = torch.get_num_threads()
    found = []
    print(f"hash of all weights after {STEPS} steps    PyTorch alone       with ozaki")
    for way, arguments in ways.items():
        alone = digest(trained(*arguments))
        with emulation() as run:
            layers = trained(*arguments)
        found.append(digest(layers))
        print(f"  {way:<35} {alone}    {found[-1]}")
    torch.set_num_threads(before)
    found.append(digest(trained_in_numpy(inputs, targets)))
    print(f"  {'the same steps in NumPy':<54} {found[-1]}")
    assert run.account.products == 6 * STEPS and not run.account.left

    layers = [layer.detach().cpu() for layer in layers]
    unseen, digits = display(4000, random.Random(2))
    with emulation():
        whole = outputs(unseen, *layers)
        parts = torch.cat([outputs(part, *layers) for part in unseen.split(300)])
    assert torch.equal(whole, parts)
    right = (whole.argmax(1) == digits.argmax(1)).double().mean().item()
    print(f"of 4000 displays that it has not seen it reads {right:.1%}, with the same bits in parts of 300")
    assert 0.65 < right < 0.76
    assert set(found) == {PUBLISHED}
    print(f"all hashes with ozaki are the published one, {PUBLISHED}")


if __name__ == "__main__":
    main()
