"""The decoder: one token in, logits out. `Model.step` is the whole forward pass.

    x = embedding[token]
    for each layer:  x = x + temporal(rmsnorm(x));  x = x + feed_forward(rmsnorm(x))
    logits = rmsnorm(x) @ head.T
"""

import gc

from . import kernels as k
from .attention import Attention
from .buffers import Work, heap_lock, heap_unlock, ints, zeros
from .feedforward import Experts, GatedMLP
from .library import Library
from .linear import linear, norm, scratch
from .modelfile import ModelFile
from .recurrence import Recurrence

#: Tokens of a prompt that go through a layer together where there are experts to read: each costs 8 bytes a dimension.
CHUNK = 16


class State:
    """What a text has left behind so far: its place, and each layer's state. Never grows.

    `first` is 1 before a text's first token; `slot` and `used` are the ring buffers' slot of the next token and how
    many slots hold tokens once it is in; `phases` are the rotary angles, 32-bit turns that wrap.
    """

    def __init__(self, model):
        self.model = model
        self.layers = [layer.temporal.new_state() for layer in model.layers]
        self.phases = zeros(len(model.turns))
        self.reset()

    def reset(self):
        """Begin a new text in the same memory."""
        self.seek(0)
        for i, layer in enumerate(self.model.layers):
            layer.temporal.reset(self.layers[i])

    def seek(self, position):
        """Set the counters as if `position` tokens had been read. (Tests reach far positions with it.)"""
        self.first = 0 if position else 1
        self.slot = position % self.model.window
        self.used = min(position + 1, self.model.window)
        for i, turn in enumerate(self.model.turns):
            angle = position * turn & 0xFFFFFFFF
            self.phases[i] = (angle ^ 0x80000000) - 0x80000000

    def back(self, count, first, slot, used):
        """Back by `count` tokens, to the given place: the next layer of a chunk begins there."""
        self.first, self.slot, self.used = first, slot, used
        for _ in range(count):
            k.advance(self.phases, self.model.turns_back, len(self.phases))

    def advance(self):
        """On to the next token's place."""
        self.first = 0
        self.slot = (self.slot + 1) % self.model.window
        if self.used < self.model.window:
            self.used += 1
        k.advance(self.phases, self.model.turns, len(self.phases))

    def size(self):
        """Bytes of RAM in use."""
        return sum(len(a) * (2 if isinstance(layer.temporal, Attention) else 4)
                   for layer, arrays in zip(self.model.layers, self.layers) for a in arrays)


class Layer:
    """x = x + temporal(rmsnorm(x));  x = x + feed_forward(rmsnorm(x))."""

    def __init__(self, file, config, number, library):
        section = file.section(b"LAYR", number)
        d = config["d_model"]
        self.size = len(section.buf)
        self._buf = section.buf
        self._temporal_norm = norm(section, d)
        self.temporal = (Recurrence if config["recipe"][number] == "S" else Attention)(section, config)
        self._ff_norm = norm(section, d)
        self._mlp = self._experts = None
        if config["d_ff"]:
            self._mlp = GatedMLP(section, section.params(2), d, config["d_ff"], 8, config["activation"])
        if config["n_experts"]:
            self._experts = Experts(section, config, number, library)
        section.end()
        self.scratch = max(part.scratch for part in (self.temporal, self._mlp, self._experts) if part)

    def step(self, x, state, place, work):
        n, t, buf = work.n, work.tables, self._buf
        k.norm(n, x, buf, t, self._temporal_norm)
        self.temporal.step(x, n, state, place, work)
        k.norm(n, x, buf, t, self._ff_norm)
        if self._mlp:
            self._mlp.run(x, n, work, self._buf)
        if self._experts:
            self._experts.step(x, n, work)

    def read(self, count, state, place, work):
        """`step` for a chunk of `count` tokens, their streams in work.xs: each expert is read at most once."""
        for i in range(count):
            x, n = work.xs[i], work.ns[i]
            k.norm(n, x, self._buf, work.tables, self._temporal_norm)
            self.temporal.step(x, n, state, place, work)
            k.norm(n, x, self._buf, work.tables, self._ff_norm)
            if self._mlp:
                self._mlp.run(x, n, work, self._buf)
            if self._experts:
                work.best[i] = self._experts.choose(n, work)
                work.probability[i] = work.out[0]
            place.advance()
        if self._experts:
            for expert in range(self._experts.count):
                buf = None
                for i in range(count):
                    if work.best[i] == expert:
                        buf = buf or self._experts.read(expert)
                        self._experts.add(work.xs[i], work.ns[i], work.probability[i], buf, work)


