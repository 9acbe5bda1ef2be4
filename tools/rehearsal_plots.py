"""The plots of a dress rehearsal, each a function of its figures that draws on a matplotlib figure.

`svg(draw, dark)` runs one of them and gives the SVG; text stays text, in the reader's own sans-serif.
"""

import io

import numpy as np

from tools.errors import UserError
from tools.rehearsal import ROUNDED

try:
    import matplotlib
except ModuleNotFoundError:
    matplotlib = None
else:
    matplotlib.use("Agg")
    from matplotlib import pyplot

LABELS = {"float": "float original", "standin": "stand-in (rounded weights)", "integer": "integers, as on a board"}
#: Lines of the three engines; apart in lightness too, for readers who do not see colours.
LIGHT = {"float": "#6b7280", "standin": "#d97706", "integer": "#1d4ed8"}
DARK = {"float": "#9ca3af", "standin": "#fbbf24", "integer": "#60a5fa"}
DASHES = {"float": ":", "standin": "--", "integer": "-"}
WIDE = 9.0  # inches


def need_matplotlib():
    """Raise UserError unless plots can be drawn."""
    if matplotlib is None:
        raise UserError("matplotlib is needed: python -m pip install -r requirements-plots.txt")


def settings(dark):
    ink, paper = ("#e5e7eb", "#16181d") if dark else ("#1f2937", "#ffffff")
    return {"svg.fonttype": "none", "svg.hashsalt": "scribe", "font.family": "sans-serif", "font.size": 10,
            "text.color": ink, "axes.labelcolor": ink, "axes.edgecolor": ink, "xtick.color": ink, "ytick.color": ink,
            "figure.facecolor": paper, "axes.facecolor": paper, "savefig.facecolor": paper, "grid.alpha": 0.25,
            "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def svg(draw, dark=False):
    """SVG text of draw(colours), which returns a Figure; the same bytes for the same figures."""
    need_matplotlib()
    with matplotlib.rc_context(settings(dark)):
        figure = draw(DARK if dark else LIGHT)
        out = io.StringIO()
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return out.getvalue()


def subplots(height, columns=1, **options):
    return pyplot.subplots(1, columns, figsize=(WIDE, height), layout="constrained", **options)


def literal(text):
    """A token's text for a label: no mathematics, visible newlines, no spaces around a word."""
    return (text.strip(" ") or text.replace(" ", "␣")).replace("$", r"\$").replace("\n", "⏎")


def position_bins(position):
    """[(first, after, rows)] of positions in bins that double in width, those that hold any token."""
    edges = [0, 1, *(2**n for n in range(1, 1 + int(np.log2(max(1, position.max()))) + 1))]
    bins = [(a, b, np.flatnonzero((position >= a) & (position < b))) for a, b in zip(edges, edges[1:])]
    return [row for row in bins if len(row[2])]


def by_position(reading):
    """Loss by place in a document, and what the rounding adds to it."""
    bins = position_bins(reading.position)
    names = [str(a) if b == a + 1 else f"{a}–{b - 1}" for a, b, _ in bins]
    at = np.arange(len(bins))

    def draw(colours):
        figure, (left, right) = subplots(3.6, 2)
        for name, nats in reading.nats.items():
            left.plot(at, [nats[rows].mean() for *_, rows in bins], DASHES[name], color=colours[name],
                      label=LABELS[name], marker=".")
        for name in ROUNDED:
            lost = [reading.nats[name][rows] - reading.nats["float"][rows] for *_, rows in bins]
            errors = [v.std() / np.sqrt(len(v)) for v in lost]
            right.errorbar(at, [v.mean() for v in lost], errors, linestyle=DASHES[name], color=colours[name],
                           label=LABELS[name], marker=".", capsize=2)
        right.axhline(0, color=colours["float"], linewidth=0.8)
        left.set(ylabel="nats a token", title="Loss")
        right.set(ylabel="nats a token", title="What rounding adds (standard error)")
        for axes in (left, right):
            axes.set(xlabel="place in the document, tokens", xticks=at)
            axes.set_xticklabels(names, rotation=45, ha="right")
            axes.grid()
            axes.legend(fontsize=8)
        return figure

    return draw


def agreement_bins(reading):
    """[(low, high, tokens, share of the integers' top token that is the float's)] by the float's certainty."""
    at = np.minimum((reading.certainty * 10).astype(int), 9)
    return [(k / 10, (k + 1) / 10, int((at == k).sum()), float(reading.same["integer"][at == k].mean()))
            for k in range(10) if (at == k).any()]


def agreement(reading):
    """Top-1 agreement by how certain the float model was."""
    bins = agreement_bins(reading)

    def draw(colours):
        figure, (left, right) = subplots(3.2, 2)
        at = [(low + high) / 2 for low, high, *_ in bins]
        left.bar(at, [100 * same for *_, same in bins], 0.08, color=colours["integer"])
        right.bar(at, [count for _, _, count, _ in bins], 0.08, color=colours["float"])
        left.set(ylabel="same likeliest token, %", ylim=(min(90, *(100 * s for *_, s in bins)) - 2, 100),
                 title="Agreement of integers and float")
        right.set(ylabel="tokens", title="How often it is so certain")
        for axes in (left, right):
            axes.set(xlabel="probability of the float model's likeliest token", xlim=(0, 1))
            axes.grid(axis="y")
        return figure

    return draw


def along(kl, names, marked):
    """KL divergence of the integers along a text. kl [T]; names: text of each token; marked: places to name."""

    def draw(colours):
        figure, axes = subplots(3.4)
        axes.vlines(np.arange(len(kl)), 0, kl, color=colours["integer"], linewidth=max(1.0, 400 / len(kl)))
        for number, i in enumerate(sorted(marked)):
            axes.annotate(literal(names[i]), (i, kl[i]), xytext=(0, 4 + 10 * (number % 2)), textcoords="offset points",
                          ha="center", fontsize=8, color=colours["standin"])
        axes.axhline(float(np.mean(kl)), color=colours["float"], linestyle=":", label=f"mean {np.mean(kl):.4f}")
        axes.set(xlabel="token", ylabel="KL divergence, nats", xlim=(-0.5, len(kl) - 0.5))
        axes.margins(y=0.15)
        axes.grid(axis="y")
        axes.legend(loc="upper right")
        return figure

    return draw


def expert_load(counts, limit):
    """Load by layer. counts int [layers, experts]; limit: what max over mean may be, or None."""
    share = counts / counts.mean(1, keepdims=True)

    def draw(colours):
        figure, (left, right) = subplots(0.34 * len(counts) + 1.6, 2, width_ratios=(2.2, 1))
        image = left.imshow(share, cmap="viridis", vmin=0, vmax=max(2.0, share.max()), aspect="auto")
        if counts.shape[1] <= 16:
            for (i, e), value in np.ndenumerate(share):
                left.text(e, i, f"{value:.2f}", ha="center", va="center", fontsize=8,
                          color="black" if value > 0.7 * max(2.0, share.max()) else "white")
        left.set(xlabel="expert", ylabel="layer", title="Tokens of an expert, 1 = the mean", yticks=range(len(counts)),
                 xticks=range(0, counts.shape[1], 1 + counts.shape[1] // 17))
        figure.colorbar(image, ax=left)
        right.barh(np.arange(len(counts)), share.max(1), color=colours["integer"])
        if limit is not None:
            right.axvline(limit, color=colours["standin"], linestyle="--", label=f"tolerance {limit:g}")
            right.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.15))
        right.set(xlabel="busiest over mean", ylabel="layer", yticks=range(len(counts)))
        right.invert_yaxis()
        right.grid(axis="x")
        return figure

    return draw


def speakers(routes, names, n_experts):
    """Which expert each token of a passage went to. routes int [T, layers]; names: text of the T tokens."""
    steps, layers = routes.shape

    def draw(colours):
        figure, axes = subplots(0.30 * layers + 1.7)
        axes.imshow(routes.T, cmap="tab20" if n_experts > 10 else "tab10", vmin=0, vmax=19 if n_experts > 10 else 9,
                    aspect="auto")
        for (t, i), e in np.ndenumerate(routes):
            axes.text(t, i, str(e), ha="center", va="center", fontsize=8, color="white", weight="bold")
        axes.set(ylabel="layer", yticks=range(layers), xticks=range(steps))
        axes.set_xticklabels([literal(name) for name in names], rotation=90)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return figure

    return draw


def looked(weights, labels, names):
    """Where each head looked for one word. weights [heads, keys], rows named by `labels`, keys by `names`."""

    def draw(colours):
        figure, axes = subplots(0.22 * len(labels) + 1.9)
        cmap = "magma" if colours is DARK else "magma_r"
        image = axes.imshow(weights, cmap=cmap, vmin=0, vmax=weights.max(), aspect="auto")
        axes.set(yticks=range(len(labels)), xticks=range(len(names)))
        axes.set_yticklabels(labels, fontsize=8)
        axes.set_xticklabels([literal(name) for name in names], rotation=90, fontsize=8)
        figure.colorbar(image, ax=axes, label="share of attention")
        return figure

    return draw


def flash(rows, per_token, largest):
    """Flash bytes a token. rows: rehearsal.flash; per_token: {experts cached: bytes read by each of the first tokens};
    largest: bytes without a cache."""

    def draw(colours):
        figure, (left, right) = subplots(3.4, 2)
        left.plot([row["cache_bytes"] / 1024 for row in rows], [row["bytes_per_token"] / 1024 for row in rows],
                  color=colours["integer"], marker="o")
        left.set(xlabel="RAM for the expert cache, KiB", ylabel="KiB read a token", title="Over the whole text")
        for (slots, values), dash in zip(per_token.items(), (":", "--", "-")):
            width = min(16, len(values))
            smooth = np.convolve(values, np.ones(width) / width, "valid") / 1024
            right.plot(np.arange(len(smooth)) + width, smooth, dash, color=colours["integer"],
                       label=f"{slots} experts cached")
        right.set(xlabel="tokens since the start (mean of 16)", ylabel="KiB read a token", title="From an empty cache")
        right.legend(fontsize=8)
        for axes in (left, right):
            axes.set_ylim(0, 1.08 * largest / 1024)
            axes.grid()
        return figure

    return draw


def memory(rows, config):
    """State and keys and values against the length of the text. rows: rehearsal.memory()["by_length"]."""

    def draw(colours):
        figure, axes = subplots(3.4)
        lengths = [row["tokens"] for row in rows]
        lines = [("model", "this model, allocated at the start", "integer", "-"),
                 ("used", "of that, holding something", "integer", ":")]
        if "A" in config.recipe:
            lines += [("no_window", "its A layers without a window", "standin", "--")]
        if set(config.recipe) == {"S", "A"}:
            lines += [("all_attention", "all layers attention, no window", "float", "-.")]
        for key, label, colour, dash in lines:
            axes.plot(lengths, [row[key] / 1024 for row in rows], dash, color=colours[colour], label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set(xlabel="length of the text, tokens", ylabel="KiB")
        axes.grid()
        axes.legend(fontsize=8)
        return figure

    return draw
