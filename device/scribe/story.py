"""Telling stories: what a person at the REPL, or a program, calls."""

import gc
from array import array

from .bookmark import load, save
from .model import Model, State
from .sampler import DEFAULTS, Sampler, random_seed
from .tokenizer import Utf8Stream, open_tokenizer

try:
    from time import ticks_diff, ticks_ms
except ImportError:  # a port without a clock still tells stories
    ticks_ms = ticks_diff = None  # type: ignore[assignment]

#: Settings by name; a keyword given beside the name wins.
PRESETS = {
    "default": DEFAULTS,
    "llama": {"temperature": 0.6, "top_k": 0, "top_p": 0.9},  # Llama 3's own
}


class Scribe:
    """A model, ready to write. `help(s)` shows the calls.

    One story at a time: a new one begins in the memory of the last. For several at once, `fork`. Everything is
    allocated here; writing a token allocates nothing but the piece of text it returns.
    """

    usage = """
    s.tell("Once upon a time")    prints a story as it is written; Ctrl-C stops it
    s.write("The fox", seed=7)    returns it
    for piece in s.stream():      gives it piece by piece, whole characters only
    s.bookmark("a.mark")          saves where the story stands; s.tell(resume="a.mark") goes on with it
    t = s.fork()                  tells another story at the same time, with the same weights
    s.stats()                     speed, bytes read from flash for a token, bytes of RAM by part
    Keywords: temperature=0.8 (0 takes the likeliest token), top_k=40 (0: all), top_p=1.0, seed=None (or a whole
    number: the same seed writes the same story), max_tokens=400, preset="llama" (temperature 0.6, top_p 0.9),
    slide=True (go on past the length at which a Llama stops)
    """

    def __init__(self, path, name=None, cache=None, check="first", of=None):
        gc.collect()
        self.name = name or path
        if of:
            self._model, self._tokenizer, self._opened = of._model, of._tokenizer, of._opened
        else:
            self._model = Model(path, check=check)
            self._tokenizer = open_tokenizer(self._model.tokens)
            self._opened = self._model.file.bytes_read
        m = self._model
        if self._tokenizer.vocab_size != m.config["vocab_size"]:
            m.file.refuse("section TOKN has another vocabulary than the config")
        self._state = State(m)
        self._sampler = Sampler(m.config["vocab_size"], m.work.tables, m.logit_params, of and of._sampler)
        self._written = self._read = self._milliseconds = self._flash = 0
        self._cut = False
        self._token = None  # the last token of the story so far, not yet read
        self._story = 0  # which story this is: an earlier one, still being read from its generator, ends
        self._calls = self._hits = 0
        self.seed = None
        if not of:
            m.library.grow(cache)  # last, so that it takes only what is left
        gc.collect()

    def fork(self):
        """Another `Scribe` for the same model: a story of its own, at the same time as this one's, in `stats()`'s
        fork_bytes of RAM more. Weights, experts in RAM and scratch are shared; each story is the same as alone.

        It begins with no story (`bookmark` and `resume` copy one). `close` on any closes the model for all. Raises
        MemoryError.
        """
        try:
            return Scribe(self._model.file.path, self.name, of=self)
        except MemoryError:
            pass
        gc.collect()
        raise MemoryError("another story needs about %d bytes of heap; %d are free" % (
            self._fork_bytes(), gc.mem_free()))

    def _fork_bytes(self):
        # the arrays; and for each of them, and for the objects around them, their heads
        return self._state.size() + 4 * len(self._state.phases) + 96 * len(self._state.layers) + 1000

    def __repr__(self):
        return '<Scribe %s: s.tell("Once upon a time"), or help(s)>' % self.name

    def close(self):
        """Close the model's file, for this and its forks: no more stories of a model with experts."""
        self._model.file.close()

    def stream(self, prompt="", *, preset="default", temperature=None, top_k=None, top_p=None, seed=None,
               max_tokens=400, slide=False, resume=None):
        """Yield the story, its opening first, in strings of whole characters, until its end or `max_tokens` tokens.

        prompt: str or bytes. A setting that is None is the preset's. A model that stops at its trained length does so,
        unless `slide` lets it go on with the last tokens of that many in view. Raises ValueError for a setting out of
        range, or a prompt that is too long for such a model, before anything is written; OSError, in one line, where
        the model's file can't be read any more: later stories open it again where they can.

        resume: a file that `bookmark` wrote: the story goes on from there, the prompt after it; without a seed, with
        the draws that would have followed.
        """
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
            raise ValueError("max_tokens must be a whole number of 0 or more, not %r" % (max_tokens,))
        if not isinstance(prompt, (str, bytes, bytearray)):
            raise ValueError("prompt must be a string or bytes, not %r" % type(prompt))
        if resume is not None and not isinstance(resume, str):
            raise ValueError("resume must be a file's name, not %r" % (resume,))
        if not isinstance(preset, str) or preset not in PRESETS:
            raise ValueError("preset %r: one of %s is needed" % (preset, ", ".join(sorted(PRESETS))))
        settings = PRESETS[preset]
        raw = prompt.encode() if isinstance(prompt, str) else prompt
        config = self._model.config
        limit = config["context"] if config["beyond_context"] == "stop" and not slide else 0
        before = 0
        self._story = story = self._story + 1
        self._token = None
        self.seed = random_seed() if seed is None else seed
        self._sampler.set(settings["temperature"] if temperature is None else temperature,
                          settings["top_k"] if top_k is None else top_k,
                          settings["top_p"] if top_p is None else top_p, self.seed)
        self._model.file.refresh()
        if resume is None:
            self._state.reset()
            text = array("H", (config["bos_token_id"],))
        else:
            token, rng, before = load(resume, self._model, self._state)
            text = array("H", (token,))
            if seed is None:
                self._sampler.state = rng
        try:
            text.extend(self._tokenizer.encode(raw))
        except MemoryError:
            text = None  # type: ignore[assignment]
        if text is None:
            gc.collect()
            raise MemoryError("a prompt of %d bytes is too long for %d bytes of free heap" % (len(raw), gc.mem_free()))
        if limit and before + len(text) > limit:
            raise ValueError("the prompt has %d tokens, its beginning included; this model's texts end at %d, unless "
                             "slide=True" % (before + len(text), limit))
        return self._stream(story, raw, text, before, max_tokens, limit)

    def _stream(self, story, raw, tokens, before, max_tokens, limit):
        model, state, tokenizer, text = self._model, self._state, self._tokenizer, Utf8Stream()
        file, library = model.file, model.library
        end = model.config["eos_token_id"]
        room = limit - before - len(tokens) + 1 if limit else max_tokens  # a text has `limit` steps in all
        self._current(story)
        self._cut = False
        self._written = self._milliseconds = self._flash = self._calls = self._hits = 0
        self._read = before + len(tokens)
        model.read(memoryview(tokens)[:-1], state)
        self._token = token = tokens[-1]
        if raw:
            piece = text.feed(raw)
            if piece:
                yield piece
                self._current(story)
        while self._written < max_tokens:
            if self._written == room:
                self._cut = True
                break
            # other stories may have been told since the last token
            flash, calls, hits = file.bytes_read, library.calls, library.hits
            began = ticks_ms and ticks_ms()
            self._token = None  # should the step be interrupted, the state is neither before nor after it
            model.step(token, state)
            following = self._sampler.pick(model.logits)
            self._written += 1
            if ticks_ms:
                self._milliseconds += ticks_diff(ticks_ms(), began)
            self._flash += file.bytes_read - flash
            self._calls += library.calls - calls
            self._hits += library.hits - hits
            if following == end:
                break
            piece = text.feed(tokenizer.piece(following, token))
            self._token = token = following
            if piece:
                yield piece
                self._current(story)
        piece = text.flush()
        if piece:
            yield piece

    def _current(self, story):
        if story != self._story:
            raise ValueError("another story has begun in this one's memory; s.fork() tells two at once")

    def write(self, prompt="", **settings):
        """The story, with its opening, as one string. Keywords as in `stream`."""
        return "".join(self.stream(prompt, **settings))

    def tell(self, prompt="", **settings):
        """Print the story as it is written. Keywords as in `stream`. Ctrl-C stops it, and so does a file that can't be
        read any more, by an exception of one line; the next story starts afresh."""
        pieces = self.stream(prompt, **settings)
        try:
            for piece in pieces:
                print(piece, end="")
            if self._cut:
                print("\n" + self.notice(), end="")
        except KeyboardInterrupt:
            print("\n(stopped)", end="")
        except (OSError, ValueError, MemoryError):
            print()
            raise
        print()

    def bookmark(self, path):
        """Save the last story's state, so that `resume=path` goes on with it: a few KB, tied to this model.

        Raises ValueError where there is no unfinished story (one that Ctrl-C stopped stands in the middle of a token
        and can't be marked), OSError where the file can't be written.
        """
        if not isinstance(path, str):
            raise ValueError("a bookmark needs a file's name, not %r" % (path,))
        if self._token is None:
            raise ValueError("no unfinished story to mark, or one that was stopped in the middle of a token")
        save(path, self._model, self._state, self._token, self._sampler.state, self._read + self._written - 1)

    def notice(self):
        """The line that says why the last story stopped at the model's trained length, or ""."""
        return "(this model's texts end at %d tokens)" % self._model.config["context"] if self._cut else ""

    def stats(self):
        """Figures of the last story, and of memory.

        tokens: written, the end token included; prompt_tokens: read, the beginning token included; tokens_per_second
        (None without a clock), flash_bytes_per_token and cache_hit_rate, all while writing; ram_bytes and ram: bytes of
        the model's buffers in all and by part; fork_bytes: about what another story at the same time takes;
        flash_bytes_opening: bytes read by opening the model; seed;
        stopped_at_context: the story reached the length that the model was trained for, and stopped there.
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
            "cache_hit_rate": self._hits / self._calls if self._calls else 0,
            "flash_bytes_opening": self._opened,
            "ram_bytes": sum(ram.values()),
            "ram": ram,
            "fork_bytes": self._fork_bytes(),
            "seed": self.seed,
            "stopped_at_context": self._cut,
        }
