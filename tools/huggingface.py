"""A Hugging Face folder (config.json and safetensors) of LlamaForCausalLM or RecurrentGemmaForCausalLM, to this
project's tensors.

What each field of config.json means is taken from transformers' modeling_llama.py and modeling_recurrent_gemma.py
(5.24). Every field is either used, or known not to change a logit, or refused by name: none is dropped.
"""

import json
import pathlib
import re

import numpy as np

from tools import checkpoint
from tools.config import Config
from tools.errors import UserError
from tools.llama2c import llama_config

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu"}
#: Fields that say how a model was made, stored or sampled from, not what it computes.
NEUTRAL = {
    "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "use_cache",
    "pad_token_id", "initializer_range", "attention_dropout", "pretraining_tp", "w_init_variance_scale",
    "final_w_init_variance_scale", "is_encoder_decoder", "return_dict", "output_attentions", "output_hidden_states",
    "chunk_size_feed_forward", "id2label", "label2id", "problem_type", "_attn_implementation",
    "_attn_implementation_autoset", "auto_map", "hidden_dropout", "resid_pdrop", "embd_pdrop", "task_specific_params"}
#: Fields of each architecture and what a missing one is, as its configuration class has it. None: derived.
LLAMA = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "rope_parameters": None,
    "rope_theta": None, "rope_scaling": None, "attention_bias": False, "mlp_bias": False, "head_dim": None}
RECURRENT_GEMMA = {
    "vocab_size": 256000, "hidden_size": 2560, "intermediate_size": 7680, "num_hidden_layers": 26,
    "num_attention_heads": 10, "num_key_value_heads": None, "lru_width": None, "attention_window_size": 2048,
    "conv1d_width": 4, "logits_soft_cap": 30.0, "rms_norm_eps": 1e-6, "bos_token_id": 2, "eos_token_id": 1,
    "hidden_activation": "gelu_pytorch_tanh", "rope_parameters": None, "rope_theta": None, "rope_scaling": None,
    "partial_rotary_factor": None, "block_types": ("recurrent", "recurrent", "attention"), "attention_bias": False,
    "tie_word_embeddings": True, "head_dim": None}
BLOCKS = {"recurrent": "S", "attention": "A"}


def read(folder, slide=False):
    """(Config, {name: float64 tensor}) of the folder. Raises UserError naming the field or tensor that does not fit."""
    folder = pathlib.Path(folder)
    fields, architecture = _fields(folder / "config.json")
    config, names = ARCHITECTURES[architecture][1](fields, slide)
    tensors = _load_tensors(folder)
    weights = {}
    for ours, shape in checkpoint.tensor_shapes(config).items():
        theirs = names(ours)
        there, change = TRANSFORMS.get(ours.partition("recurrence.")[2], (None, None))
        stored = tuple(there(config)) if there else shape
        if theirs not in tensors:
            raise UserError(f"{folder}: tensor {theirs} is missing")
        tensor = tensors.pop(theirs)
        if tensor.shape != stored:
            raise UserError(f"{folder}: tensor {theirs} is {tensor.shape}; config.json asks for {stored}")
        tensor = tensor.astype(np.float64)
        if architecture.startswith("Recurrent") and ours.endswith("norm.weight"):
            tensor = 1 + tensor  # RecurrentGemmaRMSNorm
        weights[ours] = change(config, tensor) if change else tensor
    _check_rest(folder, config, tensors, weights["embedding.weight"])
    checkpoint.check_tensors(config, weights, folder)
    return config, weights


# ---- config.json ----

