"""Exact versions and hashes of all that is installed: `make lock` makes NAME.txt of every NAME.in, `make audit` asks
whether a known weakness is in any of them.

A lock holds for Python 3.10 and later on every system; pip refuses a file whose hash it does not have.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from tools.errors import Parser, UserError, command
from tools.micropython import ROOT

UV, PIP_AUDIT = "uv==0.13.9", "pip-audit==2.10.1"
BUILD = ROOT / "build" / "lock"
PYTHON = "3.10"  # the oldest that the locks hold for
#: In this order: the later ones keep to the versions of the earlier ones.
NAMES = ("requirements", "requirements-train", "requirements-plots", "requirements-hf", "requirements-types")


def pip_install(requirement, folder, *options):
    """A package from PyPI in a folder of its own (once; a broken-off install leaves nothing there)."""
    if folder.exists():
        return folder
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check",
                           "--no-compile", "--target", str(part), *options, requirement],
                          capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["pip failed"]
        raise UserError(f"{requirement} can't be installed here: {said[-1].strip()}")
    part.rename(folder)
    return folder


def blocks(path):
    """{package: its lines} of a lock, one entry for each package; the lines are its versions with their hashes."""
    found, name = {}, None
    for line in pathlib.Path(path).read_text().splitlines():
        match = re.match(r"([a-z0-9-]+)==", line)
        name = match[1] if match else name
        if name and line.strip() and not line.lstrip().startswith("#"):
            found[name] = found.get(name, "") + line + "\n"
    return found


def install(lock, names, folder):
    """Packages of a lock, and nothing else, in a folder; their files must have the hashes of the lock."""
    have = blocks(lock)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(folder.name + ".txt")
    part.write_text("".join(have[name] for name in names))
    return pip_install(f"-r{part}", folder, "--require-hashes", "--no-deps")


def lock(name, earlier):
    """Write NAME.txt from NAME.in, keeping to what the locks before have."""
    tool = pip_install(UV, BUILD / UV) / "bin" / "uv"
    target = ROOT / f"{name}.txt"
    keep = [word for other in earlier for word in ("--constraint", f"{other}.txt")]
    done = subprocess.run([str(tool), "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON,
                           "--generate-hashes", "--no-emit-index-url", "--custom-compile-command", "make lock",
                           *keep, "--output-file", str(target), f"{name}.in"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{name}.in: {' '.join(done.stderr.split())}")


def audit(name):
    """({package: ids of its known weaknesses}, how many packages the database was asked about) of a lock: of those that
    this system and Python would install."""
    tool = pip_install(PIP_AUDIT, BUILD / PIP_AUDIT)
    done = subprocess.run([sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / f"{name}.txt"),
                           "--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off"],
                          cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tool)}, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["pip-audit failed"]
        raise UserError(f"{name}.txt: {said[-1]}") from None
    weak = {p["name"]: [v["id"] for v in p["vulns"]] for p in packages if p.get("vulns")}
    return weak, sum("skip_reason" not in p for p in packages)


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.lock", description=__doc__.splitlines()[0])
    parser.add_argument("--audit", action="store_true", help="ask for known weaknesses instead")
    args = parser.parse_args(argv)
    if not args.audit:
        for i, name in enumerate(NAMES):
            lock(name, NAMES[:i])
            print(f"{name}.txt: {len(blocks(ROOT / f'{name}.txt'))} packages")
        return 0
    bad = False
    for name in NAMES:
        try:
            weak, asked = audit(name)
        except UserError as error:
            print(f"left out: audit of {name}.txt ({error})")
            continue
        for package, ids in weak.items():
            print(f"{name}.txt: {package} has {', '.join(ids)}")
        if asked:
            print(f"{name}.txt: {asked} packages, {len(weak)} with known weaknesses")
        else:
            print(f"left out: audit of {name}.txt (the database of weaknesses can't be reached from here)")
        bad = bad or bool(weak)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
