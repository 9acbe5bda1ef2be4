"""The board's code against MicroPython's stubs of two ports; and that a mistake would be found."""

import shutil

import pytest

from tools import typecheck
from tools.errors import UserError
from tools.micropython import ROOT

pytestmark = pytest.mark.ci
DEVICE = ROOT / "device"
#: file: (what it says, what it would say with a mistake in it, what mypy says then)
MISTAKES = {
    "library.py": ("gc.collect()", "gc.colect()", 'Module has no attribute "colect"'),
    "story.py": ("ticks_diff(ticks_ms(), began)", "ticks_diff(ticks_ms())", "No overload variant"),
    "model.py": ('Library(file, len(config["recipe"]), check)', "Library(file)",
                 'Missing positional argument "layers"'),
    "recurrence.py": ("k.conv(u, u, tail, buf, self._conv)", "k.conv(u, u, tail, buf)",
                      'Missing positional argument "p"'),
    "bookmark.py": ("import struct\n", "import struct\nimport mmap\n", "stub for module named"),  # not on boards
    "sampler.py": ("k.argmax(", "k.argmaxx(", 'Module has no attribute "argmaxx"'),
    "viper_kernels.py": ("ptr32(int(x) + 8)", "ptr32(int(xx) + 8)", 'Name "xx" is not defined'),
    "thumb_kernels.py": ("ptr32(_job)", "ptr32(_jobb)", 'Name "_jobb" is not defined'),
}


@pytest.fixture(scope="module", autouse=True)
def installed(leave_out):
    from conftest import CI

    try:
        return typecheck.installed()
    except UserError as error:
        if CI:
            pytest.fail(str(error))
        leave_out("type checks", f"{error}; then: make types")


@pytest.mark.parametrize("port", typecheck.PORTS)
def test_types(port):
    assert not typecheck.check(port)


def test_mistakes_are_found(tmp_path):
    shutil.copytree(DEVICE, tmp_path, dirs_exist_ok=True)
    for name, (old, new, _) in MISTAKES.items():
        path = tmp_path / "scribe" / name
        text = path.read_text()
        assert old in text, name
        path.write_text(text.replace(old, new))
    said = typecheck.check("rp2", tmp_path)
    for name, (*_, expected) in MISTAKES.items():
        assert any(line.startswith(f"scribe/{name}:") and expected in line for line in said), (name, said)


def test_another_ports_module_is_found(tmp_path):
    """A module of one port only is a mistake on the other."""
    shutil.copytree(DEVICE, tmp_path, dirs_exist_ok=True)
    with open(tmp_path / "scribe" / "library.py", "a") as f:
        f.write("\nimport esp32\n")
    assert not typecheck.check("esp32", tmp_path)
    said, = typecheck.check("rp2", tmp_path)[:1]
    assert "scribe/library.py" in said and '"esp32"' in said
