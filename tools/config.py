"""The sizes of a model: one dataclass, read from and written to `config.json`.

Everything that trains, converts, packs or runs a model reads its shape from here; nothing else decides a size.
"""

import dataclasses
import json
import pathlib

from tools.errors import UserError

#: One letter per layer: a gated linear recurrence (Griffin) or sliding-window attention.
LAYER_KINDS = {"S": "gated linear recurrence", "A": "sliding-window attention"}
ACTIVATIONS = ("gelu", "silu")
#: The largest value of each size that a board allows (device/scribe/modelfile.py has the same).
MOST = {"vocab_size": 65536, "d_model": 8192, "d_rnn": 8192, "rnn_heads": 8192, "conv_width": 16, "n_heads": 1024,
        "n_kv_heads": 1024, "head_dim": 1024, "window": 16384, "d_ff": 65536, "n_experts": 256, "d_expert": 65536,
        "bos_token_id": 65535, "eos_token_id": 65535}
#: What a story does when it reaches the length that an all-attention model was trained for.
BEYOND_CONTEXT = ("slide", "stop")
#: What a dress rehearsal may hold a model to (tools/rehearse.py), float original against integers on held-out text:
#: name: (least, most) that a tolerance may be.
REHEARSAL = {
    "cross_entropy": (-10.0, 10.0),  # nats a token that the integers may lose, at most
    "kl": (0.0, 10.0),  # mean KL divergence in nats, at most
    "top1": (0.0, 1.0),  # share of tokens with the same likeliest next token, at least
    "load": (1.0, 256.0),  # tokens of the busiest expert over the mean, in any layer, at most
}
#: Tolerances of a model that names none: with experts in int4, and all in int8.
WITH_EXPERTS = {"cross_entropy": 0.004, "kl": 0.004, "top1": 0.97, "load": 2.0}
WITHOUT_EXPERTS = {"cross_entropy": 0.002, "kl": 0.002, "top1": 0.985}


