"""Nothing overflows: the bounds of every 32-bit value, at the format's extremes, and damaged files on the host."""

import ast
import dataclasses

import models
import numpy as np
import pytest

from tools import bounds, floating, integer, pack, standin, torture
from tools.config import MOST, Config
from tools.engines import Device
from tools.errors import UserError
from tools.fileformat import Matrix, Packed
from tools.fixedpoint import TABLES
from tools.micropython import ROOT
from tools.torture import host_files
from tools.torture.host_extremes import extreme

SHORT = 0.02  # of the full number of faults


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounds")
    return {name: models.packed(config, folder, name)[1] for name, config in models.ALL.items()}


@pytest.mark.parametrize("topic", ("host_files", "host_extremes"))
def test_faults_are_survived(topic):
    rows = list(torture.rows(topic, SHORT, seed=1))
    assert rows and all(row.tried == row.survived and not row.found for row in rows), [row.found for row in rows]


@pytest.mark.parametrize("signs", ("same", "rows", "random"))
@pytest.mark.parametrize("name", models.ALL)
def test_the_largest_weights_fit_and_the_board_agrees(packed, tmp_path, micropython, name, signs):
    """Every weight, scale, norm and bias at its largest: tests/test_boards.py does the same on 32-bit firmware."""
    model = extreme(packed[name], np.random.default_rng(6), signs)
    model.save(tmp_path / "x.scribe")
    tokens = np.random.default_rng(7).integers(0, model.config.vocab_size, 40)
    assert (Device(tmp_path / "x.scribe").logits(tokens) == integer.forward(model, tokens)).all()


def changes():
    """(section, what to change, what is said)"""
    def scale(records, name):
        records[name].scales = records[name].scales.copy()
        records[name].scales[0, 0] = 32768

    def bias(records, name):
        records[name].bias = np.full(len(records[name].w), (1 << 31) - 1)

    def setting(name, at, value):
        def change(records):
            records[name][at] = value
        return change

    layer = ("LAYR", 0, 0)
    yield layer, lambda r: scale(r, "recurrence.x"), "LAYR 0: record recurrence.x has a scale above"
    yield layer, lambda r: bias(r, "recurrence.x"), "record recurrence.x could overflow: a sum"
    yield layer, lambda r: bias(r, "recurrence.out"), "record recurrence.out could overflow"
    yield layer, lambda r: setattr(r["recurrence.out"], "mode", 0), "recurrence.out has mode 0; 2 is right"
    yield layer, lambda r: setattr(r["recurrence.x"], "mode", 2), "recurrence.x has mode 2; 0 is right"
    yield layer, lambda r: setattr(r["recurrence.x"], "shift", 31), "recurrence.x has an impossible shift"
    yield layer, lambda r: bias(r, "moe.router"), "moe.router could overflow"
    yield ("XPRT", 2, 1), lambda r: setattr(r["down"], "mode", 2), "XPRT 2.1: record down has mode 2; 1 is right"
    yield layer, setting("temporal_norm.params", 0, 5), "5 as the logarithm of the width 48"
    yield layer, setting("temporal_norm.params", 1, 17), "a point of 17"
    yield layer, setting("ff_norm.params", 2, -1), "ff_norm.params has a shift of -1"
    yield layer, setting("ff_norm.params", 3, -1), "an epsilon of -1"
    yield layer, setting("recurrence.params", 0, 16), "recurrence.params has a shift of 16"
    yield layer, setting("recurrence.params", 2, 31), "recurrence.params has a shift of 31"
    yield layer, lambda r: r["recurrence.decay"].values.__setitem__(0, -1), "recurrence.decay has -1"
    yield layer, lambda r: r["recurrence.conv.weight"].values.__setitem__(slice(None), 32767), "recurrence.conv could"
    yield layer, setting("mlp.params", 1, -1), "mlp.params has a shift of -1"
    yield layer, setting("moe.params", 2, 1 << 15), "moe.params has a mantissa of 32768"
    yield layer, setting("moe.params", 3, -22), "moe.params has a shift of -22"
    yield ("LAYR", 2, 0), setting("attention.params", 0, 32767), "clamps at 32767; a product of 8 elements"
    yield ("LAYR", 2, 0), setting("attention.params", 1, -1), "a mantissa of -1"
    yield ("EMBD", 0, 0), setting("params", 1, -1), "EMBD: record params has a shift of -1"
    yield ("HEAD", 0, 0), setting("params", 0, -1), "HEAD: record params has a mantissa of -1"


@pytest.mark.parametrize("key, change, said", list(changes()), ids=[said for *_, said in changes()])
def test_a_hostile_model_is_refused_in_reading(packed, key, change, said):
    """With every checksum right."""
    model = Packed.from_bytes(packed["hybrid"].to_bytes())
    change(model.sections[key])
    with pytest.raises(UserError, match=said):
        Packed.from_bytes(model.to_bytes())


def test_packing_refuses_what_could_overflow(tmp_path):
    """A bias alone can pass 32 bits where the sums are added to the residual stream."""
    config = dataclasses.replace(models.GRIFFIN, d_model=72)
    weights = models.random_weights(config)
    weights["layers.0.recurrence.out.weight"] *= 1e-4
    weights["layers.0.recurrence.out.bias"] += 16.0
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 50)
    largest = pack.calibrate(config, weights, [tokens])
    with pytest.raises(UserError, match=r"layers\.0\.recurrence\.out|LAYR 0: record recurrence\.out"):
        pack.Packer(config, weights).pack(largest, {}, b"")


