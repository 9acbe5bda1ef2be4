"""Pack a trained model: `python -m tools.pack runs/NAME -o weights/NAME.scribe`.

int8 for what is always in use, int4 for the experts, one binary point for each activation tensor, chosen from a text
that the model reads (or writes itself) with headroom.
"""

import math
import pathlib
import sys

import numpy as np

from tools import bounds, checkpoint, floating, integer, originals, standin
from tools.errors import Parser, UserError, command
from tools.files import make_folder, write_beside, write_bytes
from tools.fileformat import ADD, PRODUCT_SHIFT, RAW, SATURATE, Packed
from tools.fixedpoint import INT16_MAX, STATE_LIMIT, mantissa
from tools.quantise import fixed, quantise, widest_point
from tools.tokenizer import Tokenizer

GATE_POINT = 11  # the sigmoid table's range, +-16, in 16 bits
DECAY_POINT = 20
STATE_POINT = 20  # at most
RESIDUAL_POINT = 16  # at most
HEADROOM = 2.0
#: How far the residual stream and the recurrent state may grow past what calibration saw.
WIDE_HEADROOM = 16.0


def sample(config, weights, count, seed=1):
    """`count` tokens of the model's own, at temperature 1, in texts of up to 256: a calibration text for any model."""
    rng = np.random.default_rng(seed)
    texts = []
    left = count
    while left > 0:
        state, tokens = floating.State(config), [config.bos_token_id]
        for _ in range(min(256, left)):
            logits = floating.forward(config, weights, tokens[-1:], state)[0]
            token = int((logits - np.log(-np.log(rng.uniform(size=logits.shape)))).argmax())  # Gumbel's way to draw
            if token == config.eos_token_id and len(tokens) > 8:
                break
            tokens.append(token)
        left -= len(tokens)
        texts.append(tokens)
    return texts


def calibrate(config, weights, texts):
    """{(layer, name): largest magnitude} of every watched activation over the texts."""
    largest = {}

    def watch(name, layer, values):
        if name != "expert":
            key = (layer, name)
            largest[key] = max(largest.get(key, 0.0), float(np.abs(values).max()))

    for tokens in texts:
        state = floating.State(config)
        for at in range(0, len(tokens), 512):
            floating.forward(config, weights, tokens[at : at + 512], state, watch)
    return largest


def exponent_scale(value, name):
    """`mantissa` of a factor into log2 units with 16 fraction bits. Raises UserError for one past what the kernels'
    exponential takes."""
    m, shift = mantissa(value, 16)
    if shift < -17:
        raise UserError(f"{name}: its values are too large for the format")
    return [m, min(shift, 31)]


