"""A process that ends, does not answer, or sends another array: the others end with errors that name it."""

import os
import time

import launching
import numpy as np

from ozaki.distributed.communicators.communicator import Message


def work(communicator, how, where):
    rank = communicator.rank
    communicator.all_gather(rank, "beginning")
    if rank == 2:
        if how == "sends less":
            communicator.start([Message(1, np.zeros(50_000))], [], "sending").wait()
        if how == "stays":
            time.sleep(1.3 * communicator.timeout)
        os._exit(3)
    if where == "gathering":
        communicator.all_gather(rank, "gathering")
    else:  # 0 waits for 1, which waits for 2, and finds out first
        time.sleep(0.3 * (rank == 0))
        x = np.zeros(100_000)
        communicator.start([], [Message(rank + 1, x)], "receiving").wait()


if __name__ == "__main__":
    launching.main(work)
