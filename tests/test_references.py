"""The three NumPy references against each other, against textbook figures, and against PyTorch."""

import dataclasses

import hypothesis
import models
import numpy as np
import pytest
from hypothesis import strategies as st

from tools import fixedpoint, floating, integer, pack, quantise, standin
from tools.config import Config
from tools.engines import compare
from tools.errors import UserError
from tools.fileformat import Matrix, Packed

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("references")
    return {name: models.packed(config, folder, name) for name, config in models.ALL.items()}


@pytest.mark.parametrize("name", models.ALL)
def test_pieces_equal_the_whole(packed, name):
    """A text in pieces of any length gives the same logits: state carries everything."""
    _, model, weights = packed[name]
    tokens = RNG.integers(0, model.config.vocab_size, 90)
    whole = integer.forward(model, tokens)
    float_whole = floating.forward(model.config, weights, tokens)
    for size in (1, 7, 50):
        state, float_state = integer.State(model.config), floating.State(model.config)
        parts = [tokens[at : at + size] for at in range(0, 90, size)]
        assert (np.concatenate([integer.forward(model, part, state) for part in parts]) == whole).all()
        np.testing.assert_allclose(
            np.concatenate([floating.forward(model.config, weights, part, float_state) for part in parts]), float_whole,
            rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", models.ALL)
def test_integers_follow_the_stand_in(packed, name):
    """Rounding activations costs next to nothing, whatever the features."""
    _, model, _ = packed[name]
    tokens = RNG.integers(0, model.config.vocab_size, 200)
    truth = floating.forward(model.config, standin.expand(model), tokens)
    kl, same = compare(truth, integer.forward(model, tokens) * model.scale)
    assert kl.mean() < 0.002 and same.mean() > 0.97


def test_stand_in_of_int8_follows_the_float_model(packed):
    _, model, weights = packed["griffin"]
    tokens = RNG.integers(0, model.config.vocab_size, 100)
    kl, _ = compare(floating.forward(model.config, weights, tokens),
                    floating.forward(model.config, standin.expand(model), tokens))
    assert kl.mean() < 0.001


@pytest.mark.training
@pytest.mark.parametrize("name", models.ALL)
def test_float_reference_equals_pytorch(packed, name):
    torch = pytest.importorskip("torch")
    from tools.model import Decoder

    _, model, weights = packed[name]
    config = dataclasses.replace(model.config, bos_token_id=0)
    decoder = Decoder(config).double().eval()
    decoder.load_state_dict({key: torch.tensor(v) for key, v in weights.items()})
    tokens = np.concatenate([[0], RNG.integers(1, config.vocab_size, 120)])
    with torch.no_grad():
        theirs = decoder(torch.tensor(tokens)[None])[0].numpy()
    ours = floating.forward(config, weights, tokens)
    assert np.abs(theirs - ours).max() < 1e-5 * max(1, np.abs(ours).max())


@st.composite
def configs(draw):
    """Any shape of a decoder that a config allows, small."""
    heads, kv = draw(st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3), (6, 2)]))
    rnn_heads, experts = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    flags = {name: draw(st.booleans()) for name in ("rotary_interleaved", "tie_embeddings", "rnn_bias", "qkv_bias",
                                                    "attention_out_bias", "mlp_bias")}
    return Config(
        recipe=draw(st.text("SA", min_size=1, max_size=3)), vocab_size=draw(st.integers(258, 300)),
        d_model=draw(st.integers(2, 20)), d_rnn=rnn_heads * draw(st.integers(1, 8)), rnn_heads=rnn_heads,
        conv_width=draw(st.integers(1, 5)), n_heads=heads, n_kv_heads=kv, head_dim=draw(st.sampled_from([2, 4, 6, 10])),
        window=draw(st.integers(1, 12)), rotary_fraction=draw(st.sampled_from([0.0, 0.5, 1.0])),
        activation=draw(st.sampled_from(["gelu", "silu"])), d_ff=draw(st.integers(0 if experts else 1, 9)),
        n_experts=experts, d_expert=draw(st.integers(1, 9)), embedding_scale=draw(st.sampled_from([1.0, 3.5])),
        logit_softcap=draw(st.sampled_from([0.0, 10.0])), **flags).check()


@pytest.mark.training
@hypothesis.settings(max_examples=25, derandomize=True, database=None, deadline=None)
@hypothesis.given(configs(), st.integers(0, 99))
def test_random_configs_equal_pytorch(config, seed):
    """The float reference and the trainer's model, two programs that share no line, on any config."""
    torch = pytest.importorskip("torch")
    from tools.model import Decoder

    weights = models.random_weights(config, seed)
    decoder = Decoder(config).double().eval()
    decoder.load_state_dict({key: torch.tensor(v) for key, v in weights.items()})
    tokens = np.concatenate([[0], np.random.default_rng(seed).integers(1, config.vocab_size, 30)])
    with torch.no_grad():
        theirs = decoder(torch.tensor(tokens)[None])[0].numpy()
    ours = floating.forward(config, weights, tokens)
    assert np.abs(theirs - ours).max() < 1e-4 * max(1, np.abs(ours).max())  # the router is float32 in training


