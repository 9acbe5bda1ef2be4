"""The packed file's byte layout on the host: the one place that knows it (docs/format.md is the description).

A file is a header, a table of sections, and the sections. A section is a sequence of records: matrices, vectors and
parameter lists, in the order that `layer_records` and its neighbours give.
"""

import binascii
import dataclasses
import json
import pathlib
import struct

import numpy as np

from tools import fixedpoint
from tools.config import Config
from tools.errors import UserError
from tools.files import write_beside
from tools.tokenizer import section_check

MAGIC = b"\x93SCRIBE\n"
VERSION = 1
HEADER = struct.Struct("<8s6I")  # magic, version, file size, sections, table's CRC-32, alignment, header's CRC-32
ENTRY = struct.Struct("<4sHHIII")  # tag, layer, expert, offset, length, CRC-32
ALIGNMENT = 64
MAX_SECTIONS = 64 * 257 + 8

PARAMS, VECTOR, MATRIX = 1, 2, 3
GROUP = 64
SATURATE, RAW, ADD = range(3)  # what a board does with a row's sum
#: Low bits that a group's product with its scale loses, by weight bits.
PRODUCT_SHIFT = {8: 16, 4: 12}


@dataclasses.dataclass
class Matrix:
    """Quantised weights: w [rows, cols] signed integers; scales [rows, groups] 15-bit, worth scale / 2^exponent.

    `point`: fraction bits of a row's sum before `shift`; bias [rows] or None has the same. `blocks` > 1:
    block-diagonal, row r reads block r // (rows / blocks) of the input, each block `cols` long.
    """

    w: np.ndarray
    scales: np.ndarray
    exponent: int
    bits: int = 8
    blocks: int = 1
    point: int = 0
    shift: int = 0
    mode: int = SATURATE
    bias: np.ndarray | None = None

    @property
    def shape(self):
        return self.w.shape

    def expanded(self):
        """The weights as float64 [rows, cols]: what the rounding left of them."""
        scale = np.repeat(self.scales, GROUP, axis=1)[:, : self.w.shape[1]]
        return self.w * scale / 2.0**self.exponent

    def to_bytes(self):
        rows, cols = self.w.shape
        padded = padded_length(cols)
        w = np.zeros((rows, padded), dtype=np.int64)
        w[:, :cols] = self.w
        if self.bits == 8:
            data = (w + 128).astype(np.uint8).tobytes()
        else:
            w = (w + 8).astype(np.uint8)
            data = (w[:, 0::2] | w[:, 1::2] << 4).tobytes()
        head = struct.pack("<10i", MATRIX, rows, cols, self.blocks, self.bits, self.exponent, self.point, self.shift,
                           self.mode, self.bias is not None)
        scales = pad(self.scales.astype("<u2").tobytes(), 4)
        return head + data + scales + (b"" if self.bias is None else self.bias.astype("<i4").tobytes())


@dataclasses.dataclass
class Vector:
    """Integers of 16 or 32 bits, each worth value / 2^point."""

    values: np.ndarray
    bits: int
    point: int

    def to_bytes(self):
        kind = {16: "<i2", 32: "<i4"}[self.bits]
        return struct.pack("<4i", VECTOR, len(self.values), self.bits, self.point) + pad(
            self.values.astype(kind).tobytes(), 4)


def padded_length(cols):
    """Columns of a stored row: a multiple of 8, for unrolled kernels and 32-bit loads."""
    return (cols + 7) // 8 * 8


def pad(data, alignment):
    return data + bytes(-len(data) % alignment)


# What each section holds, in order: ("params", name, count), ("vector", name, count, bits) or
# ("matrix", name, rows, cols, blocks, bits).

NORM = 4  # log2 of the width rounded up, point before the weight, shift, epsilon


def norm_records(name, d_model):
    return [("params", name + ".params", NORM), ("vector", name, d_model, 16)]


