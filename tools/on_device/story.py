# Runs in MicroPython: tells one story, as a board would, then prints its figures in one line.
# What to tell arrives as JSON in SCRIBE_STORY, so that no text is ever pasted into code.
import json
import os
import sys


def kilobytes(size):
    return "%d KB" % ((size + 1023) // 1024)


def figures(stats):
    """One line: what the story cost."""
    speed = stats["tokens_per_second"]  # None where a story was too short to time
    return "%d tokens, %s tokens/s, %d flash bytes/token%s, %s of RAM (%s), seed %d" % (
        stats["tokens"],
        "?" if speed is None else "%.1f" % speed,
        stats["flash_bytes_per_token"],
        ", %d%% of experts from RAM" % int(100 * stats["cache_hit_rate"]) if stats["cache_hit_rate"] else "",
        kilobytes(stats["ram_bytes"]),
        ", ".join("%s %s" % (part, kilobytes(size)) for part, size in sorted(stats["ram"].items())),
        stats["seed"],
    )


def main():
    import scribe

    request = json.loads(os.getenv("SCRIBE_STORY"))
    s = scribe.open(request["path"])
    s.tell(request["prompt"], **request["options"])
    print("\n[" + figures(s.stats()) + "]")


try:
    main()
except BaseException as error:
    if isinstance(error, SystemExit):
        raise
    # stdout belongs to the story; the tool that started this shows the last line of stderr.
    sys.print_exception(error, sys.stderr)
    sys.exit(1)
