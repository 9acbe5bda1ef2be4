"""Fuzzers of everything the host reads, in a short form that is always the same, and what longer runs have found.

The targets are those of `make torture` (tools/torture/host_fuzz.py), which tries thousands of other inputs.
"""

import hypothesis
import numpy as np
import pytest

from tools import torture
from tools.torture import host_fuzz

SHORT = 0.02  # of the full run
#: What each find once did to its target instead of an answer, and the input that did it.
FINDS = [
    ("AttributeError: a tokenizer.json whose added tokens are no objects",
     "tokenizer.json", ("byte-level", [("put", 3, [0])])),
    ("a bare Exception of the library: a version of null",
     "tokenizer.json", ("sentencepiece", [("put", 0, None)])),
    ("TypeError: a block type that is a list",
     "Hugging Face config.json", (host_fuzz.gemma(), [("put", 11, [[]])])),
    ("TypeError: bfloat16 in a checkpoint of ours",
     "safetensors header", ([], "BF16", True)),
    ("PanicException of the library: a merge that is longer than every token",
     "tokenizer.json for training", ([], [("put", 5006, "A" * 65), ("rename", 514, "A" * 65)])),
]


@pytest.fixture(autouse=True)
def quiet():
    """Weights of any size overflow floats in calibration; that is refused afterwards."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("target", host_fuzz.TARGETS)
def test_any_input_is_read_or_refused_in_one_line(target):
    strategy, act = host_fuzz.TARGETS[target]
    count = torture.scaled(host_fuzz.EXAMPLES * host_fuzz.SHARES.get(target, 1), SHORT)

    @hypothesis.settings(max_examples=count, derandomize=True, database=None, deadline=None,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(strategy)
    def run(value):
        host_fuzz.answered(act, value)

    run()


@pytest.mark.parametrize("once, target, value", FINDS, ids=[find[0].partition(":")[0] for find in FINDS])
def test_finds_stay_fixed(once, target, value):
    host_fuzz.answered(host_fuzz.TARGETS[target][1], value)


@pytest.mark.parametrize("target", host_fuzz.TARGETS)
def test_the_unchanged_input_is_read(target):
    """A fuzzer whose every input is refused would find nothing."""
    unchanged = {"packed model": ("hybrid", [], False), "llama2.c model": (2, []),
                 "llama2.c tokenizer.bin": ([], 512), "tokenizer.json": ("sentencepiece", []),
                 "tokenizer.json for training": ([], []),
                 "Hugging Face config.json": (host_fuzz.sound("huggingface"), []),
                 "safetensors": ([], False), "safetensors header": ([], "", True), "config.json": ([], []),
                 "text": (b"A fox.",), "weights to pack": ("hybrid", [0.0], [False], 0, 2)}
    assert host_fuzz.answered(host_fuzz.TARGETS[target][1], unchanged[target])
