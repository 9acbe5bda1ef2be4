"""report.html of a dress rehearsal: one file that needs nothing else, for light, dark, and without pictures."""

import base64
import html
import re

import numpy as np

from tools import rehearsal, rehearsal_plots as plots
from tools.rehearsal import ROUNDED, name_of, text_of
from tools.tokenizer import Tokenizer

PASSAGE = 40  # tokens whose experts are shown
REACH = 60  # keys shown for a word, at most
FAVOURITES = 6  # tokens named for an expert
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2937; --faint: #6b7280; --line: #d1d5db; --good: #166534;
  --bad: #b91c1c; --mark: 217, 119, 6; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181d; --ink: #e5e7eb; --faint: #9ca3af; --line: #374151;
  --good: #4ade80; --bad: #f87171; --mark: 251, 191, 36; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; margin: 1rem 0; } caption { text-align: left; color: var(--faint); }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; } figcaption, .note { color: var(--faint); }
.pass { color: var(--good); font-weight: 600; } .fail { color: var(--bad); font-weight: 600; }
.text { white-space: pre-wrap; } .text span { border-radius: .2em; }
.scroll { overflow-x: auto; } code { overflow-wrap: anywhere; }
"""


def escape(text):
    return html.escape(str(text))


def visible(text):
    """A token's text as HTML: spaces at its ends and newlines made visible."""
    return "<code>" + escape(text).replace("\n", "⏎").replace(" ", "␣") + "</code>"


def figure(draw, alt, caption):
    """An embedded plot, in the reader's own scheme."""
    light, dark = ("data:image/svg+xml;base64," + base64.b64encode(plots.svg(draw, dark).encode()).decode()
                   for dark in (False, True))
    return (f'<figure><picture><source srcset="{dark}" media="(prefers-color-scheme: dark)">'
            f'<img src="{light}" alt="{escape(alt)}"></picture><figcaption>{escape(caption)}</figcaption></figure>')


def table(caption, head, rows, numbers=()):
    """A table of HTML cells; columns in `numbers` are right-aligned."""

    def row(cells, tag):
        marks = [' class="n"' if i in numbers else "" for i in range(len(cells))]
        scope = ' scope="col"' if tag == "th" else ""
        return "<tr>" + "".join(f"<{tag}{scope}{m}>{cell}</{tag}>" for m, cell in zip(marks, cells)) + "</tr>"

    return (f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead>{row(head, "th")}</thead><tbody>'
            + "".join(row(cells, "td") for cells in rows) + "</tbody></table></div>")


def verdict(rows):
    """The checks as a table."""
    cells = []
    for row in rows:
        error = "" if row["error"] is None else f" ± {row['error']:.4f}"
        word = "pass" if row["pass"] else "fail"
        limit = f"{'≤' if row['most'] else '≥'} {row['limit']:g}"
        cells.append((escape(row["what"]), f"{row['value']:.4f}{error}", limit, f'<span class="{word}">{word}</span>'))
    return table("Tolerances that stood in the model's config before this run; ± is one standard error", (
        "what", "measured", "tolerance", ""), cells, (1, 2))


def quality(found):
    """Loss of the three engines and the distances of two from the first."""
    rows = []
    for name, label in plots.LABELS.items():
        f = found[name]
        cells = [label, f"{f['nats_per_token']:.4f}", f"{f['bits_per_byte']:.4f}"]
        if name in ROUNDED:
            cells += [f"{f['cross_entropy']['mean']:+.4f}", f"{f['kl']['mean']:.5f}", f"{f['kl']['99%']:.4f}",
                      f"{100 * f['top1']['mean']:.2f}%"]
        rows.append(cells + [""] * (7 - len(cells)))
    return table("Each document read afresh, its end token counted", (
        "", "nats a token", "bits a byte", "nats lost", "KL, nats", "KL, 99% of tokens below", "same top token"), rows,
        range(1, 7))


def worst_table(rows):
    return table("The tokens where the integers are furthest from the float original, over all documents", (
        "KL", "text before", "token read", "what follows", "float expects", "integers expect", "nats, float, integers"),
        [(f"{r['kl']:.3f}", escape(r["before"]), visible(r["read"]), visible(r["actual"]), visible(r["float"]),
          visible(r["integer"]), f"{r['nats_float']:.2f}, {r['nats_integer']:.2f}") for r in rows], (0,))


def shaded(kl, names):
    """A text whose tokens are the darker the larger their KL divergence."""
    top = max(float(kl.max()), 1e-12)
    spans = []
    for value, name in zip(kl, names):
        strength = float(np.sqrt(max(value, 0) / top))
        style = f' style="background: rgba(var(--mark), {strength:.2f})"' if strength >= 0.15 else ""
        spans.append(f'<span{style} title="KL {value:.4f}">{escape(name)}</span>')
    return '<p class="text">' + "".join(spans) + "</p>"