class _Fields:
    """The fields of a config.json with the architecture's defaults. Every way to read one names the file and field."""

    def __init__(self, path, values, defaults):
        self.path = path
        self.values = {name: values.get(name, default) for name, default in defaults.items()}

    def refuse(self, name, why):
        raise UserError(f"{self.path}: {name} is {self.values[name]!r}; {why}")

    def whole(self, name, default=None):
        value = self.values[name] if self.values[name] is not None else default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 20:
            self.refuse(name, f"a whole number from 0 to {(1 << 20) - 1} is needed")
        return value

    def number(self, name, default=None):
        value = self.values[name] if self.values[name] is not None else default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
            self.refuse(name, "a number above 0 is needed")
        return float(value)

    def flag(self, name):
        if not isinstance(self.values[name], bool):
            self.refuse(name, "true or false is needed")
        return self.values[name]

    def activation(self, name, allowed=("silu", "gelu")):
        kind = ACTIVATIONS.get(self.values[name]) if isinstance(self.values[name], str) else None
        if kind not in allowed:
            known = [name for name, kind in ACTIVATIONS.items() if kind in allowed]
            self.refuse(name, f"only {', '.join(known)} run here")
        return kind

    def token(self, name):
        """A token id; a list of one counts as that one."""
        value = self.values[name]
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, "one token id is needed")
        return value

    def layers(self):
        count = self.whole("num_hidden_layers")
        if not 1 <= count <= 64:
            self.refuse("num_hidden_layers", "1 to 64 layers fit the format")
        return count

    def rotary(self):
        """(base, fraction): of the rope_parameters of transformers 5, or of the fields of 4. Refuses any scaling."""
        base, fraction = self.values["rope_theta"], self.values.get("partial_rotary_factor")
        for name in ("rope_parameters", "rope_scaling"):
            given = self.values[name]
            if given is None:
                continue
            if not isinstance(given, dict):
                self.refuse(name, "an object is needed")
            kinds = {given.get("rope_type", "default"), given.get("type", "default")}
            unknown = sorted(set(given) - {"rope_type", "type", "rope_theta", "partial_rotary_factor"})
            if kinds != {"default"}:
                self.refuse(name, "scaled rotary positions do not run here, only the default type")
            if unknown:
                self.refuse(name, f"{unknown[0]} is not known here")
            base = given.get("rope_theta", base)
            fraction = given.get("partial_rotary_factor", fraction)
        self.values.update(rope_theta=base, partial_rotary_factor=fraction)
        return self.number("rope_theta", 10000.0), fraction

    def heads(self):
        """(heads, kv heads, head size)."""
        heads = self.whole("num_attention_heads")
        if not heads:
            self.refuse("num_attention_heads", "1 or more is needed")
        size = self.whole("head_dim", self.whole("hidden_size") // heads)
        if size % 2:
            self.values["head_dim"] = size
            self.refuse("head_dim", "an odd number of elements can't be rotated in pairs")
        return heads, self.whole("num_key_value_heads", heads), size


def _fields(path):
    """(_Fields, architecture) of a config.json."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a model's configuration: it holds no object")
    architecture = values.get("architectures")
    if isinstance(architecture, list) and len(architecture) == 1:
        architecture = architecture[0]
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise UserError(f"{path}: architecture {architecture!r}; {' and '.join(ARCHITECTURES)} run here")
    model_type, _, defaults = (*ARCHITECTURES[architecture], DEFAULTS[architecture])
    if values.get("model_type", model_type) != model_type:
        raise UserError(f"{path}: model_type is {values['model_type']!r}; {architecture} has {model_type!r}")
    for name in sorted(set(values) - set(defaults) - NEUTRAL):
        if values[name] not in (None, False):
            raise UserError(f"{path}: {name} is {str(values[name])[:80]}; the engine has nothing like it")
    return _Fields(path, values, defaults), architecture


def _llama(f, slide):
    """(Config, function from our tensor names to theirs) of a LlamaForCausalLM."""
    heads, kv_heads, head_dim = f.heads()
    base, fraction = f.rotary()
    if fraction not in (None, 1, 1.0):
        f.refuse("partial_rotary_factor", "a Llama rotates whole heads")
    context, biased = f.whole("max_position_embeddings"), f.flag("attention_bias")
    if not 1 <= context <= 16384:
        f.refuse("max_position_embeddings", "the ring buffer of keys and values holds 1 to 16384")
    config = _checked(f, lambda: llama_config(
        recipe="A" * f.layers(), vocab_size=f.whole("vocab_size"), d_model=f.whole("hidden_size"), n_heads=heads,
        n_kv_heads=kv_heads, head_dim=head_dim, d_ff=f.whole("intermediate_size"), context=context, slide=slide,
        rotary_base=base, activation=f.activation("hidden_act"), norm_eps=f.number("rms_norm_eps"),
        tie_embeddings=f.flag("tie_word_embeddings"), qkv_bias=biased, attention_out_bias=biased,
        mlp_bias=f.flag("mlp_bias"), bos_token_id=f.token("bos_token_id"), eos_token_id=f.token("eos_token_id")))
    return config, _renamer({
        "embedding": "model.embed_tokens", "head": "lm_head", "final_norm": "model.norm",
        "temporal_norm": "input_layernorm", "ff_norm": "post_attention_layernorm",
        **{f"attention.{p}": f"self_attn.{p}_proj" for p in "qkvo"},
        **{f"mlp.{p}": f"mlp.{p}_proj" for p in ("gate", "up", "down")}})


def _recurrent_gemma(f, slide):
    """(Config, function from our tensor names to theirs) of a RecurrentGemmaForCausalLM."""
    heads, kv_heads, head_dim = f.heads()
    base, fraction = f.rotary()
    if fraction is None:
        fraction = f.values["partial_rotary_factor"] = 0.5
    if not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
        f.refuse("partial_rotary_factor", "a number above 0, up to 1, is needed")
    if int(head_dim * fraction) % 2:
        f.refuse("partial_rotary_factor", f"{int(head_dim * fraction)} elements of a head can't be rotated in pairs")
    blocks, layers = f.values["block_types"], f.layers()
    if not (isinstance(blocks, (list, tuple)) and blocks and all(isinstance(b, str) and b in BLOCKS for b in blocks)):
        f.refuse("block_types", f"a list of {' and '.join(BLOCKS)} is needed")
    recipe = "".join(BLOCKS[block] for block in blocks) * layers
    width = f.whole("hidden_size")
    config = _checked(f, lambda: Config(
        recipe=recipe[:layers], vocab_size=f.whole("vocab_size"), d_model=width, d_rnn=f.whole("lru_width", width),
        rnn_heads=heads, conv_width=f.whole("conv1d_width"), n_heads=heads, n_kv_heads=kv_heads, head_dim=head_dim,
        window=f.whole("attention_window_size"), rotary_base=base, rotary_fraction=float(fraction),
        activation=f.activation("hidden_activation", ("gelu",)),
        d_ff=f.whole("intermediate_size") // 2,  # RecurrentGemmaMlp halves it
        n_experts=0, d_expert=0, norm_eps=f.number("rms_norm_eps"), tie_embeddings=f.flag("tie_word_embeddings"),
        embedding_scale=bfloat16(width**0.5),  # kept in bfloat16 whatever the model is in
        logit_softcap=f.number("logits_soft_cap"), rnn_bias=True, qkv_bias=f.flag("attention_bias"),
        attention_out_bias=True, mlp_bias=True, bos_token_id=f.token("bos_token_id"),
        eos_token_id=f.token("eos_token_id")).check())
    if slide:
        raise UserError(f"{f.path}: --slide is for models with a length where they stop; this one has none")
    return config, _renamer({
        "embedding": "model.embed_tokens", "head": "lm_head", "final_norm": "model.final_norm",
        "temporal_norm": "temporal_pre_norm", "ff_norm": "channel_pre_norm",
        **{f"attention.{p}": f"temporal_block.{p}_proj" for p in "qkvo"},
        **{f"recurrence.{p}": f"temporal_block.linear_{p}" for p in ("x", "y", "out")},
        "recurrence.conv": "temporal_block.conv_1d", "recurrence.lam": "temporal_block.rg_lru.recurrent_param",
        "recurrence.gate_a": "temporal_block.rg_lru.recurrent_gate_",
        "recurrence.gate_i": "temporal_block.rg_lru.input_gate_",
        **{f"mlp.{p}": f"mlp_block.{p}_proj" for p in ("gate", "up", "down")}})


ARCHITECTURES = {"LlamaForCausalLM": ("llama", _llama),
                 "RecurrentGemmaForCausalLM": ("recurrent_gemma", _recurrent_gemma)}
DEFAULTS = {"LlamaForCausalLM": LLAMA, "RecurrentGemmaForCausalLM": RECURRENT_GEMMA}


def _checked(f, make):
    try:
        return make()
    except UserError as error:
        where = "" if str(f.path) in str(error) else f"{f.path}: "
        raise UserError(f"{where}{error}") from None


def _renamer(parts):
    """The function from "layers.0.mlp.gate.weight" to "model.layers.0.mlp.gate_proj.weight"."""

    def rename(ours):
        if ours in ("embedding.weight", "head.weight", "final_norm.weight"):
            return parts[ours[:-7]] + ".weight"
        prefix, part = re.fullmatch(r"(layers\.\d+\.)(.*)", ours).groups()
        part, dot, kind = (part, "", "") if part in parts else part.rpartition(".")
        theirs = parts[part]
        return f"model.{prefix}{theirs}{'' if theirs.endswith('_') else dot}{kind}"

    return rename


def bfloat16(value):
    """The nearest bfloat16, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    return float(np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32))