@hypothesis.settings(max_examples=25, derandomize=True, database=None, deadline=None)
@hypothesis.given(configs(), st.integers(0, 99))
def test_packing_random_configs_is_exact(config, seed):
    """Quantised, written, read: the same integers; and the reference reads a text with them without overflow."""
    weights = models.random_weights(config, seed)
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, 30)
    largest = pack.calibrate(config, weights, [tokens])
    try:
        model = pack.Packer(config, weights).pack(largest, {"name": "x"}, models.section_of(config.vocab_size))
    except UserError:
        return  # such as a gate out of range: refused, not written
    again = Packed.from_bytes(model.to_bytes())
    assert again.to_bytes() == model.to_bytes() and again.config == config
    for key, records in model.sections.items():
        for name, value in records.items():
            if isinstance(value, Matrix):
                assert (value.w == again.sections[key][name].w).all()
                assert (value.scales == again.sections[key][name].scales).all()
    assert (integer.forward(model, tokens) == integer.forward(again, tokens)).all()


def test_rmsnorm_vector():
    np.testing.assert_allclose(floating.rmsnorm(np.array([0.1, 0.2]), np.array([1.0, 1.0]), 1e-6),
                               [0.6324429, 1.2648858], rtol=1e-6)


def attend(queries, keys, values, window=8, heads=1, kv_heads=1):
    """The integer attention layer alone on given vectors [T, heads * dim]; identity projections, no rotary.

    The scores are not scaled by 1 / sqrt(dim): the parameters undo it."""
    dim = queries.shape[1] // heads
    config = dataclasses.replace(models.LLAMA, n_heads=heads, n_kv_heads=kv_heads, head_dim=dim, window=window,
                                 d_model=queries.shape[1], rotary_fraction=0.0)
    point = 10
    state = integer.State(config)
    state.layers[0] = [np.zeros((kv_heads, 0, dim), np.int64)] * 2
    section = {"attention.params": [5792, *fixedpoint.mantissa(2.0 ** (-2 * point) * np.log2(np.e), 16)]}
    q, k, v = (np.round(x * 2**point).astype(np.int64) for x in (queries, keys, values))
    original = integer.matvec
    order = iter((q, k, v))
    result = {}

    def matvec(x, m, watch=None, name="", residual=None):
        if residual is not None:
            result["y"] = x
            return residual
        return next(order)

    integer.matvec = matvec
    try:
        section.update({f"attention.{p}": None for p in "qkvo"})
        phases = np.zeros((len(q), 0), np.int64)
        integer.attention(config, section, np.zeros_like(q), q, state.layers[0], phases, lambda *a: None)
    finally:
        integer.matvec = original
    return result["y"] / 2**point


def test_attention_weighs_as_by_hand():
    """Query (2, 1), unscaled, with keys (2, 1), (1, 1), (0, 1): weights 0.87, 0.12, 0.02 by distance in score."""
    keys = np.array([[2.0, 1], [1, 1], [0, 1]])
    values = np.array([[1.0, 0], [0, 1], [0, 0]])
    y = attend(np.array([[0.0, 0], [0, 0], [2, 1]]), keys, values)[-1]
    np.testing.assert_allclose([*y, 1 - y.sum()], [0.867, 0.117, 0.016], atol=0.002)


def test_attention_is_causal_and_windowed_exactly():
    keys = RNG.normal(size=(12, 4))
    values = np.repeat(np.arange(12.0)[:, None], 4, axis=1)
    y = attend(np.zeros((12, 4)), keys, values, window=5)[:, 0]
    for t in range(12):
        assert abs(y[t] - np.arange(max(0, t - 4), t + 1).mean()) < 0.01  # even weights over the last five


def test_grouped_heads_read_their_own_keys():
    """Four query heads over two kv heads: heads 0 and 1 read the first, 2 and 3 the second."""
    steps, dim = 3, 2
    values = np.concatenate([np.full((steps, dim), 1.0), np.full((steps, dim), 2.0)], 1)
    y = attend(np.zeros((steps, 4 * dim)), np.zeros((steps, 2 * dim)), values, heads=4, kv_heads=2)[-1]
    np.testing.assert_allclose(y.reshape(4, dim)[:, 0], [1, 1, 2, 2], atol=0.01)


