"""MicroPython's source as Debian ships it, from this machine's own Debian mirror.

apt fetches it with a sources list and state of its own, so that the system's stay as they are, and checks the
archive's signature; the tarball must also be the one that the overlay was written for.
"""

import hashlib
import pathlib
import shutil
import subprocess
import tempfile

from tools.errors import UserError
from tools.firmware import BUILD

SUITE = "trixie"
VERSION = "1.25.0+ds-1"
TARBALL = "micropython_1.25.0+ds.orig.tar.xz"
SHA256 = "7b25be99a502f070b2de81dafc08da7051d992325d6e67daa9045a918fffdbea"
KEYRINGS = "/usr/share/keyrings"


def tarball():
    """Path of the source tarball, fetched once. Raises UserError."""
    path = BUILD / TARBALL
    if not path.is_file() or _sha256(path) != SHA256:
        BUILD.mkdir(parents=True, exist_ok=True)
        _fetch(path)
    return path


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fetch(path):
    if not shutil.which("apt-get"):
        raise UserError(f"no apt-get here; put Debian's {TARBALL} (source package micropython {VERSION}) at {path}")
    said = ""
    for mirror in _mirrors():
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            said = _source(mirror, folder)
            if not said and _sha256(folder / TARBALL) != SHA256:
                said = f"the mirror's {TARBALL} is not the one expected"
            if not said:
                shutil.move(folder / TARBALL, path)
                return
    raise UserError(f"cannot fetch Debian's source package micropython {VERSION}: "
                    f"{said or 'no Debian mirror among this machine apt sources'}")


def _mirrors():
    """Addresses of the Debian mirrors that this machine's apt is set up with, the likeliest first."""
    found = []
    for wanted in (("Origin: Debian", "Label: Debian"), ("Component: main",)):
        done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", *wanted],
                              capture_output=True, text=True)
        found += [uri for uri in done.stdout.split() if uri not in found]
    return found


def _source(mirror, folder):
    """Fetch the tarball into a folder; returns what apt said if it could not."""
    keyrings = sorted(pathlib.Path(KEYRINGS).glob("debian-archive-keyring.*"))
    signed = f"[signed-by={keyrings[0]}] " if keyrings else ""
    (folder / "sources.list").write_text(f"deb-src {signed}{mirror} {SUITE} main\n")
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    apt = ["apt-get", "-qq", "-o", f"Dir::Etc::SourceList={folder / 'sources.list'}", "-o", "Dir::Etc::SourceParts=-",
           "-o", f"Dir::State={folder / 'state'}", "-o", f"Dir::Cache={folder / 'cache'}",
           "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"]
    for command in (["update"], ["source", "--download-only", "--tar-only", f"micropython={VERSION}"]):
        try:
            done = subprocess.run(apt + command, cwd=folder, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return "the mirror did not answer in 5 minutes"
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["apt-get failed"])[-1]
    return "" if (folder / TARBALL).is_file() else f"{TARBALL} did not arrive"