# ---- tensors ----

def _gate_shape(config):
    block = config.d_rnn // config.rnn_heads
    return config.rnn_heads, block, block


def _gate_weight(config, tensor):
    return tensor.swapaxes(1, 2)  # theirs multiplies from the right: (in, out)


#: By our name after "recurrence.": their shape, and what makes it ours.
TRANSFORMS = {
    "conv.weight": (lambda c: (c.d_rnn, 1, c.conv_width), lambda c, t: t[:, 0]),
    "gate_a.weight": (_gate_shape, _gate_weight),
    "gate_i.weight": (_gate_shape, _gate_weight),
    "gate_a.bias": (lambda c: (c.rnn_heads, c.d_rnn // c.rnn_heads), lambda c, t: t.ravel()),
    "gate_i.bias": (lambda c: (c.rnn_heads, c.d_rnn // c.rnn_heads), lambda c, t: t.ravel()),
}


def _load_tensors(folder):
    """{name: array} of model.safetensors, or of every file that model.safetensors.index.json names."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return checkpoint.read_safetensors(folder / "model.safetensors")
    if not index.is_file():
        raise UserError(f"{folder}: no model.safetensors; other formats (pytorch_model.bin is a pickle) are not read")
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(places.values()))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: not an index of safetensors files ({error})") from None
    tensors = {}
    for name in files:
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise UserError(f"{index}: {name!r} is not the name of a safetensors file")
        part = checkpoint.read_safetensors(folder / name)
        wanted = {tensor for tensor, place in places.items() if place == name}
        for tensor in sorted(set(part) ^ wanted):
            raise UserError(f"{folder / name}: it and the index disagree about tensor {tensor}")
        tensors.update(part)
    return tensors


def _check_rest(folder, config, tensors, embedding):
    """Refuse a tensor that nothing used, but old Llamas' saved rotary frequencies and the head of a tied model."""
    for name in sorted(tensors):
        if name == "lm_head.weight" and config.tie_embeddings:
            if tensors[name].shape != embedding.shape or (tensors[name] != embedding).any():
                raise UserError(f"{folder}: config.json ties head and embedding, but lm_head.weight is another tensor")
        elif not name.endswith("rotary_emb.inv_freq"):
            raise UserError(f"{folder}: tensor {name} is not part of this model")
