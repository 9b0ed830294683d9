"""The compiled code for processors (kernels/cpu/): which library this process takes, and calls of it."""

from ozaki.backends.numpy.compiled.library import Compiled as Compiled
from ozaki.backends.numpy.compiled.library import compiled as compiled
