"""Engines: what multiplies slices, and how it wants them to lie."""
