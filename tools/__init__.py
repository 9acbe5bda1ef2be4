"""Scribe's host side: train, pack, check and measure (CPython). Each tool: `python -m tools.NAME --help`."""
