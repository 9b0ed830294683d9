"""What a call finds in its process, and sets for its length: the floating-point environment, the current GPU."""
