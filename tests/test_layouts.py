"""The littlefs figures behind docs/layouts.md: the walk as calculated is the walk as littlefs makes it."""

import pytest

from tools import layouts


@pytest.fixture(scope="module")
def rows(micropython):
    """Every expert read once, no two neighbours in a row, in each layout, on a stock rp2 mount."""
    tail = layouts.best_tail(layouts.BRAIN, layouts.EXPERT, layouts.EXPERTS, 32 << 10)
    measured = layouts.measure(32, 256, [e * 27 % layouts.EXPERTS for e in range(layouts.EXPERTS)], tails=[tail])
    return {row["layout"]: row for row in measured}, tail


def test_calls_are_the_data_and_the_jumps(rows):
    """One file: what a change of length saves in calls is what the calculated walk says."""
    table, tail = rows
    plain, longer = table["one file, experts last"], table[f"experts last, {tail} bytes longer"]
    size = layouts.BRAIN, layouts.EXPERT, layouts.EXPERTS
    saved = layouts.jumps_per_expert(*size) - layouts.jumps_per_expert(*size, tail)
    assert saved > 10
    assert plain["calls"] - longer["calls"] == pytest.approx(saved, abs=0.5)


def test_what_the_page_recommends(rows):
    table, _ = rows
    last, first = table["one file, experts last"], table["one file, experts first"]
    assert last["calls"] < first["calls"] and last["bytes"] < first["bytes"] < 1.12 * layouts.EXPERT
    assert last["no_alloc"] and table["one each, kept open"]["no_alloc"]
    assert not table["one each, opened each time"]["no_alloc"]
    assert last["open_ram"] < 2048 < 65536 < table["one each, kept open"]["open_ram"]


def test_block_index():
    """Against littlefs's layout: block n starts with ctz(n) + 1 pointers of 4 bytes, block 0 with none."""
    starts = [0]
    for n in range(1, 1000):
        pointers = 0 if n == 1 else (n - 1 & -(n - 1)).bit_length()
        starts.append(starts[-1] + layouts.BLOCK - 4 * pointers)
    for n, start in enumerate(starts[1:], 1):
        assert layouts.block_index(start) == n and layouts.block_index(start - 1) == n - 1


def test_jumps():
    assert [layouts.jumps(8, t) for t in range(9)] == [1, 3, 2, 2, 1, 2, 1, 1, 0]
    assert layouts.jumps(7, 0) == 3 and layouts.jumps(1024, 0) == 1