def layer_records(config, letter):
    d, records = config.d_model, norm_records("temporal_norm", config.d_model)
    if letter == "S":
        r, block = config.d_rnn, config.d_rnn // config.rnn_heads
        records += [
            ("params", "recurrence.params", 4),  # shifts: activation, convolution, state, state times branch
            ("matrix", "recurrence.x", r, d, 1, 8),
            ("matrix", "recurrence.y", r, d, 1, 8),
            ("vector", "recurrence.conv.weight", r * config.conv_width, 16),
            ("vector", "recurrence.conv.bias", r, 32),
            ("matrix", "recurrence.gate_a", r, block, config.rnn_heads, 8),
            ("matrix", "recurrence.gate_i", r, block, config.rnn_heads, 8),
            ("vector", "recurrence.decay", r, 32),
            ("matrix", "recurrence.out", d, r, 1, 8),
        ]
    else:
        q, kv = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
        records += [
            ("params", "attention.params", 3),  # clamp of q and k, softmax mantissa and shift
            ("vector", "attention.rotary", config.rotary_dim // 2, 32),  # turns a position, 32 fraction bits
            ("matrix", "attention.q", q, d, 1, 8),
            ("matrix", "attention.k", kv, d, 1, 8),
            ("matrix", "attention.v", kv, d, 1, 8),
            ("matrix", "attention.o", d, q, 1, 8),
        ]
    records += norm_records("ff_norm", d)
    if config.d_ff:
        records += [("params", "mlp.params", 2)]  # shifts: activation, product
        records += [("matrix", "mlp.gate", config.d_ff, d, 1, 8), ("matrix", "mlp.up", config.d_ff, d, 1, 8),
                    ("matrix", "mlp.down", d, config.d_ff, 1, 8)]
    if config.n_experts:
        records += [("params", "moe.params", 5),  # shifts: activation, product; router mantissa, shift; output shift
                    ("matrix", "moe.router", config.n_experts, d, 1, 8)]
    return records


def expert_records(config):
    d, h = config.d_model, config.d_expert
    return [("matrix", "gate", h, d, 1, 4), ("matrix", "up", h, d, 1, 4), ("matrix", "down", d, h, 1, 4)]


def embedding_records(config):
    return [("params", "params", 2), ("matrix", "weight", config.vocab_size, config.d_model, 1, 8)]  # mantissa, shift


def head_records(config):
    records = norm_records("norm", config.d_model)
    records += [("params", "params", 6)]  # logits to log2 units: mantissa, shift; soft cap: in, shift, out, shift
    if not config.tie_embeddings:
        records += [("matrix", "weight", config.vocab_size, config.d_model, 1, 8)]
    return records


def section_layout(config):
    """Every section after CONF, TOKN and TABL, in file order: [(key, records)], key = (tag, layer, expert)."""
    layout = [(("EMBD", 0, 0), embedding_records(config))]
    layout += [(("LAYR", i, 0), layer_records(config, letter)) for i, letter in enumerate(config.recipe)]
    layout += [(("HEAD", 0, 0), head_records(config))]
    for i in range(config.n_layers):
        layout += [(("XPRT", i, e), expert_records(config)) for e in range(config.n_experts)]
    return layout


class Packed:
    """A packed model in memory: config, info (the CONF section's other fields), tokenizer bytes, and `sections`,
    {key: {record name: Matrix, Vector or list of parameters}}."""

    def __init__(self, config, info, tokenizer, sections):
        self.config, self.info, self.tokenizer, self.sections = config, info, tokenizer, sections

    @property
    def scale(self):
        """Nats per unit of the integer logits."""
        return 2.0 ** -self.info["logit_point"]

    def to_bytes(self):
        about = json.dumps({**self.info, "config": self.config.shape()}, separators=(",", ":")).encode()
        parts = [(("CONF", 0, 0), about), (("TOKN", 0, 0), self.tokenizer), (("TABL", 0, 0), fixedpoint.tables())]
        for key, records in section_layout(self.config):
            data = b""
            for kind, name, *_ in records:
                value = self.sections[key][name]
                if kind == "params":
                    data += struct.pack(f"<{2 + len(value)}i", PARAMS, len(value), *value)
                else:
                    data += value.to_bytes()
            parts.append((key, data))
        at = aligned(HEADER.size + ENTRY.size * len(parts))
        table, body = b"", b""
        for (tag, layer, expert), data in parts:
            table += ENTRY.pack(tag.encode(), layer, expert, at, len(data), binascii.crc32(data))
            body += pad(data, ALIGNMENT)
            at = aligned(at + len(data))
        fields = (MAGIC, VERSION, at, len(parts), binascii.crc32(table), ALIGNMENT)
        head = HEADER.pack(*fields, 0)[:-4]
        return pad(head + struct.pack("<I", binascii.crc32(head)) + table, ALIGNMENT) + body

    def save(self, path):
        """Write beside, read back, then rename: never a half-written file under the final name."""
        path = pathlib.Path(path)
        data = self.to_bytes()

        def write(temporary):
            temporary.write_bytes(data)
            Packed.load(temporary)

        write_beside(path, write)
        return len(data)

    @classmethod
    def load(cls, path):
        """Read and check a packed file. Raises UserError that names the section where it is damaged."""
        try:
            data = pathlib.Path(path).read_bytes()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        try:
            return cls.from_bytes(data)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    @classmethod
    def from_bytes(cls, data):
        parts = read_sections(data)
        found = list(parts)
        try:
            info = json.loads(bytes(take(parts, ("CONF", 0, 0))))
            config = Config.from_dict(info.pop("config"))
        except UserError:
            raise
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise UserError(f"section CONF is not a model's description ({error})") from None
        if not isinstance(info.get("logit_point"), int) or not 0 <= info["logit_point"] <= 40:
            raise UserError("section CONF: logit_point must be a whole number from 0 to 40")
        tokenizer = bytes(take(parts, ("TOKN", 0, 0)))
        try:
            size = section_check(tokenizer)
        except UserError as error:
            raise UserError(f"section TOKN: {error}") from None
        if size != config.vocab_size:
            raise UserError(f"section TOKN has {size} tokens, the config {config.vocab_size}")
        if bytes(take(parts, ("TABL", 0, 0))) != fixedpoint.tables():
            raise UserError("section TABL: other tables than this version's; pack the model again")
        sections = {}
        for key, records in section_layout(config):
            sections[key] = read_records(key, take(parts, key), records)
        if parts:
            raise UserError(f"section {section_name(next(iter(parts)))} is not part of this model")
        for key, wanted in zip(found, (("CONF", 0, 0), ("TOKN", 0, 0), ("TABL", 0, 0), *sections)):
            if key != wanted:
                raise UserError(f"section {section_name(key)} lies where {section_name(wanted)} should")
        from tools import bounds  # here, since it needs this module's names

        bounds.check(config, sections)
        return cls(config, info, tokenizer, sections)


def aligned(at):
    return -(-at // ALIGNMENT) * ALIGNMENT


def section_name(key):
    tag, layer, expert = key
    return {"LAYR": f"LAYR {layer}", "XPRT": f"XPRT {layer}.{expert}"}.get(tag, tag)


def take(parts, key):
    if key not in parts:
        raise UserError(f"section {section_name(key)} is missing")
    return parts.pop(key)


def read_sections(data):
    """Check header, table and every CRC-32; returns {key: memoryview} in file order."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise UserError("not a packed Scribe model")
    _, version, size, count, table_crc, alignment, head_crc = HEADER.unpack_from(data)
    if binascii.crc32(data[: HEADER.size - 4]) != head_crc:
        raise UserError("the header is damaged; copy the file again")
    if version != VERSION:
        raise UserError(f"format version {version}; this code reads version {VERSION}")
    if size != len(data):
        raise UserError(f"{len(data)} bytes, but the header says {size}; the copy is incomplete")
    end = HEADER.size + count * ENTRY.size
    if alignment != ALIGNMENT or count > MAX_SECTIONS or end > size:
        raise UserError("the header's sizes are not possible")
    if binascii.crc32(data[HEADER.size : end]) != table_crc:
        raise UserError("the section table is damaged; copy the file again")
    parts = {}
    at = aligned(end)
    for i in range(count):
        tag, layer, expert, offset, length, crc = ENTRY.unpack_from(data, HEADER.size + i * ENTRY.size)
        key = (tag.decode("ascii", "replace"), layer, expert)
        if offset != at or offset + length > size or key in parts:
            raise UserError(f"section {section_name(key)} lies where it can't")
        parts[key] = memoryview(data)[offset : offset + length]
        if binascii.crc32(parts[key]) != crc:
            raise UserError(f"section {section_name(key)} is damaged; copy the file again")
        at = aligned(offset + length)
    if at != size:
        raise UserError("bytes follow the last section")
    return parts


def read_records(key, data, records):
    """{name: value} of a section, every size checked against the config's."""
    name = section_name(key)
    result, at = {}, 0

    def fields(count):
        nonlocal at
        if at + 4 * count > len(data):
            raise UserError(f"section {name} ends too early")
        values = struct.unpack_from(f"<{count}i", data, at)
        at += 4 * count
        return values

    def array(kind, shape):
        nonlocal at
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if at + size > len(data):
            raise UserError(f"section {name} ends too early")
        values = np.frombuffer(data, kind, int(np.prod(shape)), at).reshape(shape)
        at += size + -size % 4
        return values.astype(np.int64)

    for kind, what, *sizes in records:
        wrong = UserError(f"section {name}: record {what} has other sizes than the config")
        if kind == "params":
            if fields(2) != (PARAMS, sizes[0]):
                raise wrong
            result[what] = list(fields(sizes[0]))
        elif kind == "vector":
            tag, count, bits, point = fields(4)
            if (tag, count, bits) != (VECTOR, *sizes):
                raise wrong
            result[what] = Vector(array(f"<i{bits // 8}", (count,)), bits, point)
        else:
            rows, cols, blocks, bits = sizes
            tag, *found, exponent, point, shift, mode, biased = fields(10)
            if tag != MATRIX or found != sizes or mode not in (SATURATE, RAW, ADD) or biased not in (0, 1):
                raise wrong
            if not (0 <= shift <= 30 and -40 <= exponent <= 60):
                raise UserError(f"section {name}: record {what} has an impossible shift")
            w = array("u1", (rows, padded_length(cols) * bits // 8))
            if bits == 4:
                w = np.stack([w & 15, w >> 4], axis=2).reshape(rows, -1)
            w = w - (1 << (bits - 1))
            scales = array("<u2", (rows, -(-cols // GROUP)))
            bias = array("<i4", (rows,)) if biased else None
            result[what] = Matrix(w[:, :cols], scales, exponent, bits, blocks, point, shift, mode, bias)
    if at != len(data):
        raise UserError(f"section {name} is longer than its records")
    return result