def test_wide_rows_lower_the_exponent_until_they_fit(tmp_path):
    """More columns than 30 bits of the largest weights: packing itself takes care, and reading finds nothing wrong."""
    config = dataclasses.replace(models.LLAMA, recipe="A", d_ff=3000)
    weights = {name: np.sign(v) if v.ndim > 1 else v for name, v in models.random_weights(config).items()}
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 50)
    model = pack.Packer(config, weights).pack(pack.calibrate(config, weights, [tokens]), {},
                                              models.tokenizer_section(config.vocab_size, tmp_path))
    down = Packed.from_bytes(model.to_bytes()).sections["LAYR", 0, 0]["mlp.down"]
    assert down.scales.max() < 16384 and bounds.worst_sums(down).max() < 1 << 30


def test_bounds_of_sums_are_reached():
    """Neither too small nor far too large: the input that reaches a row's bound is the sign of its weights."""
    rng = np.random.default_rng(2)
    for bits, top in ((8, 127), (4, 7)):
        m = Matrix(rng.integers(-top, top + 1, (20, 150)), rng.integers(1, 32768, (20, 3)), 20, bits,
                   bias=rng.integers(-(1 << 20), 1 << 20, 20))
        bound = bounds.worst_sums(m)
        inputs = 32767 * np.concatenate([np.sign(m.w), -np.sign(m.w)])
        sums = np.abs(integer.product(inputs, m))
        reached = np.maximum(sums[:20].diagonal(), sums[20:].diagonal())
        assert (reached <= bound).all() and (reached >= bound - 4).all()


@pytest.mark.parametrize("k", range(0, 14))
def test_the_bound_of_a_norm_holds(k):
    """Vectors of every size, one large element or all alike, among them those that come closest."""
    point, rng, d = 15 - (k + 1) // 2, np.random.default_rng(k), 1 << k
    limit, largest = bounds.normed(k, point), 0
    sizes = np.unique(np.concatenate([np.arange(1, 400), (2.0 ** rng.uniform(0, 30, 600)).astype(np.int64)]))
    x = np.zeros((2 * len(sizes), d), np.int64)
    x[: len(sizes), 0], x[len(sizes) :] = sizes, sizes[:, None]
    x[::2] *= -1

    class Weight:
        values = np.full(d, 1 << 5)

    def watch(name, values, clipped):
        nonlocal largest
        largest = int(np.abs(values).max())

    integer.rmsnorm(x, Weight, (k, point, 5, 0), watch)
    assert limit / 3 < largest <= limit


def test_tables_are_monotonic_where_the_bounds_need_it():
    """normed() tries every upper half of a sum; the kernel's root falls as the sum grows, but for its last bits."""
    root = TABLES.rsqrt_normalised(np.arange(1 << 13, 1 << 15) << 15)
    assert root.max() <= 65535 and root.min() >= 32767 and (np.diff(root) <= 2).all()


def test_a_soft_cap_of_small_logits_comes_back_to_the_right():
    """Tiny weights give the logits more fraction bits than the cap's table has: packing leaves some of them away."""
    config = models.GRIFFIN
    weights = models.random_weights(config)
    weights["embedding.weight"] = np.float16(weights["embedding.weight"] * 2.0**-7).astype(float)
    config = dataclasses.replace(config, embedding_scale=2.0**7)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 50)
    model = pack.Packer(config, weights).pack(pack.calibrate(config, weights, [tokens]), {}, b"")
    assert model.sections["HEAD", 0, 0]["params"][5] >= 0
    ours, theirs = integer.forward(model, tokens), floating.forward(config, standin.expand(model), tokens)
    # a step of the cap's table is worth 0.002
    assert np.abs(theirs).max() > 0.1 and np.abs(ours * model.scale - theirs).max() < 0.01


# Hostile files beside those of the torture: what must be refused by name


def test_sections_in_another_order_are_refused(packed):
    data = packed["hybrid"].to_bytes()
    model = host_files.Model(data)
    keys = [key for key, *_ in model.parts]
    parts = {key: data[offset : offset + length] for key, offset, length in model.parts}
    first, second = keys.index(("XPRT", 0, 0)), keys.index(("XPRT", 0, 1))
    entries = bytearray(data)
    for at, key in ((first, keys[second]), (second, keys[first])):
        entries[32 + 20 * at : 40 + 20 * at] = key[0].encode() + bytes([key[1], 0, key[2], 0])
    with pytest.raises(UserError, match=r"section XPRT 0\.1 lies where XPRT 0\.0 should"):
        Packed.from_bytes(host_files.seal(entries))
    assert Packed.from_bytes(host_files.rebuilt(data, parts)).to_bytes() == data


def test_a_tokenizer_of_another_size_is_refused(packed, tmp_path):
    data = packed["hybrid"].to_bytes()
    other = host_files.rebuilt(data, {("TOKN", 0, 0): models.tokenizer_section(300, tmp_path)})
    with pytest.raises(UserError, match="section TOKN has 300 tokens, the config 288"):
        Packed.from_bytes(other)
    damaged = host_files.rebuilt(data, {("TOKN", 0, 0): packed["hybrid"].tokenizer[:-20]})
    with pytest.raises(UserError, match="section TOKN: tokenizer section: "):
        Packed.from_bytes(damaged)


def test_host_and_board_allow_the_same_sizes():
    """What the host lets through, no board refuses: the largest value of each field of a config."""
    source = ast.parse((ROOT / "device" / "scribe" / "modelfile.py").read_text())
    sizes = next(ast.literal_eval(node.value) for node in source.body
                 if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SIZES")
    for name, low, high in sizes:
        with pytest.raises(UserError, match=f"{name} is {high + 1}; at most {high}"):
            Config(**{name: high + 1}).check()
    assert set(MOST) == {name for name, *_ in sizes}
