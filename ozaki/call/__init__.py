"""What a call gives: operands, the result's memory, factors, checked before anything is computed."""
