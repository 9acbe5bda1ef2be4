"""Telling stories: what a person at the REPL, or a program, calls."""

import gc

from .model import Model, State
from .sampler import DEFAULTS, Sampler, random_seed
from .tokenizer import Utf8Stream, open_tokenizer

try:
    from time import ticks_diff, ticks_ms
except ImportError:  # a port without a clock still tells stories
    ticks_ms = ticks_diff = None


class Scribe:
    """A model, ready to write. `help(s)` shows the calls.

    One story at a time: a new one begins in the memory of the last. Everything is allocated here; writing a token
    allocates nothing but the piece of text it returns.
    """

    usage = """
    s.tell("Once upon a time")    prints a story as it is written; Ctrl-C stops it
    s.write("The fox", seed=7)    returns it
    for piece in s.stream():      gives it piece by piece, whole characters only
    s.stats()                     speed, bytes read from flash for a token, bytes of RAM by part
    Keywords: temperature=0.8 (0 takes the likeliest token), top_k=40 (0: all), top_p=1.0, seed=None (or a whole
    number: the same seed writes the same story), max_tokens=400
    """

    def __init__(self, path, name=None):
        gc.collect()
        self.name = name or path
        self._model = m = Model(path)
        self._tokenizer = open_tokenizer(m.tokens)
        if self._tokenizer.vocab_size != m.config["vocab_size"]:
            m.file.refuse("section TOKN has another vocabulary than the config")
        self._state = State(m)
        self._sampler = Sampler(m.config["vocab_size"], m.work.tables, m.logit_params)
        self._opened = m.file.bytes_read
        self._written = self._read = self._milliseconds = self._flash = 0
        self.seed = None
        gc.collect()

    def __repr__(self):
        return '<Scribe %s: s.tell("Once upon a time"), or help(s)>' % self.name

    def close(self):
        """Close the model's file."""
        self._model.file.close()

    def stream(self, prompt="", *, temperature=DEFAULTS["temperature"], top_k=DEFAULTS["top_k"],
               top_p=DEFAULTS["top_p"], seed=None, max_tokens=400):
        """Yield the story, its opening first, in strings of whole characters, until its end or `max_tokens` tokens.

        prompt: str or bytes. Raises ValueError for a setting out of range, before anything is written.
        """
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
            raise ValueError("max_tokens must be a whole number of 0 or more, not %r" % (max_tokens,))
        if not isinstance(prompt, (str, bytes, bytearray)):
            raise ValueError("prompt must be a string or bytes, not %r" % type(prompt))
        self.seed = random_seed() if seed is None else seed
        self._sampler.set(temperature, top_k, top_p, self.seed)
        return self._stream(prompt, max_tokens)

    def _stream(self, prompt, max_tokens):
        model, state, tokenizer, text = self._model, self._state, self._tokenizer, Utf8Stream()
        end = model.config["eos_token_id"]
        raw = prompt.encode() if isinstance(prompt, str) else prompt
        tokens = tokenizer.encode(raw)
        state.reset()
        self._written = self._milliseconds = self._flash = 0
        self._read = len(tokens) + 1
        started = ticks_ms and ticks_ms()
        token = model.config["bos_token_id"]
        for following in tokens:
            model.step(token, state, False)
            token = following
        if raw:
            piece = text.feed(raw)
            if piece:
                yield piece
        flash = model.file.bytes_read
        while self._written < max_tokens:
            began = ticks_ms and ticks_ms()
            model.step(token, state)
            following = self._sampler.pick(model.logits)
            self._written += 1
            self._flash += model.file.bytes_read - flash
            flash = model.file.bytes_read
            if ticks_ms:
                self._milliseconds += ticks_diff(ticks_ms(), began)
            if following == end:
                break
            piece = text.feed(tokenizer.piece(following, token))
            token = following
            if piece:
                yield piece
        piece = text.flush()
        if piece:
            yield piece

    def write(self, prompt="", **settings):
        """The story, with its opening, as one string. Keywords as in `stream`."""
        return "".join(self.stream(prompt, **settings))

    def tell(self, prompt="", **settings):
        """Print the story as it is written. Keywords as in `stream`. Ctrl-C stops it; the next story starts afresh."""
        pieces = self.stream(prompt, **settings)
        try:
            for piece in pieces:
                print(piece, end="")
        except KeyboardInterrupt:
            print("\n(stopped)", end="")
        print()

    def stats(self):
        """Figures of the last story, and of memory.

        tokens: written, the end token included; prompt_tokens: read, the beginning token included; tokens_per_second
        (None without a clock) and flash_bytes_per_token, both while writing; ram_bytes and ram: bytes of the model's
        buffers in all and by part; flash_bytes_opening: bytes read by opening the model; seed.
        """
        m, written = self._model, self._written
        mapped = m.file.mapped
        ram = {
            "brain": 0 if mapped else m.file.size(b"EMBD") + m.file.size(b"LAYR") + m.file.size(b"HEAD"),
            "library": m.library.size(),
            "state": self._state.size(),
            "tokenizer": 0 if mapped else len(m.tokens),
            "buffers": m.work.size() + 4 * (len(m.x) + len(m.logits)) + self._sampler.size(),
        }
        return {
            "tokens": written,
            "prompt_tokens": self._read,
            "tokens_per_second": written * 1000 / self._milliseconds if written and self._milliseconds else None,
            "flash_bytes_per_token": self._flash // written if written else 0,
            "flash_bytes_opening": self._opened,
            "ram_bytes": sum(ram.values()),
            "ram": ram,
            "seed": self.seed,
        }
