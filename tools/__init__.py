"""Scribe's host side: train, pack, check and measure (CPython). Each tool: `python -m tools.NAME --help`."""

import os

# The references multiply small matrices: a second BLAS thread only waits, and takes a core from others while it does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
