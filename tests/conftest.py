"""What every test may use: real MicroPython, the folder of shared inputs, and a way to be left out aloud.

A test that cannot run here is left out with `leave_out(what, how)`, never with a bare skip: the last lines of a run
say what was left out and how to have it, and with CI set a skip that was not declared this way is a failure.
"""

import collections
import importlib.util
import os
import pathlib
import socket

import pytest

from tools import micropython as mp
from tools.errors import UserError

CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
DECLARED = "left out: "
#: marker: (is it there?, what is left out, how to have it)
NEEDS = {
    "training": (lambda config: importlib.util.find_spec("torch") is not None,
                 "training tests", "make train ARGS=--help"),
    "ci": (lambda config: CI or "ci" in config.option.markexpr.split(), "tests that need root or minutes",
           "CI=true make test, or: make test ARGS='-m ci'"),
}

_left_out = collections.Counter()


def _reason(what, how):
    return f"{DECLARED}{what} ({how})"


@pytest.fixture(scope="session")
def leave_out():
    """Call it to leave the running test out: what it is one of, and how to have it."""

    def leave(what, how):
        pytest.skip(_reason(what, how))

    return leave


@pytest.fixture(scope="session")
def micropython(leave_out):
    """Run code (a string) or a script (a Path) in real MicroPython: see tools.micropython.run.

    Returns a CompletedProcess. Unless `check=False`, a bad end fails the test with the whole MicroPython traceback.
    """
    try:
        mp.micropython()
    except UserError as error:
        if CI:
            pytest.fail(str(error))
        leave_out("tests in MicroPython", "make setup")

    def run(script_or_code, *args, check=True, **options):
        try:
            return mp.run(script_or_code, *args, check=check, **{"timeout": 900, **options})
        except mp.MicroPythonError as error:
            pytest.fail(f"{error}\n{error.traceback}")

    return run


def _local(address):
    """Whether an address that a socket is to connect to is on this machine."""
    return not isinstance(address, tuple) or str(address[0]) in ("localhost", "::1", "") or str(
        address[0]).startswith("127.")


@pytest.fixture(scope="session", autouse=True)
def offline():
    """No test opens a connection to another machine, nor asks for another's name."""
    patch = pytest.MonkeyPatch()
    look_up = socket.getaddrinfo

    def refuse(address):
        raise OSError(f"tests open no connection to {address}")

    class Local(socket.socket):
        def connect(self, address):
            return super().connect(address) if _local(address) else refuse(address)

        def connect_ex(self, address):
            return super().connect_ex(address) if _local(address) else refuse(address)

    patch.setattr(socket, "socket", Local)
    patch.setattr(socket, "getaddrinfo",
                  lambda host, *rest, **more: look_up(host, *rest, **more) if _local((host,)) or host is None
                  else refuse(host))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def shared():
    """Path of the folder `shared` beside the repository (text and checkpoints too large for it), or None."""
    path = pathlib.Path(mp.ROOT).parent / "shared"
    return path if path.is_dir() else None


@pytest.fixture(scope="session")
def firmware_built(leave_out):
    """The boards' firmware, built once; where that can't be, its tests are left out aloud, and under CI they fail."""
    from tools import firmware
    from tools.firmware import build

    try:
        build.build(firmware.targets(), said=lambda line: None)
        lacks = firmware.lacking(firmware.targets(), build=False)
    except UserError as error:
        lacks = str(error)
    if lacks and CI:
        pytest.fail(lacks)
    if lacks:
        leave_out("tests on board firmware", f"{lacks}; then: make board-test")


@pytest.fixture
def plots(leave_out):
    if importlib.util.find_spec("matplotlib") is None:
        leave_out("tests that draw", "pip install -r requirements-plots.txt, or: make rehearse")


def pytest_collection_modifyitems(config, items):
    for name, (present, what, how) in NEEDS.items():
        if not present(config):
            for item in items:
                if item.get_closest_marker(name):
                    item.add_marker(pytest.mark.skip(reason=_reason(what, how)))


def _judge(report):
    """Count a declared skip; under CI, make any other one a failure."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if reason.startswith(DECLARED):
        _left_out[reason.removeprefix(DECLARED)] += 1
    elif CI:
        report.outcome = "failed"
        report.longrepr = f"skipped without being declared (see tests/conftest.py): {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _judge((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _judge((yield))


def pytest_terminal_summary(terminalreporter):
    for reason, count in sorted(_left_out.items()):
        terminalreporter.write_line(f"{DECLARED}{count} x {reason}")