@pytest.mark.parametrize("bits", (4, 8))
def test_quantise_is_exact_on_its_own_grid(bits):
    """Weights that integers and a scale can represent come back unchanged; others within half a step."""
    top = quantise.LEVELS[bits]
    ints = RNG.integers(-top, top + 1, (10, 172))
    ints[:, ::64] = top
    exact = quantise.quantise([ints / 1024.0], bits)[0]
    assert (exact.w == ints).all() and np.allclose(exact.expanded(), ints / 1024.0)
    w = RNG.normal(size=(10, 172))
    m = quantise.quantise([w], bits)[0]
    step = np.repeat(m.scales, 64, axis=1)[:, :172] / 2.0**m.exponent
    inside = np.abs(w) <= top * step
    assert (np.abs(m.expanded() - w)[inside] <= step[inside] / 2 * 1.0001).all() and inside.mean() > 0.9


def test_extreme_weights_cannot_overflow():
    """All weights at their largest, scales at theirs: the exponent gives way until no input can pass 30 bits."""
    m = quantise.quantise([np.full((4, 4096), 100.0)], 8)[0]
    assert quantise.worst_sum(m).max() < 1 << 30
    extreme = integer.product(np.full((1, 4096), 32767), m)
    assert abs(extreme).max() < 1 << 30


def test_all_zero_weights():
    m = quantise.quantise([np.zeros((3, 70))], 4)[0]
    assert not m.expanded().any()


def test_packing_is_exact(packed):
    """What is written is what is read, every record of every section."""
    _, model, _ = packed["untied"]
    again = Packed.from_bytes(model.to_bytes())
    for key, records in model.sections.items():
        for name, value in records.items():
            other = again.sections[key][name]
            if isinstance(value, Matrix):
                assert (value.w == other.w).all() and (value.scales == other.scales).all()
                assert (value.bias is None) == (other.bias is None)
            elif isinstance(value, list):
                assert value == other
            else:
                assert (value.values == other.values).all() and value.point == other.point
    assert model.to_bytes() == again.to_bytes()


def test_overflow_is_noticed():
    with pytest.raises(OverflowError):
        fixedpoint.int32(np.array([1 << 31]))
    with pytest.raises(OverflowError):
        integer.product(np.full((1, 64), 1 << 24), Matrix(np.full((1, 64), 127), np.array([[32767]]), 20))


def test_saturation_is_counted(packed):
    """Points placed without headroom saturate, and packing's report says where."""
    config = models.HYBRID
    weights = models.random_weights(config)
    tokens = RNG.integers(0, config.vocab_size, 60)
    largest = {key: v / 8 for key, v in pack.calibrate(config, weights, [tokens]).items()}
    tight = pack.Packer(config, weights).pack(largest, {}, b"")
    report = pack.headroom_report(tight, [tokens])
    assert report[0][0] > 0 and report[0][3] <= 1


def test_positions_never_run_out(packed):
    """Rotary phases wrap: a text that begins 2^32 positions on reads as one that begins at 0."""
    _, model, _ = packed["llama"]
    tokens = RNG.integers(0, 288, 40)
    near, far = integer.State(model.config), integer.State(model.config)
    far.phases = far.phases + (1 << 32)
    assert (integer.forward(model, tokens, near) == integer.forward(model, tokens, far)).all()


def tree_scan(a, x):
    """h[t] = a[t] h[t-1] + x[t] by doubling: pairs (a, x) combine as (a1 a2, a2 x1 + x2) (Blelloch 1990)."""
    a, x, step = a.copy(), x.copy(), 1
    while step < len(x):
        x[step:] = a[step:] * x[:-step] + x[step:]
        a[step:] = a[step:] * a[:-step]
        step *= 2
    return x


def test_a_recurrence_is_the_same_as_a_tree_and_in_line():
    """By hand: inputs 6, 4, 2, 8 with fade 1/2 give 6, 7, 5.5, 10.75. And the S layer's own states, whose gates look
    only at the arriving token, are those of a tree over its decays and inputs."""
    np.testing.assert_array_equal(tree_scan(np.full(4, 0.5), np.array([6.0, 4, 2, 8])), [6, 7, 5.5, 10.75])
    config, seen = models.GRIFFIN, {}
    weights = models.random_weights(config)
    n = RNG.normal(size=(70, config.d_model))

    def watch(name, values):
        seen.setdefault(name, []).append(values)
        return values

    state = floating.State(config).layers[0]
    floating.recurrence(config, weights, "layers.0.recurrence", n, state, True, watch)
    r, i = (floating.sigmoid(gate) for gate in seen["gates"])
    log_a = -8 * np.logaddexp(0, weights["layers.0.recurrence.lam"]) * r
    a, root = np.exp(log_a), np.sqrt(-np.expm1(2 * log_a))
    a[0], root[0] = 0, 1
    np.testing.assert_allclose(tree_scan(a, root * i * seen["conv"][0]), seen["state"][0], rtol=1e-9, atol=1e-9)
