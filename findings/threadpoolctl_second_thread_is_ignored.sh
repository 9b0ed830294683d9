#!/usr/bin/env bash
# threadpoolctl: once one Python thread has set OpenBLAS's number of threads, threadpool_limits in another Python thread
# changes nothing, without an error. One would guess that the last call counts, or that each thread has its own number.
# seen: main thread sets 1: [1]
# seen: another thread sets 2: [1]
# seen: main thread sets 2: [2]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 threadpoolctl==3.8.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import threading

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

np.ones((2, 2)) @ np.ones((2, 2))


def threads():
    return [each.num_threads for each in ThreadpoolController().select(user_api="blas").lib_controllers]


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def limited(n):
    threadpool_limits(n, user_api="blas")
    return threads()


print("main thread sets 1:", limited(1))
other = in_a_thread(lambda: limited(2))
print("another thread sets 2:", other)
print("main thread sets 2:", limited(2))
assert other == [1] * len(other)
PYTHON
