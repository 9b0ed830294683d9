"""How many CPUs this process may use: those that it may run on, and those that a container's quota pays for."""

from __future__ import annotations

import os
from contextlib import suppress
from math import ceil
from pathlib import Path

from ozaki.caches import cached


def usable() -> int:
    """CPUs that this process may use, at least 1.

    A quota counts as it was when this was first called: it is read from files.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    paid = _quota()
    return max(1, allowed if paid is None else min(allowed, ceil(paid)))


@cached(1)
def _quota() -> float | None:
    """CPUs that a quota of the control groups of Linux allows; None without one."""
    return quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))


def quota(memberships: Path, root: Path) -> float | None:
    """CPUs that the quotas of a process's control groups, and of those above them, allow; None without one.

    Parameters
    ----------
    memberships : the file that lists the groups, a line each: number, controllers, path
    root : the folder of all groups; those of version 1 have a folder for each controller in it
    """
    found: list[float] = []
    with suppress(OSError, ValueError):
        for line in memberships.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            bases = [root / "unified", root] if not controllers else [root / "cpu", root / controllers]
            for base in bases:
                group = Path(path.lstrip("/"))
                found += [cpus for each in (group, *group.parents) if (cpus := _of_group(base / each)) is not None]
    return min(found, default=None)


def _of_group(folder: Path) -> float | None:
    """CPUs that the quota of one group allows: of version 2 in one file, of version 1 in two."""
    with suppress(OSError, ValueError):
        if (file := folder / "cpu.max").is_file():
            allowed, period = file.read_text().split()
        else:
            allowed, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if allowed.strip() != "max" and int(allowed) > 0:
            return int(allowed) / int(period)
    return None
