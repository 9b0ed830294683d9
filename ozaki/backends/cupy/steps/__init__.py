"""Builders of programs: functions that take a builder and symbolic arrays, and add the steps of one subject."""
