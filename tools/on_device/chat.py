# Runs in MicroPython: the prompt of tools/chat.py. What to open arrives as JSON in SCRIBE_CHAT.
import json
import os
import sys


def main():
    request = json.loads(os.getenv("SCRIBE_CHAT"))
    from scribe.chat import run

    run(request["path"], request["raw"])


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
