# Runs in MicroPython: the prompt of tools/chat.py. What to open arrives as JSON in SCRIBE_CHAT.
import json
import os
import sys


def main():
    request = json.loads(os.getenv("SCRIBE_CHAT"))
    import scribe

    scribe.chat(request["path"], request["raw"])


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
