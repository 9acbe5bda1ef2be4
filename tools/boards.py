"""Real 32-bit MicroPython firmware under QEMU: build it, start it, run the board's code on it.

    python -m tools.boards packages         # Debian's packages that building and running takes
    python -m tools.boards build            # everything; or name some: m3 m4 rv32 m0
    python -m tools.boards repl m3 [MODEL]  # a serial port to connect to with mpremote
    python -m tools.boards count MODEL      # instructions a token and a multiply-accumulate

docs/firmware.md says what is built, and from what.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

from tools.errors import Parser, UserError, command
from tools.firmware import HEAP_MAX, IMAGE_AT, TARGETS, images, lacking, packages, targets
from tools.firmware import build as firmware_build
from tools.micropython import ROOT

ON_BOARD = ROOT / "tools" / "on_device"
#: An emulated board never sleeps: it ends when whoever started it closes the pipe, or dies and so closes it.
GUARD = 'exec 3<&0; "$@" 3<&- & exec >&- 2>&-; read -r _ <&3; kill $! 2>/dev/null; wait'
COUNTING = ("-icount", "shift=6,align=off,sleep=off")  # a virtual clock that moves 2^6 ns with each instruction
PER_MICROSECOND = 1000 / 64

#: What a board runs first, by the kind of its file system's image.
MOUNT = {
    "romfs": "import sys",  # the firmware mounts that itself, as any with a ROMFS partition does
    "littlefs": """
