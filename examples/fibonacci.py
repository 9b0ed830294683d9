"""Numbers of thousands of bits, exactly, as a power of a matrix of zeros and ones.

In the sequence of ten-step Fibonacci numbers each is the sum of the ten before it. A 10 x 10 matrix moves that window
on by one place, and its power, by repeated squaring, by any number of places: a dozen products instead of thousands of
sums. With accuracy "exact" a product has as many bits as it needs.

The oracle is the recurrence in Python's integers.
"""

import numpy as np

import ozaki

STEPS = 10
FAR = 10_000


def moved_on(window, places):
    """The window of consecutive numbers that many places further, by the recurrence."""
    window = list(window)
    for _ in range(places):
        window = [*window[1:], sum(window)]
    return window


def main():
    step = np.eye(STEPS, k=1, dtype=np.int64)  # each number moves up by one place,
    step[-1] = 1  # and the last is the sum of all
    start = np.array([0] * (STEPS - 1) + [1])

    window = ozaki.matmul(ozaki.matrix_power(step, FAR), start, accuracy="exact", dtype="mp")
    found = [int(x) for x in window.to_fractions()]

    digits = str(found[0] % 10**12).zfill(12)
    print(f"the {FAR}th {STEPS}-step Fibonacci number has {found[0].bit_length()} bits and ends in ...{digits}")
    with np.errstate(all="ignore"):
        print(f"float64 gives {np.linalg.matrix_power(step.astype(float), FAR)[0, -1]}")
    assert found == moved_on(start.tolist(), FAR)
    print("the recurrence in Python's integers gives the same number")


if __name__ == "__main__":
    main()