class Packer:
    """Turns checkpoint tensors into records. Two passes: quantise the weights (`matrices`), then, with the largest
    activations known, place the binary points (`pack`)."""

    def __init__(self, config, weights, headroom=HEADROOM, expert_bits=4):
        self.config, self.weights, self.headroom = config, weights, headroom
        self.matrices = {}
        for i, letter in enumerate(config.recipe):
            at = f"layers.{i}."
            names = ["recurrence.x", "recurrence.y", "recurrence.out"] if letter == "S" else [
                f"attention.{p}" for p in "qkvo"]
            names += [f"mlp.{p}" for p in ("gate", "up", "down")] if config.d_ff else []
            names += ["moe.router"] if config.n_experts else []
            for name in names:
                self.matrices[at + name] = quantise([weights[at + name + ".weight"]], 8)[0]
            for name in ("gate_a", "gate_i") if letter == "S" else ():
                w = weights[f"{at}recurrence.{name}.weight"]
                self.matrices[f"{at}recurrence.{name}"] = quantise([w.reshape(-1, w.shape[2])], 8, len(w))[0]
            for name in ("gate", "up", "down") if config.n_experts else ():
                self.matrices[f"{at}moe.{name}"] = quantise(list(weights[f"{at}moe.{name}.weight"]), expert_bits)
        self.matrices["embedding"] = quantise([weights["embedding.weight"]], 8)[0]
        if not config.tie_embeddings:
            self.matrices["head"] = quantise([weights["head.weight"]], 8)[0]

    def place(self, name, into, out, mode=SATURATE):
        """Set a matrix's points: input point `into`, at most `out` after the shift. Returns the output's point."""
        matrices = self.matrices[name] if isinstance(self.matrices[name], list) else [self.matrices[name]]
        bias = self.weights.get(name + ".bias")
        for m in matrices:
            m.point = into + m.exponent - PRODUCT_SHIFT[m.bits]
            out = min(out, m.point)
            m.shift, m.mode = m.point - out, mode
            if bias is not None:
                m.bias = fixed(bias, 32, m.point, name + ".bias").values
            if not 0 <= m.shift <= 30:
                raise UserError(f"{name}: its weights are too small or too large for the format (shift {m.shift})")
        return out

    def point(self, layer, name, limit=INT16_MAX, most=15, headroom=None):
        return widest_point(self.largest[layer, name] * (headroom or self.headroom), limit, most)

    def norm(self, name, layer):
        """Records of an RMSNorm and its output's point."""
        d, w = self.config.d_model, self.weights[name + ".weight"]
        k = max(0, math.ceil(math.log2(d)))
        before = 15 - (k + 1) // 2
        weight = w * math.sqrt(d / 2.0**k)
        point = widest_point(np.abs(weight).max() * 1.0001, INT16_MAX, 15)
        out = min(self.point(layer, "norm"), before + point)
        eps = int(round(self.config.norm_eps * d * 4.0**self.residual_point))
        key = name.rpartition(".")[2] if name != "final_norm" else "norm"
        return {key + ".params": [k, before, before + point - out, eps], key: fixed(weight, 16, point, name)}, out

    def residual_limits(self):
        """The residual stream's point: wide enough for its largest value, its epsilon, and every sum added to it."""
        largest = max(v for (_, name), v in self.largest.items() if name == "residual")
        point = widest_point(largest * WIDE_HEADROOM, STATE_LIMIT, RESIDUAL_POINT)
        while self.config.norm_eps * self.config.d_model * 4.0**point >= 1 << 29:
            point -= 1
        return point

    def pack(self, largest, info, tokenizer):
        """The packed model, its points placed for the largest activations of `calibrate`."""
        self.largest = largest
        self.residual_point = self.residual_limits()
        while True:  # a sum that arrives with fewer fraction bits than the stream has lowers the stream's point
            sections = {}
            lowest = min([self.layer(i, letter, sections) for i, letter in enumerate(self.config.recipe)])
            if lowest >= self.residual_point:
                break
            self.residual_point = lowest
        logit_point = self.ends(sections)
        bounds.check(self.config, sections)
        return Packed(self.config, {**info, "logit_point": logit_point, "residual_point": self.residual_point},
                      tokenizer, sections)

    def layer(self, i, letter, sections):
        """Fill a layer's sections; returns the point that its additions to the residual stream can have."""
        at, records = f"layers.{i}.", {}
        norm, point = self.norm(at + "temporal_norm", i)
        records.update(norm)
        part = self.recurrence if letter == "S" else self.attention
        lowest = part(i, at, point, records)
        norm, point = self.norm(at + "ff_norm", i)
        records.update(norm)
        if self.config.d_ff:
            shifts, out = self.gated(i, at + "mlp.", point, "dense_")
            lowest = min(lowest, self.place(at + "mlp.down", out, self.residual_point, ADD))
            records["mlp.params"] = shifts
        if self.config.n_experts:
            lowest = min(lowest, self.experts(i, at, point, records, sections))
        for name, matrix in self.matrices.items():
            if name.startswith(at) and not isinstance(matrix, list):
                records[name[len(at) :]] = matrix
        sections["LAYR", i, 0] = records
        return lowest

    def recurrence(self, i, at, point, records):
        w = self.weights
        u = self.place(at + "recurrence.x", point, self.point(i, "u"))
        branch = self.place(at + "recurrence.y", point, self.point(i, "branch", most=13))
        taps, bias = w[at + "recurrence.conv.weight"], w[at + "recurrence.conv.bias"]
        tap_point = widest_point(np.abs(taps).sum(-1).max() * 1.001, INT16_MAX, 15)
        conv = min(self.point(i, "conv"), u + tap_point)
        records["recurrence.conv.weight"] = fixed(taps, 16, tap_point, at + "recurrence.conv.weight")
        records["recurrence.conv.bias"] = fixed(bias, 32, u + tap_point, at + "recurrence.conv.bias")
        # taps at their largest with inputs at theirs, the bias and the rounding stay in 31 bits
        worst = np.abs(records["recurrence.conv.weight"].values).reshape(taps.shape).sum(-1) * INT16_MAX
        worst = worst + np.abs(records["recurrence.conv.bias"].values) + (1 << (u + tap_point - conv) >> 1)
        if worst.max() >= 1 << 31:
            raise UserError(f"{at}recurrence.conv: its bias is too large for its weights")
        for gate in ("gate_a", "gate_i"):
            if self.place(at + "recurrence." + gate, conv, GATE_POINT) != GATE_POINT:
                raise UserError(f"{at}recurrence.{gate}: its weights or inputs are too large for the gates' range")
        records["recurrence.decay"] = fixed(standin.decay(w[at + "recurrence.lam"]), 32, DECAY_POINT,
                                             at + "recurrence.lam")
        state = min(self.point(i, "state", STATE_LIMIT, STATE_POINT, WIDE_HEADROOM), 15 + conv)
        gated = min(self.point(i, "gated"), state + branch - 16)
        records["recurrence.params"] = [13 - branch, u + tap_point - conv, 15 + conv - state,
                                        state + branch - 16 - gated]
        return self.place(at + "recurrence.out", gated, self.residual_point, ADD)

    def attention(self, i, at, point, records):
        config = self.config
        top = min(INT16_MAX, math.isqrt(((1 << 30) - 1) // config.head_dim))  # q . k then stays in 30 bits
        q = self.place(at + "attention.q", point, self.point(i, "q", top))
        k = self.place(at + "attention.k", point, self.point(i, "k", top))
        v = self.place(at + "attention.v", point, self.point(i, "v"))
        records["attention.params"] = [top, *exponent_scale(
            2.0 ** -(q + k) * math.log2(math.e) / math.sqrt(config.head_dim), at + "attention")]
        width = config.rotary_dim
        turns = config.rotary_base ** (-np.arange(width // 2) * 2.0 / max(width, 1)) / (2 * math.pi)
        records["attention.rotary"] = fixed(turns, 32, 32, "rotary_base")
        return self.place(at + "attention.o", v, self.residual_point, ADD)

    def gated(self, i, name, point, prefix=""):
        """Shifts of a gated MLP's activation and product, and its hidden vector's point."""
        table = 13 if self.config.activation == "gelu" else 12
        gate = self.place(name + "gate", point, self.point(i, prefix + "gate", most=table))
        up = self.place(name + "up", point, self.point(i, prefix + "up"))
        hidden = min(self.point(i, prefix + "hidden"), gate + up)
        return [table - gate, gate + up - hidden], hidden

    def experts(self, i, at, point, records, sections):
        shifts, hidden = self.gated(i, at + "moe.", point)
        router = self.place(at + "moe.router", point, 30, RAW)
        out = self.place(at + "moe.down", hidden, 30, RAW)
        # the product with the router's probability (16 fraction bits) keeps the sum's point
        lowest = min(out, self.residual_point)
        to_exponent = exponent_scale(2.0**-router * math.log2(math.e), at + "moe.router")
        records["moe.params"] = [*shifts, *to_exponent, out - lowest]
        for e in range(self.config.n_experts):
            sections["XPRT", i, e] = {m: self.matrices[f"{at}moe.{m}"][e] for m in ("gate", "up", "down")}
        return lowest

    def ends(self, sections):
        """The embedding's and the head's sections; returns the logits' point."""
        config, embedding = self.config, self.matrices["embedding"]
        norm, point = self.norm("final_norm", config.n_layers)
        cap = config.logit_softcap
        # the way back from the soft cap's table, which has 24 fraction bits, must be a shift to the right
        most = 40 if not cap else min(40, 23 - math.ceil(math.log2(cap)))
        logit = self.place("embedding" if config.tie_embeddings else "head", point, most, RAW)
        if not config.tie_embeddings:
            embedding.mode = RAW
        factor, shift = mantissa(config.embedding_scale * 2.0 ** (self.residual_point - embedding.exponent - 8), 0)
        if not 0 <= shift <= 30:
            raise UserError(f"embedding: its values are too large for the residual stream (shift {shift})")
        sections["EMBD", 0, 0] = {"params": [factor, shift], "weight": embedding}
        soft = [*mantissa(2.0 ** (14 - logit) / cap, 0), *mantissa(cap * 2.0 ** (logit - 24), 0)] if cap else [0] * 4
        params = [*exponent_scale(2.0**-logit * math.log2(math.e), "logits"), *soft]
        sections["HEAD", 0, 0] = {**norm, "params": params}
        if not config.tie_embeddings:
            sections["HEAD", 0, 0]["weight"] = self.matrices["head"]
        return logit


def headroom_report(packed, texts):
    """[(clipped, layer, name, headroom)] over the integer reference, thinnest headroom first; headroom = how much the
    largest value could grow before it saturates."""
    seen = {}

    def watch(name, layer, values, clipped):
        # past +-16 a gate's sigmoid is flat anyway
        if name in ("expert", "state", "gates", "attention") or not np.size(values):
            return
        before = seen.get((layer, name), (0, 0))
        seen[layer, name] = (before[0] + clipped, max(before[1], int(np.abs(values).max())))

    for tokens in texts:
        integer.forward(packed, tokens, watch=watch)
    clamps = {i: s["attention.params"][0] for (tag, i, _), s in packed.sections.items()
              if tag == "LAYR" and "attention.params" in s}
    rows = []
    for (layer, name), (clipped, top) in seen.items():
        limit = clamps[layer] if name in "qk" else INT16_MAX
        rows.append((clipped, layer, name, limit / max(top, 1)))
    return sorted(rows, key=lambda row: (-row[0], row[3]))


def pack_folder(folder, name, calibration=None, count=2048, headroom=HEADROOM):
    """(Packed, calibration texts) of a checkpoint's folder. `calibration`: a text file, or None for the model's own."""
    config, weights = checkpoint.load(folder)
    weights = checkpoint.rounded(weights)
    tokenizer = originals.load_tokenizer(folder, config.vocab_size)
    if tokenizer is None:
        raise UserError(f"{folder}: no tokenizer.json")
    return pack_weights(config, weights, tokenizer, name, calibration, count, headroom)


def pack_weights(config, weights, tokenizer, name, calibration=None, count=2048, headroom=HEADROOM):
    """As `pack_folder`, of tensors in memory."""
    reader = Tokenizer(tokenizer)
    if reader.vocab_size != config.vocab_size:
        raise UserError(f"the tokenizer has {reader.vocab_size} tokens, the config {config.vocab_size}")
    if calibration is None:
        texts = sample(config, weights, count)
    else:
        from tools.data import read_documents

        texts = [[config.bos_token_id, *reader.encode(text)] for text in read_documents(calibration)]
        texts = [tokens[:1024] for tokens in texts][: max(1, count // 128)]
    largest = calibrate(config, weights, texts)
    packed = Packer(config, weights, headroom).pack(largest, {"name": name}, tokenizer)
    return packed, texts


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.pack", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="a training run, or any folder with config.json, "
                        "model.safetensors and tokenizer.json")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="file to write, NAME.scribe")
    parser.add_argument("--calibrate", type=pathlib.Path, help="text that sets the binary points (default: the "
                        "model's own writing)")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of calibration (default %(default)s)")
    parser.add_argument("--headroom", type=float, default=HEADROOM, help="how much an activation may grow past "
                        "calibration before it saturates (default %(default)s)")
    parser.add_argument("--original", type=pathlib.Path, help="also write the float16 original to this folder")
    args = parser.parse_args(argv)
    if args.tokens < 1 or not 1 <= args.headroom <= 64:
        raise UserError("--tokens must be 1 or more, --headroom from 1 to 64")
    if not args.output.parent.is_dir():
        raise UserError(f"{args.output.parent}: no such folder")
    if args.original and args.original.exists() and not args.original.is_dir():
        raise UserError(f"{args.original}: is a file; --original is a folder")
    packed, texts = pack_folder(args.folder, args.output.stem, args.calibrate, args.tokens, args.headroom)
    report = headroom_report(packed, texts)
    if args.original:
        write_original(args.folder, args.original)
    size = packed.save(args.output)
    clipped = sum(row[0] for row in report)
    print(f"{args.output}: {size:,} bytes; {clipped} activations saturated in {sum(map(len, texts)):,} tokens; "
          f"least headroom " + ", ".join(f"{name} of layer {layer} {room:.1f}x" for _, layer, name, room in report[:3]))
    if clipped:
        print("warning: saturation costs quality; pack again with more --headroom or more --tokens", file=sys.stderr)
    return 0


def write_original(source, target):
    """The float16 original beside a packed model: what rehearsals compare with, and by which tolerances."""
    config, weights = checkpoint.load(source)
    target = make_folder(target)
    checkpoint.save_float16(target, weights)
    write_beside(target / "config.json", config.with_tolerances().save)
    for name in ("tokenizer.json", "tokenizer.bin"):
        if (pathlib.Path(source) / name).is_file():
            write_bytes(target / name, (pathlib.Path(source) / name).read_bytes())


if __name__ == "__main__":
    sys.exit(main())