def favourites(reading, packed):
    """[(layer, expert, share of tokens, names)]: the tokens that go to an expert more often than chance would have it,
    the most surprising first: by n log(p(expert | token) / p(expert))."""
    reader, rows = Tokenizer(packed.tokenizer), []
    kinds, kind = np.unique(reading.tokens, return_inverse=True)
    seen = np.bincount(kind)
    for layer, column in enumerate(reading.routes.T):
        share = np.bincount(column, minlength=packed.config.n_experts) / len(column)
        for expert in range(packed.config.n_experts):
            here = np.bincount(kind[column == expert], minlength=len(kinds))
            with np.errstate(divide="ignore", invalid="ignore"):
                surprise = np.where(here > 0, here * np.log(here / seen / share[expert]), 0)
            best = [i for i in np.argsort(-surprise, kind="stable")[:FAVOURITES] if surprise[i] > 0]
            rows.append((layer, expert, share[expert], [name_of(reader, packed.config, kinds[i]) for i in best]))
    return rows


def attention_of(engine, tokens, at):
    """[(layer, head, weights [at + 1])]: where each attention head of the integers looked when it read token `at`."""
    rows, heads = [], {}

    def watch(name, layer, values, clipped):
        if name == "attention":
            heads[layer] = heads.get(layer, -1) + 1
            rows.append((layer, heads[layer], np.array(values[-1]) / 32768))

    list(engine.pieces(tokens[: at + 1], watch))
    return rows


def choose_word(names, word=None):
    """Place of the token whose attention is shown: the last token of the last `word`, or None where it is not there;
    without a word, of the last name that was there before (a capital in the middle of a sentence), else the last."""
    text, ends = "".join(names), np.cumsum([len(name) for name in names])
    pattern = r"(?<=[a-z,] )[A-Z][a-z]+" if word is None else rf"(?<!\w){re.escape(word)}(?!\w)"
    for found in reversed(list(re.finditer(pattern, text))):
        if word is not None or re.search(rf"\b{found[0]}\b", text[: found.start()]):
            return int(np.searchsorted(ends, found.end()))
    return len(names) - 1 if word is None else None


