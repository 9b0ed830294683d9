"""Arrays of other libraries: what comes in is viewed, not copied, and the result is of the kind that came in."""
