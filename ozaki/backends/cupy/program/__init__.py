"""Programs: what a device does in a product, as named buffers and steps, built without memory and run with it."""
