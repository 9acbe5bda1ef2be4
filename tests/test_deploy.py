"""Deploying to a board: real MicroPython behind a pseudo-terminal, its littlefs, and every way a copy can go wrong."""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import random
import threading
import time
import tty

import models
import pty_board
import pytest
import serial

from tools import connection, crosscompile, deploy, package, romfs, transfer
from tools.errors import UserError
from tools.torture import _processes as processes

#: A ROMFS partition for the unix port, which has none: `vfs.rom_ioctl` over bytes, of the kind that ESP32 has.
ROM = """
import uctypes
class Rom:
    def __init__(self, size):
        self.data = bytearray(size)
    def __call__(self, op, number=0, at=0, data=0):
        if op == 1: return 1
        if op == 2: return memoryview(self.data)
        if op == 3: self.data[at:at + data] = b"\\xff" * data; return 4
        if op == 4: self.data[at:at + len(data)] = data; return 0
        if op == 6: return 4096
        return 0
sys.modules["vfs"] = Pretend(vfs, rom_ioctl=Rom(600000))
"""
#: The same of the kind that RP2040 and RP2350 have: a block device that is memory too. Bits only go from 1 to 0 but by
#: erasing, and pages of 256 bytes are programmed.
ROM_BLOCKS = """
class Region(bytearray):
    def ioctl(self, op, block):
        if op == 4: return len(self) // 4096
        if op == 5: return 4096
        if op == 6:
            self[block * 4096:block * 4096 + 4096] = b"\\xff" * 4096
            return 0
    def writeblocks(self, block, data, offset=0):
        at = block * 4096 + offset
        if at % 256 or len(data) % 256 or at + len(data) > len(self):
            raise OSError(22)
        for i in range(len(data)):
            self[at + i] &= data[i]
class Rom:
    def __init__(self, size):
        self.region = Region(size)
    def __call__(self, op, number=0, at=0, data=0):
        return {1: 1, 2: self.region}.get(op, -22)
sys.modules["vfs"] = Pretend(vfs, rom_ioctl=Rom(147 * 4096))
"""
#: Version 1.22 by name.
OLD = """
class Old:
    name, version, _machine, _mpy = "micropython", (1, 22, 2, ""), "Old Board with RP2040", 4870
sys.modules["sys"] = Pretend(sys, implementation=Old)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small packed model's path."""
    return models.packed(models.HYBRID, tmp_path_factory.mktemp("model"), "small")[0]


@pytest.fixture
def board(tmp_path, leave_out):
    """Call it for a PtyBoard."""
    if os.name != "posix":
        leave_out("tests behind a pseudo-terminal", "Linux or macOS")
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(contextlib.closing(pty_board.PtyBoard(tmp_path, **options)))


@contextlib.contextmanager
def opened_port(port):
    with connection.Connection(port) as c:
        yield transfer.Transfer(c, c.about())


def opened(board):
    return opened_port(board.port)


def names_and_digests(board, folder="/flash"):
    """{path: SHA-256} of all files on the board, as the board reads them."""
    code = f"""
import os
def scribe_walk(d):
    for name, kind, _, size in os.ilistdir(d):
        p = d.rstrip("/") + "/" + name
        if kind == 0x4000: scribe_walk(p)
        else: print(p, scribe_digest(p))
scribe_walk({folder!r})
"""
    with opened(board) as t:
        return dict(line.split() for line in t._run(code).splitlines())


def run(board, *args):
    """deploy's main in this process; its exit status."""
    return deploy.main(["--port", board.port, *map(str, args)])


