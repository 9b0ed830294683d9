"""Plain data of a product: what is asked of it, what was planned, what is counted meanwhile, what is reported."""