import sys, uctypes, vfs
{ramdisk}
vfs.mount(vfs.VfsLfs2(Disk(uctypes.bytearray_at({at}, {size}))), "/flash")
sys.path.append("/flash")
""",
}


class Board:
    """A board that is running. Use it in a `with`; `run(code)` returns what the code printed.

    target: a name in TARGETS, or a Target.

    heap: bytes, as that board's firmware would give. image: a file system's bytes, of the kind `romfs` (at /rom) or
    `littlefs` (at /flash), in the board's memory from the start, as on flash. counting: time is instructions.
    """

    def __init__(self, target, heap, image=b"", kind="romfs", counting=False):
        self.target = TARGETS[target] if isinstance(target, str) else target
        self.heap = heap
        if not 4096 <= heap <= HEAP_MAX:
            raise UserError(f"heap of {heap} bytes: an emulated board has 4096 to {HEAP_MAX}")
        self._image, self._kind, self._counting = image, kind, counting
        self._process = self._serial = None

    def __enter__(self):
        elf = firmware_build.firmware(self.target)
        lacks = lacking([self.target], build=False)
        if lacks or not elf.is_file():
            raise UserError(lacks or f"the firmware for {self.target.name} is not built; run: make boards")
        self._folder = tempfile.TemporaryDirectory()
        base = self.target.base
        devices = ["-device", f"loader,addr={base:#x},data={self.heap:#x},data-len=4"]
        if self._image:
            path = pathlib.Path(self._folder.name) / "image"
            path.write_bytes(self._image)
            devices += ["-device", f"loader,file={path},addr={base + IMAGE_AT:#x},force-raw=on"]
        self._process = subprocess.Popen(
            ["sh", "-c", GUARD, "sh", *self.target.qemu, "-nographic", "-monitor", "null", "-semihosting",
             "-serial", "pty", *(COUNTING if self._counting else ()), *devices, "-kernel", str(elf)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            self.port = self._find_port()
            return self
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self._serial:
            self._serial.serial.close()
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def _find_port(self):
        said = ""
        for line in self._process.stdout:
            said += line
            found = re.search(r"redirected to (\S+)", line)
            if found:
                return found[1]
        raise UserError(f"{self.target.qemu[0]} did not start: {said.strip().splitlines()[-1] if said else 'silently'}")

    def connect(self):
        """Open the serial port as mpremote does, and mount the image."""
        from mpremote.transport import TransportError
        from mpremote.transport_serial import SerialTransport

        for attempt in range(10):
            try:
                self._serial = SerialTransport(self.port, timeout=5)
                self._serial.enter_raw_repl(soft_reset=False)
                break
            except TransportError as error:
                if self._serial:
                    self._serial.serial.close()
                if attempt == 9:
                    raise UserError(f"{self.target.name} does not answer: {error}") from None
                time.sleep(1)
        if self._image:
            self.run(self.mounting())

    def disconnect(self):
        """Leave the serial port to someone else; the board stays as it is."""
        self._serial.serial.close()
        self._serial = None

    def mounting(self):
        """The code that mounts the image."""
        return MOUNT[self._kind].format(at=self.target.base + IMAGE_AT, size=len(self._image),
                                        ramdisk=(ON_BOARD / "ramdisk.py").read_text())

    def run(self, code, silence=600):
        """Run code; what it printed. Raises BoardError for an exception, UserError after `silence` seconds of it."""
        from mpremote.transport import TransportError

        if self._serial is None:
            self.connect()
        pieces = bytearray()
        try:
            # with a consumer, mpremote does not copy all that came before for every byte that comes
            self._serial.exec_raw_no_follow(code)
            _, error = self._serial.follow(silence, pieces.extend)
        except TransportError as error:
            raise UserError(f"{self.target.name}: {error}; the last it said: {bytes(pieces[-200:])!r}") from None
        if error:
            raise BoardError(self.target.name, error.decode(errors="replace").replace("\r", ""))
        return bytes(pieces).removesuffix(b"\x04").decode(errors="replace").replace("\r", "")


class BoardError(UserError):
    """Code on a board ended with an exception; `traceback` is all that it said."""

    def __init__(self, name, traceback):
        super().__init__(f"{name}: {traceback.strip().splitlines()[-1]}")
        self.traceback = traceback


def files(*models, march=None, mpy_cross=None, **more):
    """{name: bytes} for an image: the package, what the board runs, and packed models."""
    found = {**images.package(march, mpy_cross), "board.py": (ON_BOARD / "board.py").read_bytes(), **more}
    return {**found, **{pathlib.Path(path).name: pathlib.Path(path).read_bytes() for path in models}}


def count_checks(target, model, heap=HEAP_MAX, tokens=(0, 1, 2)):
    """{check: instructions of the last of these tokens} for each time at which experts' bytes may be checked. The text
    is read twice, so that "first" has nothing left to check."""
    with Board(target, heap, images.romfs(files(model)), counting=True) as board:
        found = {}
        for check in ("never", "first", "always"):
            board.run(f"import board, scribe, gc\ns = None\ngc.collect()\n"
                      f"s = scribe.open('/rom/{pathlib.Path(model).name}', 0, {check!r})")
            lines = board.run(f"board.time_tokens(s, {list(tokens) * 2})").split()
            found[check] = round(int(lines[-1]) * PER_MICROSECOND)
        return found


def count(target, model, heap=HEAP_MAX, tokens=(0, 1, 2)):
    """(instructions a token, {bits: instructions a multiply-accumulate}, the kernels' name) of a packed model in
    ROMFS."""
    with Board(target, heap, images.romfs(files(model)), counting=True) as board:
        board.run(f"import board, scribe\ns = scribe.open('/rom/{pathlib.Path(model).name}')")
        steps = [int(line) for line in board.run(f"board.time_tokens(s, {list(tokens)})").split()]
        slopes = {}
        for bits in (8, 4):
            # what 64 rows more cost, so that the packing of the input is left out
            short, long = (int(board.run(f"board.time_matrix({bits}, {cols}, 72)"))
                           - int(board.run(f"board.time_matrix({bits}, {cols}, 8)")) for cols in (512, 1536))
            slopes[bits] = (long - short) * PER_MICROSECOND / (64 * 1024)
        name = board.run("from scribe import kernels\nprint(kernels.name)").strip()
        return [round(us * PER_MICROSECOND) for us in steps], slopes, name


def _repl(args):
    image = images.romfs(files(*args.models))
    with Board(args.board, args.heap, image) as board:
        print(f"{args.board} ({board.target.processor}) at {board.port}; in another terminal:")
        print(f"  mpremote connect {board.port}")
        print("Ctrl-C ends it.", flush=True)
        board._process.wait()


def _count(args):
    from tools.fileformat import Packed
    from tools.parity import held_out

    ids = [int(t) for t in held_out(Packed.load(args.model), args.tokens)]
    for target in targets(args.boards):
        steps, slopes, name = count(target.name, args.model, tokens=ids)
        last = steps[-1]
        print(f"{target.name} ({target.processor}, {name}): {args.model.stem}: {sum(steps) // len(steps):,} "
              f"instructions a token over the first {len(steps)}, {last:,} for the last; "
              + ", ".join(f"matvec{bits} {n:.2f} an MAC" for bits, n in slopes.items()), flush=True)


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.boards", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("packages", help="list Debian's packages that building and running takes")
    sub = commands.add_parser("build", help="build the firmware that is not built yet")
    sub.add_argument("boards", nargs="*", metavar="BOARD", help=f"of {', '.join(TARGETS)} (default: all)")
    sub = commands.add_parser("repl", help="start a board for mpremote to connect to")
    sub.add_argument("board", metavar="BOARD", choices=list(TARGETS), help=f"of {', '.join(TARGETS)}")
    sub.add_argument("models", nargs="*", type=pathlib.Path, metavar="MODEL", help="packed models for its ROMFS")
    sub.add_argument("--heap", type=int, default=409600, help="bytes (default %(default)s)")
    sub = commands.add_parser("count", help="count instructions a token, and a multiply-accumulate")
    sub.add_argument("model", type=pathlib.Path, metavar="MODEL")
    sub.add_argument("boards", nargs="*", metavar="BOARD", help=f"of {', '.join(TARGETS)} (default: all)")
    sub.add_argument("--tokens", type=int, default=16, help="of held-out text (default %(default)s)")
    args = parser.parse_args(argv)
    for path in [*getattr(args, "models", ()), *([args.model] if hasattr(args, "model") else ())]:
        if not path.is_file():
            raise UserError(f"{path}: no such file")
    if args.command == "packages":
        print(*packages(TARGETS.values()))
    elif args.command == "build":
        firmware_build.build(targets(args.boards), said=lambda line: print(line, flush=True))
        for target in targets(args.boards):
            print(f"{target.name}: {firmware_build.firmware(target)}")
    else:
        {"repl": _repl, "count": _count}[args.command](args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
