"""The command line, as `python -m ozaki`."""

from ozaki._cli import main

main()