def page(name, digest, text, packed, model, engine, reading, found, checked, word=None):
    """The report as HTML. engine: the integer engine, to read a passage again; word: see `choose_word`."""
    config, reader = packed.config, Tokenizer(packed.tokenizer)
    passed = all(row["pass"] for row in checked)

    def document(number):
        rows = np.flatnonzero(reading.document == number)
        return rows, [text_of(reader, [token]) for token in reading.tokens[rows]]

    parts = [f"<p>{escape(config.recipe)}, vocabulary {config.vocab_size:,}, {model.file:,} bytes, SHA-256 "
             f"<code>{digest}</code>.<br>Read: {escape(text)}, {found['documents']:,} documents, {found['tokens']:,} "
             f"tokens, {found['bytes']:,} bytes.</p>",
             f'<p>Verdict: <span class="{"pass" if passed else "fail"}">{"pass" if passed else "fail"}</span></p>',
             verdict(checked), "<h2>Loss</h2>", quality(found)]
    lost, nats = found["integer"]["cross_entropy"]["mean"], [found[e]["nats_per_token"] for e in ("float", "integer")]
    parts.append(figure(
        plots.by_position(reading), f"Two line plots by place in the document. Mean loss: float {nats[0]:.3f}, "
        f"integers {nats[1]:.3f} nats a token; rounding adds {lost:+.4f}.",
        "Loss by position: places in bins that double in width."))
    bins = ", ".join(f"{low:.1f} to {high:.1f}: {100 * same:.1f}% of {count}"
                     for low, high, count, same in plots.agreement_bins(reading))
    parts += ["<h2>Agreement</h2>", figure(
        plots.agreement(reading),
        f"Bar charts by the probability of the float model's likeliest token. Agreement: {bins}.",
        "Agreement by how sure the float model is: between two tokens almost equally likely, rounding decides.")]

    worst = rehearsal.worst(reading, packed)
    means = np.bincount(reading.document, reading.kl["integer"]) / np.bincount(reading.document)
    rows, names = document(int(means.argmax()))
    kl = reading.kl["integer"][rows]
    marked = np.argsort(-kl, kind="stable")[:6]
    parts += ["<h2>KL divergence along a text</h2>", figure(
        plots.along(kl, names, marked), "Bar chart of the KL divergence of each token of a document. Largest: "
        + ", ".join(f"{names[i].strip() or 'space'} {kl[i]:.3f}" for i in marked),
        f"Document {int(means.argmax()) + 1}, the one with the largest mean. A bar stands at the token that was read; "
        "the distance is between what the two expect next."), shaded(kl, names), worst_table(worst)]

    if "load" in found:
        counts, limit = np.array(found["load"]["tokens"]), config_limit(checked)
        parts += ["<h2>Experts</h2>", figure(
            plots.expert_load(counts, limit), "Heat map of tokens by layer and expert, and bars of the busiest over "
            "the mean by layer: " + ", ".join(f"{v:.2f}" for v in found["load"]["max_over_mean"]),
            "Expert load by layer, as the integers route.")]
        rows, names = document(0)
        rows, names = rows[:PASSAGE], names[:PASSAGE]
        routes = reading.routes[rows]
        shown = [name or "(begin)" for name in names]
        parts += [figure(plots.speakers(routes, shown, config.n_experts),
                         "Grid of a passage's tokens by layer, each cell the number of the expert that was chosen; the "
                         "same numbers are in the table that follows.",
                         "Which expert spoke for which word: the first document's beginning."),
                  "<details><summary>The same as a table</summary>",
                  table("Expert by token and layer", ("token", *(f"layer {i}" for i in range(config.n_layers))),
                        [(visible(name), *map(str, route)) for name, route in zip(shown, routes)],
                        range(1, 1 + config.n_layers)), "</details>",
                  "<details><summary>Each expert's favourite tokens</summary>",
                  table("Tokens that go to an expert more often than chance would have it", (
                      "layer", "expert", "share", "tokens"),
                      [(str(layer), str(e), f"{100 * share:.1f}%", " ".join(map(visible, best)))
                       for layer, e, share, best in favourites(reading, packed)], (0, 1, 2)), "</details>"]
    if "A" in config.recipe:
        rows, names = document(0)
        at = choose_word(names[: 2 * REACH], word)
        if at is None:  # not in the first document
            at = choose_word(names[: 2 * REACH])
            parts.append(f'<p class="note">The word {escape(word)} is not in the first {2 * REACH} tokens of the '
                         "first document.</p>")
        heads = attention_of(engine, reading.tokens[rows].tolist(), at)
        first = max(0, at + 1 - REACH)
        weights = np.stack([row[first:] for *_, row in heads])
        labels = [f"layer {layer}, head {head}" for layer, head, _ in heads]
        keys = [name or "(begin)" for name in names[first : at + 1]]
        peak = [(label, keys[int(row.argmax())], float(row.max())) for label, row in zip(labels, weights)]
        parts += ["<h2>Attention</h2>", figure(
            plots.looked(weights, labels, keys), "Heat map of attention heads by token for the word "
            f"{names[at].strip()}. Most looked at: " + ", ".join(
                f"{label}: {key.strip() or 'space'} {share:.2f}" for label, key, share in peak),
            f"Where each attention head looked when it read “{names[at].strip()}”, the last column, in “"
            f"{''.join(names[max(0, at - 6) : at + 1]).strip()}”.")]
    if found["flash"]:
        parts += ["<h2>Flash</h2>", flash_part(reading, found, model)]
    memory = found["memory"]
    last = memory["by_length"][-1]
    parts += ["<h2>Memory</h2>", figure(
        plots.memory(memory["by_length"], config), "Line plot of state and key-value memory by length of text. This "
        f"model: {memory['state'] + memory['rings']:,} bytes at any length; its A layers without a window: "
        f"{last['no_window']:,} bytes at {last['tokens']:,} tokens.",
        f"State of the recurrences {memory['state']:,} bytes, keys and values {memory['rings']:,} bytes, at 16 bits.")]
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width, initial-scale=1"><title>Dress rehearsal of {escape(name)}</title>'
            f"<style>{STYLE}</style></head>\n<body><main><h1>Dress rehearsal of {escape(name)}</h1>\n"
            + "\n".join(parts) + "\n</main></body></html>\n")


def config_limit(checked):
    """The load's tolerance, or None."""
    return next((row["limit"] for row in checked if row["name"] == "load"), None)


def flash_part(reading, found, model):
    """The plot and the table of flash bytes a token."""
    from tools import cache

    config, rows = model.config, found["flash"]
    trace = (reading.routes + np.arange(config.n_layers) * config.n_experts)[:512]
    slots = [rows[0]["experts"], rows[len(rows) // 2]["experts"], rows[-1]["experts"]]
    per_token = {n: (~cache.per_layer_hits(trace, n, config)).sum(1) * model.expert for n in slots}
    return figure(
        plots.flash(rows, per_token, config.n_layers * model.expert), "Flash bytes a token by the size of the cache: "
        + ", ".join(f"{row['experts']} experts {row['bytes_per_token']:,.0f}" for row in rows),
        "Bytes of experts read a token. Without a cache: one expert a layer.") + table(
        "Flash bytes a token by cache", ("experts in RAM", "bytes of RAM", "bytes read a token"),
        [(str(r["experts"]), f"{r['cache_bytes']:,}", f"{r['bytes_per_token']:,.0f}") for r in rows], (0, 1, 2))
