"""Write device/package.json, which lists the board's package for `mip`: run it after adding a file to the package."""

import json
import re
import sys

from tools.errors import command
from tools.files import write_text
from tools.micropython import ROOT

DEVICE = ROOT / "device"
FILE = DEVICE / "package.json"


def sources():
    """{name: bytes} of the board's package, names like scribe/story.py."""
    return {f"scribe/{path.name}": path.read_bytes() for path in sorted((DEVICE / "scribe").glob("*.py"))}


def listing():
    """What package.json has to say."""
    version = re.search(rb'^__version__ = "(.*)"', sources()["scribe/__init__.py"], re.MULTILINE)[1].decode()
    return {"urls": [[name, name] for name in sources()], "deps": [], "version": version}


@command
def main(argv=None):
    write_text(FILE, json.dumps(listing(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