@dataclasses.dataclass
class Config:
    """Shape of a decoder. Sizes are in elements; a size of 0 leaves that part out.

    `d_ff` is the dense gated MLP that every token takes; `n_experts` experts of width `d_expert` are the top-1
    mixture. A layer may have either or both (their outputs add).
    """

    recipe: str = "SSASSASS"
    vocab_size: int = 1024
    d_model: int = 128
    # S layers (Griffin, De et al. 2024)
    d_rnn: int = 128
    rnn_heads: int = 4  # blocks of the two block-diagonal gate matrices
    conv_width: int = 4
    # A layers
    n_heads: int = 4
    n_kv_heads: int = 1
    head_dim: int = 32
    window: int = 256  # keys kept, the token itself included
    rotary_base: float = 10000.0
    rotary_fraction: float = 0.5  # of head_dim that is rotated
    rotary_interleaved: bool = False  # pairs (2i, 2i+1) instead of (i, i + half)
    # feed-forward
    activation: str = "gelu"  # of the gated MLP; the S layer's own branch is always gelu (tanh form)
    d_ff: int = 0
    n_experts: int = 8
    d_expert: int = 128
    # the rest
    norm_eps: float = 1e-6
    tie_embeddings: bool = True
    embedding_scale: float = 1.0
    logit_softcap: float = 0.0  # c: logits become c * tanh(logits / c); 0 = none
    rnn_bias: bool = False  # biases of the S layer's in- and out-projections (conv and gates always have them)
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    context: int = 0  # longest text seen in training; 0 = no limit
    beyond_context: str = "slide"
    bos_token_id: int = 0  # what every text begins with
    eos_token_id: int = 0  # what ends it
    # tolerances of the dress rehearsal that are not the usual ones; no part of the model or of its packed file
    rehearsal: dict = dataclasses.field(default_factory=dict, compare=False)

    @property
    def n_layers(self):
        return len(self.recipe)

    @property
    def rotary_dim(self):
        """How many of the head_dim elements are rotated (even)."""
        return int(self.head_dim * self.rotary_fraction) // 2 * 2

    def tolerances(self):
        """{name: limit} of the dress rehearsal: this model's own over the usual ones. See REHEARSAL."""
        return {**(WITH_EXPERTS if self.n_experts else WITHOUT_EXPERTS), **self.rehearsal}

    def with_tolerances(self):
        """This config with all of its tolerances spelled out, as an original's config.json has them."""
        return dataclasses.replace(self, rehearsal=self.tolerances())

    def check(self):
        """Raise UserError, naming the field, unless the sizes make a model. Returns self."""

        def need(ok, message):
            if not ok:
                raise UserError(f"config: {message}")

        need(isinstance(self.recipe, str) and self.recipe, "recipe is empty; give one letter, S or A, per layer")
        for letter in self.recipe:
            need(letter in LAYER_KINDS, f"recipe {self.recipe!r} has the letter {letter!r}; only S and A are layers")
        need(self.n_layers <= 64, f"recipe has {self.n_layers} layers; at most 64 fit the format")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", int):
                need(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 20,
                     f"{field.name} is {value!r}; a whole number from 0 to {(1 << 20) - 1} is needed")
            elif field.type in ("bool", bool):
                need(isinstance(value, bool), f"{field.name} is {value!r}; true or false is needed")
            elif field.type in ("float", float):
                need(isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12,
                     f"{field.name} is {value!r}; a number of 0 or more is needed")
        for name, most in MOST.items():
            need(getattr(self, name) <= most, f"{name} is {getattr(self, name)}; at most {most} is possible")
        need(2 <= self.vocab_size, f"vocab_size is {self.vocab_size}; 2 to 65536 is needed")
        need(self.d_model > 0, "d_model is 0")
        if "S" in self.recipe:
            need(self.d_rnn > 0 and self.rnn_heads > 0 and self.d_rnn % self.rnn_heads == 0,
                 f"d_rnn {self.d_rnn} must be a multiple of rnn_heads {self.rnn_heads}, both above 0")
            need(1 <= self.conv_width, f"conv_width is {self.conv_width}; 1 to 16 is needed")
        if "A" in self.recipe:
            need(self.n_heads > 0 and self.n_kv_heads > 0 and self.n_heads % self.n_kv_heads == 0,
                 f"n_heads {self.n_heads} must be a multiple of n_kv_heads {self.n_kv_heads}, both above 0")
            need(0 < self.head_dim, f"head_dim is {self.head_dim}; 1 to 1024 is needed")
            need(0 < self.window, f"window is {self.window}; 1 to 16384 is needed")
            need(0 <= self.rotary_fraction <= 1, f"rotary_fraction is {self.rotary_fraction}; 0 to 1 is needed")
            need(self.rotary_base > 0, "rotary_base must be above 0")
        need(self.activation in ACTIVATIONS, f"activation is {self.activation!r}; one of {ACTIVATIONS} is needed")
        need(self.d_ff or self.n_experts, "d_ff and n_experts are both 0; a layer needs one of them")
        need(not self.n_experts or self.d_expert, "d_expert is 0 but there are experts")
        need(self.norm_eps > 0, "norm_eps must be above 0")
        need(self.beyond_context in BEYOND_CONTEXT,
             f"beyond_context is {self.beyond_context!r}; one of {BEYOND_CONTEXT}")
        for name in ("bos_token_id", "eos_token_id"):
            need(getattr(self, name) < self.vocab_size, f"{name} {getattr(self, name)} is not in the vocabulary")
        need(isinstance(self.rehearsal, dict), "rehearsal is not an object of tolerances")
        for name, limit in self.rehearsal.items():
            need(name in REHEARSAL, f"rehearsal has {name!r}; its tolerances are {', '.join(REHEARSAL)}")
            need(name != "load" or self.n_experts, "rehearsal has 'load', but there are no experts")
            low, high = REHEARSAL[name]
            need(isinstance(limit, (int, float)) and not isinstance(limit, bool) and low <= limit <= high,
                 f"rehearsal {name} is {limit!r}; a number from {low:g} to {high:g} is needed")
        return self

    def to_dict(self):
        """Every field, as config.json has them; `rehearsal` only where there are tolerances."""
        values = dataclasses.asdict(self)
        return values if self.rehearsal else self.shape()

    def shape(self):
        """The fields that make the model, as a packed file has them: all but `rehearsal`."""
        values = dataclasses.asdict(self)
        del values["rehearsal"]
        return values

    @classmethod
    def from_dict(cls, values):
        """A checked Config. Unknown keys are refused: they would be silently ignored otherwise."""
        if not isinstance(values, dict):
            raise UserError("config: a JSON object is needed")
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UserError(f"config: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
        return cls(**values).check()

    def save(self, path):
        pathlib.Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path):
        """Read `config.json`. Raises UserError when it is missing, not JSON, or not a model."""
        path = pathlib.Path(path)
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; a model's folder holds config.json") from None
        except OSError as error:
            raise UserError(f"{path}: can't be read ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON ({error})") from None
        try:
            return cls.from_dict(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