def wanted(path):
    return {f"/flash/lib/{name}": hashlib.sha256(data).hexdigest() for name, data in package.sources().items()} | {
        f"/flash/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_deploys_says_what_and_skips_what_is_there(board, model, capsys):
    b = board()
    assert run(b, "--model", model, "--check") == 0
    out = capsys.readouterr().out
    assert "MicroPython 1." in out and "free: " in out and "heap: small.scribe and the code need about" in out
    assert names_and_digests(b) == {}
    assert run(b, "--model", model, "--main") == 0
    main = (package.DEVICE / "main.py").read_bytes()
    assert names_and_digests(b) == wanted(model) | {"/flash/main.py": hashlib.sha256(main).hexdigest()}
    before = b.to_board
    capsys.readouterr()
    assert run(b, "--model", model) == 0
    assert "everything was there already" in capsys.readouterr().out
    assert b.to_board - before < 12000  # the questions, and the receiver
    assert "once" in b.mpremote("exec", "import scribe; scribe.open().tell('once', max_tokens=3)").stdout


def test_puts_less_than_half_of_mpremotes_bytes_on_the_wire(board, tmp_path):
    """And is faster, which `make bench` measures."""
    b = board()
    data = random.Random(0).randbytes(60000) + package.sources()["scribe/tokenizer.py"]
    (tmp_path / "file").write_bytes(data)
    before = b.to_board
    with opened(b) as t:
        t.put("/flash/ours", data)
    ours, before = b.to_board - before, b.to_board
    done = b.mpremote("fs", "cp", str(tmp_path / "file"), ":/flash/theirs")
    assert done.returncode == 0, done.stderr
    names = names_and_digests(b)
    assert names["/flash/ours"] == names["/flash/theirs"]
    assert ours * 2 < b.to_board - before, (ours, b.to_board - before)


def test_every_byte_value_survives_raw_and_as_text(board):
    b = board()
    data = bytes(range(256)) * 8 + b"\x03\x1b\x01\x02" * 2048 + random.Random(1).randbytes(5000) + b"\x03"
    with opened(b) as t:
        for raw in (True, False):
            for compress in (True, False):
                t.raw, t.compress = raw, compress
                t.put(f"/flash/{raw}{compress}", data)
    assert set(names_and_digests(b).values()) == {hashlib.sha256(data).hexdigest()}


def test_compiled_code_takes_the_place_of_source_and_back(board, model):
    b = board()
    assert run(b, "--model", model) == 0
    assert run(b, "--model", model, "--mpy") == 0
    names = set(names_and_digests(b))
    assert {name for name in names if name.endswith(".py")} <= {f"/flash/lib/{n}" for n in package.sources()}
    assert "/flash/lib/scribe/story.mpy" in names and "/flash/lib/scribe/story.py" not in names
    assert "viper" in b.mpremote("exec", "import scribe.kernels as k; print(k.name)").stdout
    assert run(b, "--model", "none") == 0
    assert not any(name.endswith(".mpy") for name in names_and_digests(b))


def copy(port, files):
    """Copy files, {path: bytes}."""
    with opened_port(port) as t:
        for path, data in files.items():
            t.put(path, data)


def running(process, since):
    """Whether a process still runs. `since`: of time.monotonic(), when it began: one that takes five minutes hangs."""
    if time.monotonic() - since > 300:
        processes.kill(process)
        raise AssertionError("the copying process hung")
    return process.is_alive()


def killed_at(line, action, count, after=b""):
    """Kill an action when so many of its bytes (after a text among them) have reached the board; False where it had
    ended before."""
    line.cut_later(after, count)
    process, since = processes.started(action), time.monotonic()
    while not line.cut():
        if not running(process, since):
            line.mend()
            return False
        time.sleep(0.001)
    processes.kill(process)
    line.mend()
    return True


#: What `deploy` sends just before the frames of a file.
FRAMES = f"scribe_take(scribe_sink,{transfer.ROOM})".encode()


def no_half_file(names, right):
    """Nothing lies under a final name but what belongs there."""
    for name, digest in names.items():
        assert name.endswith(".part") or digest == right[name], name


def kill_over_and_over(kills, board, action, right, rng, look):
    """Kill an action at random bytes, look, let it go on; start afresh whenever it is complete."""
    before = board.to_board
    action()
    whole, unfinished = board.to_board - before, 0
    while kills:
        names = names_and_digests(board)
        with opened(board) as t:
            t.remove(*names)
        for _ in range(8):
            if not kills or not killed_at(board, action, rng.randrange(whole)):
                break
            kills -= 1
            seen = look()
            no_half_file(seen, right)
            unfinished += any(name.endswith(".part") for name in seen)
        action()
        assert names_and_digests(board) == right
    assert unfinished > 3  # kills did fall into copies


@pytest.mark.slow
def test_killed_dozens_of_times_a_copy_never_leaves_half_a_file_and_always_completes(board):
    b = board()
    files = {f"/flash/{n}": random.Random(n).randbytes(30000) for n in range(2)}
    right = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    kill_over_and_over(32, b, functools.partial(copy, b.port, files), right, random.Random(5), b.on_flash)


@pytest.mark.ci
def test_the_whole_tool_killed_dozens_of_times(board, model):
    b = board()
    action = functools.partial(deploy.main, ["--port", b.port, "--model", str(model)])
    kill_over_and_over(24, b, action, wanted(model), random.Random(6), lambda: names_and_digests(b))


@pytest.mark.slow
def test_a_board_is_got_out_of_the_middle_of_anything(board):
    data = random.Random(9).randbytes(3 * transfer.CHUNK)
    size = 17 + len(transfer.frame(data[: transfer.CHUNK])[1])
    b = board()
    copying = functools.partial(copy, b.port, {"/flash/m": data})
    for after, count in (*((b"", n) for n in range(1, 8)),  # the first Ctrl-C and Ctrl-A
                         *((b"print('scribe',", n) for n in (1, 15, 16)), (b"def scribe_about", 100),
                         *((b"binascii.a2b_base64('", n) for n in (0, 500, 2000)),
                         *((FRAMES, n) for n in (0, 1, 2, 10, 18, 19, 500, size, size + 1, size + 2, size + 20)),
                         (b"scribe_finish(", 3)):
        assert killed_at(b, copying, count, after), (after, count)
        with opened(b) as t:
            assert t._run("print(6 * 7)") == "42"
            t.remove("/flash/m", "/flash/m.part")
    copying()
    assert names_and_digests(b) == {"/flash/m": hashlib.sha256(data).hexdigest()}


@pytest.mark.slow
def test_power_cuts_on_the_board_at_random_writes(board):
    """Each in the middle of a write to the flash: what the board was programming is half there."""
    b, rng = board(), random.Random(7)
    data = random.Random(8).randbytes(150000)
    right = {"/flash/m": hashlib.sha256(data).hexdigest()}
    copying = functools.partial(copy, b.port, {"/flash/m": data})
    copying()
    with opened(b) as t:
        writes = int(t._run("import flash\nprint(flash.written)"))
        t.remove("/flash/m")
    assert writes > 200
    resumed = 0
    for _ in range(16):
        b.unplug()
        b.plug(writes=rng.randrange(1, writes))
        process, since = processes.started(copying), time.monotonic()
        while not b.dark and running(process, since):
            time.sleep(0.001)
        if not b.dark:  # there was less to copy
            with opened(b) as t:
                t.remove("/flash/m")
            continue
        b.unplug()
        processes.kill(process)
        b.plug()
        names = b.on_flash()
        no_half_file(names, right)
        resumed += "/flash/m.part" in names
    b.unplug()
    b.plug()
    copying()
    assert names_and_digests(b) == right and resumed > 3


def test_goes_on_where_it_stopped(board):
    b = board()
    data = random.Random(2).randbytes(150000)
    stop = RuntimeError("cable pulled")

    def progress(at):
        if at >= 100000:
            raise stop

    with pytest.raises(RuntimeError):
        with opened(b) as t:
            t.put("/flash/m", data, progress)
    before = b.to_board
    with opened(b) as t:
        assert t.look("/flash/m", data)[1] >= 100000 - transfer.CHUNK
        t.put("/flash/m", data)
        assert t.look("/flash/m", data)[0]
    assert b.to_board - before < 60000 + 12000
    # what was begun of another version is not gone on with
    other = bytes(len(data))
    with pytest.raises(RuntimeError):
        with opened(b) as t:
            t.put("/flash/m", other, progress)
    with opened(b) as t:
        t.put("/flash/m", data[::-1])
        assert t.look("/flash/m", data[::-1])[0]


def test_a_noisy_line_and_lost_bytes(board, monkeypatch):
    b = board()
    data = random.Random(3).randbytes(60000)
    b.garble = 0.0001  # about every fifth frame
    monkeypatch.setattr(transfer, "ANSWER", 1)
    with opened(b) as t:
        t.put("/flash/noisy", data)
        b.garble = 0
        for lost in (1, 500):
            b.drop = lost
            t.put(f"/flash/lost{lost}", data)
    assert set(names_and_digests(b).values()) == {hashlib.sha256(data).hexdigest()}


def test_full_file_system(board, model, capsys):
    b = board(blocks=40)
    assert run(b, "--model", model) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "of flash are needed" in error
    assert names_and_digests(b) == {}
    # it fills up in the middle: someone else writes too, or it said it had more
    with opened(b) as t:
        with pytest.raises(UserError, match="file system is full, so nothing was kept"):
            t.put("/flash/big", random.Random(4).randbytes(300000))
        t.put("/flash/small", b"fits")
    assert set(names_and_digests(b)) == {"/flash/small"}


def test_no_room_for_two_versions(board, tmp_path, capsys):
    first = models.packed(models.HYBRID, tmp_path, "same", seed=1)[0].read_bytes()
    path = models.packed(models.HYBRID, tmp_path, "same", seed=2)[0]
    code = sum(-(-len(data) // 4096) for data in package.sources().values())
    b = board(blocks=code + len(first) // 4096 + 20)
    assert run(b, "--model", "none") == 0
    with opened(b) as t:
        t.put("/flash/same.scribe", first)
    assert run(b, "--model", path) == 0
    assert "the old one goes first" in capsys.readouterr().out
    assert names_and_digests(b) == wanted(path)


def test_heap_too_small(board, model, capsys):
    b = board(heap="180k")
    assert run(b, "--model", model) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "small.scribe needs about" in error and "--force" in error
    b = board(heap="310k")
    assert run(b, "--model", model) in (0, 2)  # may compile or not; either way a line, never a traceback


def test_old_micropython_is_refused_by_name(board, model, capsys):
    assert run(board(pretend=OLD), "--model", model) == 2
    assert capsys.readouterr().err == (
        "error: MicroPython 1.22.2 on Old Board with RP2040 is too old; 1.24 or newer is needed: flash it first "
        "(docs/boards.md)\n")


def test_another_python_is_refused():
    about = connection.About("circuitpython", (9, 2, 0), "x", 0, "x", [], True, True, "/", 0, 0, None, 0)
    with pytest.raises(UserError, match="runs circuitpython, not MicroPython"):
        about.check()


def test_wrong_ports(tmp_path, capsys, monkeypatch):
    assert deploy.main(["--port", "/dev/ttyNONE", "--model", "none"]) == 2
    assert "no port /dev/ttyNONE; ports that may be boards:" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert deploy.main(["--port", str(tmp_path / "file"), "--model", "none"]) == 2
    assert "is not a serial port" in capsys.readouterr().err
    monkeypatch.setattr(connection, "candidates", lambda: [("/dev/ttyACM0", "A"), ("/dev/ttyACM1", "B")])
    assert deploy.main(["--model", "none"]) == 2
    assert "2 boards found, so name one with PORT=...: /dev/ttyACM0 (A); /dev/ttyACM1 (B)" in capsys.readouterr().err
    monkeypatch.setattr(connection, "candidates", lambda: [])
    assert deploy.main(["--model", "none"]) == 2
    assert "no board found on USB" in capsys.readouterr().err


def test_a_board_that_does_not_answer(capsys, monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE", 3)
    with contextlib.closing(pty_board.Line()) as line:
        assert run(line, "--model", "none") == 2
    error = capsys.readouterr()
    assert error.err.count("\n") == 1 and "no MicroPython prompt" in error.err and not error.out


def test_a_running_program_is_stopped(board):
    """One that someone typed, and so one that Ctrl-C interrupts."""
    b = board(interrupts=True)
    with serial.Serial(b.port, timeout=1) as typing:
        for _ in range(60):  # what comes just before the prompt takes keys is lost
            typing.write(b"print('run' + 'ning'); exec('while True: pass')\r")
            if typing.read_until(b"running").endswith(b"running"):
                break
    assert run(b, "--model", "none", "--check") == 0


def test_a_program_that_reads_is_stopped(board):
    b = board()
    c = connection.Connection(b.port)
    c.enter()
    c.transport.exec_raw_no_follow("import sys\nprint('read' + 'ing')\nwhile sys.stdin.buffer.read(4000): 1 / 0")
    assert c.transport.read_until(1, b"reading").endswith(b"reading")
    c.serial.close()
    assert run(b, "--model", "none", "--check") == 0


def test_a_program_that_never_stops_talking(board, capsys, monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE", 3)
    b = board()
    c = connection.Connection(b.port)
    c.enter()
    c.transport.exec_raw_no_follow("while True: print('chatter')")
    c.serial.close()
    assert run(b, "--model", "none", "--check") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no MicroPython prompt" in error and "chatter" in error


def test_answers_to_what_a_killed_tool_asked_are_not_taken_for_ours(board):
    """All that it had sent is still on its way when the next comes: the board enters its raw REPL more than once."""
    b = board()
    b.carrying.acquire()
    for _ in range(3):
        with open(b.port, "wb", buffering=0) as killed:
            killed.write(b"\r\x03\r\x01print('stale')\x04\r\x03\r\x01")
    threading.Timer(0.2, b.carrying.release).start()  # late or soon, the answer must be the same
    with connection.Connection(b.port) as c:
        assert c.run("print(6 * 7)") == "42"


def test_romfs_images_align_models(micropython, tmp_path):
    files = {"a.scribe": bytes(1000), "long-name.scribe": b"\x01" * 77, "lib/scribe/x.py": b"pass", "lib/y.py": b""}
    (tmp_path / "image").write_bytes(romfs.build(files, 2048))
    assert (tmp_path / "image").stat().st_size % 2048 == 0
    code = f"""
import vfs, os, uctypes
image = open({str(tmp_path / 'image')!r}, "rb").read()
vfs.mount(vfs.VfsRom(image), "/rom")
for name in ("a.scribe", "long-name.scribe"):
    with open("/rom/" + name, "rb") as f:
        view = memoryview(f)
        print((uctypes.addressof(view) - uctypes.addressof(image)) % 64, len(view))
print(open("/rom/lib/scribe/x.py").read(), sorted(os.listdir("/rom")), os.listdir("/rom/lib"))
"""
    assert micropython(code).stdout.split("\n")[:3] == [
        "0 1000", "0 77", "pass ['a.scribe', 'lib', 'long-name.scribe'] ['scribe', 'y.py']"]


@pytest.mark.parametrize("rom", [ROM, ROM_BLOCKS], ids=["memory", "blocks"])
def test_deploys_to_a_romfs_partition(board, model, capsys, rom):
    b = board(pretend=rom)
    assert run(b, "--model", model, "--romfs") == 0
    assert run(b, "--model", model, "--romfs") == 0
    assert "everything was there already" in capsys.readouterr().out
    said = b.mpremote("exec", "import sys, vfs; vfs.mount(vfs.VfsRom(vfs.rom_ioctl(2, 0)), '/rom'); "
                      "sys.path.append('/rom/lib'); import scribe; s = scribe.open('/rom/small.scribe'); "
                      "print(s.stats()['ram']['brain'], len(s.write('once', max_tokens=3, seed=1)) > 3)").stdout
    assert said.split() == ["0", "True"]  # in place: no copy of the brain


def test_romfs_where_there_is_none(board, model, capsys):
    assert run(board(), "--model", model, "--romfs") == 2
    assert "no ROMFS partition" in capsys.readouterr().err


def test_main_of_someone_else_stays(board, capsys):
    b = board()
    with opened(b) as t:
        t.put("/flash/main.py", b"print('mine')\n")
    assert run(b, "--model", "none", "--main") == 2
    assert "another /flash/main.py" in capsys.readouterr().err
    assert run(b, "--model", "none", "--main", "--force") == 0


def test_mpy_is_refused_where_it_would_not_load():
    with pytest.raises(UserError, match="can't load .mpy"):
        crosscompile.processor(0)
    with pytest.raises(UserError, match="version 6.1"):
        crosscompile.processor(6 | 1 << 8 | 5 << 10)
    files, left = crosscompile.compiled(
        {"a.py": b"x = 1\n", "b.py": b"import micropython\n@micropython.viper\ndef f(): pass\n"}, 6 | 3 << 8)
    assert set(files) == {"a.mpy", "b.py"} and left == ["b.py"]  # no emitter: the board gets the source


def test_package_json_lists_the_package():
    assert json.loads(package.FILE.read_text()) == package.listing(), "run: python -m tools.package"


@pytest.mark.parametrize("served", [False, True])
def test_mip_installs_the_package(board, served):
    b = board()
    if not served:
        done = b.mpremote("mip", "install", "device/package.json")
    else:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=package.DEVICE)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = b.mpremote("mip", "install", f"http://127.0.0.1:{server.server_port}/package.json")
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert names_and_digests(b) == {
        f"/flash/lib/{name}": hashlib.sha256(data).hexdigest() for name, data in package.sources().items()}


@contextlib.contextmanager
def firmware(leave_out, heap=1 << 20):
    """A Line to a Cortex-M3 with MicroPython's own firmware and an empty littlefs at /flash, under QEMU."""
    from tools import boards
    from tools.firmware import images

    with contextlib.ExitStack() as stack:
        try:
            image = images.littlefs({"there": b"1"}, free=1 << 20)
            emulated = stack.enter_context(boards.Board("m3", heap, image, "littlefs"))
        except (UserError, FileNotFoundError) as error:
            leave_out("tests on board firmware", str(error))
        emulated.connect()
        emulated.run("import os\nos.chdir('/flash')")
        emulated.disconnect()
        end = os.open(emulated.port, os.O_RDWR | os.O_NOCTTY)
        stack.callback(os.close, end)
        tty.setraw(end)
        yield stack.enter_context(contextlib.closing(pty_board.Line(end)))


@pytest.mark.ci
@pytest.mark.slow
def test_firmware_is_got_out_of_a_transfer_that_was_killed(leave_out, tmp_path):
    """This firmware makes no interrupt of Ctrl-C, so the receiver has to see it among the bytes of a frame."""
    data = random.Random(0).randbytes(9000)
    right = hashlib.sha256(data).hexdigest()
    (tmp_path / "file").write_bytes(data)
    with firmware(leave_out) as line:
        copying = functools.partial(copy, line.port, {"/flash/m": data})
        before = line.to_board
        copying()
        ours, before = line.to_board - before, line.to_board
        done = line.mpremote("fs", "cp", str(tmp_path / "file"), ":/flash/theirs")
        assert done.returncode == 0, done.stderr
        theirs = line.to_board - before
        for after, count in ((b"binascii.a2b_base64('", 900), (FRAMES, 12), (FRAMES, 6000)):
            with opened(line) as t:
                t.remove("/flash/m", "/flash/m.part")
            assert killed_at(line, copying, count, after)
            names = names_and_digests(line)
            no_half_file(names, {"/flash/there": names["/flash/there"], "/flash/theirs": right, "/flash/m": right})
        copying()
        names = names_and_digests(line)
        assert names["/flash/m"] == names["/flash/theirs"] == right
        print(f"\n{len(data)} bytes: {ours} on the wire; mpremote fs cp {theirs}")


@pytest.mark.ci
@pytest.mark.slow
def test_firmware_takes_code_and_model_in_its_romfs_partition(leave_out, model):
    with firmware(leave_out) as line:
        done = line.deploy("--model", str(model), "--romfs", "--no-reset")
        assert done.returncode == 0, done.stderr
        print("\n" + done.stdout)
        said = line.mpremote("soft-reset", "exec", "import sys, scribe; s = scribe.open(); print(s.name, "
                             "s.stats()['ram']['brain'], len(s.write('once', max_tokens=3, seed=1)) > 3)").stdout
        assert said.split()[-3:] == ["/rom/small.scribe", "0", "True"]
