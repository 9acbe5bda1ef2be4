"""What the tests of training need beyond `make setup`; they are left out, and said to be, where it is not installed."""

import pytest


def need():
    """PyTorch, where all that training needs is installed; else the module that calls this is left out."""
    for name in ("torch", "safetensors", "tokenizers", "tqdm", "matplotlib", "numpy"):
        # Said in the way tests/conftest.py declares what is left out.
        pytest.importorskip(name, reason="left out: training tests (make train ARGS=--help)")
    import torch

    return torch
