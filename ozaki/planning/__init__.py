"""Planning: which scheme runs, with how many slices, and what is proven of it."""

from ozaki.records.plan import Candidate

__all__ = ["Candidate"]
