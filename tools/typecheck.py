"""Check the board's code with mypy against MicroPython's stubs, a port at a time.

Stubs and mypy come from PyPI, exact versions and hashes (requirements-types.txt), into folders under build/types. The
stubs say what builtins and the standard library have on a board, so a module or method that MicroPython lacks is an
error, and they know viper's pointer types.
"""

import ast
import hashlib
import os
import pathlib
import re
import subprocess
import sys

from tools import lock
from tools.errors import Parser, UserError, command
from tools.micropython import ROOT

REQUIREMENTS = ROOT / "requirements-types.txt"
CONFIG = ROOT / "tools" / "typecheck.ini"
BUILD = ROOT / "build" / "types"
PORTS = ("rp2", "esp32")
STANDARD = "micropython-stdlib-stubs"  # of every port


def installed():
    """{"mypy" or a port: folder} of what requirements-types.txt lists."""
    packages = lock.blocks(REQUIREMENTS)
    stubs = [name for name in packages if name.startswith("micropython-")]
    wanted = {port: [f"micropython-{port}-stubs", STANDARD] for port in PORTS}
    wanted["mypy"] = [name for name in packages if name not in stubs]
    key = hashlib.sha256((REQUIREMENTS.read_text() + sys.version).encode()).hexdigest()[:10]
    return {name: lock.install(REQUIREMENTS, names, BUILD / f"{name}-{key}") for name, names in wanted.items()}


def _assembler(path):
    """Numbers of the lines of a module that are functions in assembler: instructions, registers and labels, which no
    stub can name. All else in such a module is checked."""
    lines = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and any("asm_" in ast.unparse(each) for each in node.decorator_list):
            lines.update(range(node.decorator_list[0].lineno, node.end_lineno + 1))
    return lines


def check(port, folder=ROOT / "device"):
    """Lines that mypy has to say of main.py and the package `scribe` in a folder, against a port's stubs."""
    folders, folder = installed(), pathlib.Path(folder)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(CONFIG), "--custom-typeshed-dir", str(folders[port]),
         "--cache-dir", str(BUILD / f"cache-{port}"), "--no-error-summary", "--no-color-output", "-p", "scribe",
         "-m", "main"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folders["mypy"]), "MYPYPATH": str(folders[port])},
        capture_output=True, text=True)
    if done.returncode not in (0, 1) or done.stderr:
        raise UserError(f"mypy failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    found, assembler = [], {}
    for line in done.stdout.splitlines():
        match = re.match(r"((?:scribe/\w+|main)\.py):(\d+): ", line)  # the stubs have mistakes of their own
        if match:
            name = match[1]
            if name not in assembler:
                assembler[name] = _assembler(folder / name)
            if int(match[2]) not in assembler[name]:
                found.append(line)
    return found


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.typecheck", description=__doc__.splitlines()[0])
    parser.add_argument("ports", nargs="*", choices=[[], *PORTS], metavar="PORT", help=" or ".join(PORTS))
    bad = False
    for port in parser.parse_args(argv).ports or PORTS:
        said = check(port)
        print(*said, f"types on {port}: {'wrong' if said else 'right'}", sep="\n")
        bad = bad or bool(said)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