class Model:
    """A packed model, loaded. `logits` holds the last step's, as integers; the sampler knows their unit.

    chunk: how many tokens of a prompt go through a layer together; None for CHUNK, or 1 where there are no experts.
    check: when an expert's bytes are compared with their CRC-32 (library.CHECKS).
    """

    def __init__(self, path, chunk=None, check="first"):
        self.file = file = ModelFile(path)
        self.about = file.description()
        self.config = config = self.about["config"]
        file.check_order(len(config["recipe"]), config["n_experts"])
        d, vocab = config["d_model"], config["vocab_size"]
        if chunk is None:
            chunk = CHUNK if config["n_experts"] else 1
        # the largest buffers first, before anything fragments the heap
        section = file.section(b"EMBD")
        self._embedding = section.buf
        self._embed_scale, self._embed_shift = section.params(2)
        self._embed = section.matrix(vocab, d)
        section.end()
        self.library = Library(file, len(config["recipe"]), check)
        self.layers = []
        for i in range(len(config["recipe"])):
            gc.collect()  # what the last one left behind: its holes are for the small objects of this one
            self.layers.append(Layer(file, config, i, self.library))
        gc.collect()
        section = file.section(b"HEAD")
        self._norm = norm(section, d)
        self._norm_buf = section.buf
        self.logit_params = section.params(6)
        if not all(0 <= self.logit_params[i] < 32768 for i in (0, 2, 4)):  # they take part in indexing a table
            file.refuse("section HEAD: a mantissa is out of range")
        self._cap = self.logit_params[2:] if config["logit_softcap"] else None
        if config["tie_embeddings"]:
            self._head, self._head_buf = linear(self._embed), self._embedding
        else:
            self._head, self._head_buf = linear(section.matrix(vocab, d)), section.buf
        section.end()
        self.tokens = file.load(b"TOKN")
        attention = [layer.temporal for layer in self.layers if isinstance(layer.temporal, Attention)]
        self.window = attention[0].window if attention else 1
        self.turns = attention[0].turns if attention else ints(())
        self.turns_back = ints([-turn for turn in self.turns])
        # x and branch; queries, keys and values; gate and up; router. The other: gates, what attention or an expert
        # puts out
        heads = config["n_heads"] * config["head_dim"]
        wide = max(heads + 2 * config["n_kv_heads"] * config["head_dim"], 2 * config["d_rnn"], 2 * config["d_ff"],
                   2 * config["d_expert"], config["n_experts"])
        other = max(d, heads, 2 * config["d_rnn"])
        most = max([layer.scratch for layer in self.layers] + [scratch(self._head)])
        self.work = Work(file.load(b"TABL"), d, most, wide, other, (self.window + 7) // 8 * 8, chunk)
        self.x = zeros(d)
        self.logits = zeros(vocab)

    def step(self, token, state, head=True):
        """Read one token; with `head`, leave the next one's logits in `logits`. Allocates nothing."""
        x, work = self.x, self.work
        heap_lock()
        try:
            k.embed(x, self._embedding, self._embed, token, self._embed_scale, self._embed_shift)
            for i in range(len(self.layers)):
                self.layers[i].step(x, state.layers[i], state, work)
            state.advance()
            if head:
                k.norm(work.n, x, self._norm_buf, work.tables, self._norm)
                for d in self._head:
                    k.linear(self.logits, work.n, work.px, self._head_buf, d)
                if self._cap:
                    k.softcap(self.logits, work.tables, len(self.logits), self._cap)
        finally:
            heap_unlock()

    def read(self, tokens, state):
        """Read a prompt's tokens without their logits, a chunk at a time, layer by layer. The state is that of as many
        `step`s, to the bit; each expert is read at most once a layer and chunk. Allocates nothing."""
        at = 0
        heap_lock()
        try:
            while at < len(tokens):
                at += self._read_chunk(tokens, at, state)
        finally:
            heap_unlock()

    def _read_chunk(self, tokens, at, state):
        work = self.work
        count = min(len(work.xs), len(tokens) - at)
        for i in range(count):
            k.embed(work.xs[i], self._embedding, self._embed, tokens[at + i], self._embed_scale, self._embed_shift)
        first, slot, used = state.first, state.slot, state.used
        for i in range(len(self.layers)):
            if i:
                state.back(count, first, slot, used)
            self.layers[i].read(count, state.layers[i], state, work)
        return count
