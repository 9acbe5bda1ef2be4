"""Copy Scribe and a model to a board, over USB or any serial port.

Says first what the board is and whether everything fits. What is there already is not sent again; a copy that was cut
off goes on where it stopped; every file is checked on the board before it gets its name.
"""

import contextlib
import sys
import time

import tqdm

from tools import budget, crosscompile, package, romfs
from tools.connection import Connection, candidates, find_port, kilobytes
from tools.errors import Parser, UserError, command
from tools.story import find_model
from tools.transfer import CHUNK, Transfer

SPARE_BLOCKS = 4  # what a file system needs for its own books
RESETS_BY_PORT = ("linux", "darwin", "win32")  # MicroPython on a computer ends where a board restarts


def parser():
    p = Parser(prog="python -m tools.deploy", description=__doc__.splitlines()[0])
    p.add_argument("--port", help="serial port, such as /dev/ttyACM0 or COM3 (default: the only board there is)")
    p.add_argument("--model", default="tales", help="name of a model in weights/, or a path; none: only the code")
    p.add_argument("--to", metavar="FOLDER", help="folder on the board for the model, such as /sd (default: its root)")
    p.add_argument("--mpy", action="store_true", help="compile the code for this board first: less heap, quicker start")
    p.add_argument("--romfs", action="store_true", help="code and model into the ROMFS partition, used without copying")
    p.add_argument("--main", action="store_true", help="copy main.py too: the board asks for openings at power-on")
    p.add_argument("--check", action="store_true", help="only say what the board is and whether it fits")
    p.add_argument("--force", action="store_true", help="copy even if it does not fit, and replace another main.py")
    p.add_argument("--no-reset", action="store_true", help="do not restart MicroPython first (keeps what is mounted)")
    p.add_argument("--list", action="store_true", help="list the ports that may be boards")
    return p


def heap_needed(path, code="py", mapped=False):
    """Bytes of heap that a packed model and the package take on a board, about; `mapped`: both in ROMFS, in place."""
    model = budget.from_packed(path)
    lines = {line.part: line.bytes for line in budget.ram_lines(model, code)}
    if mapped:
        lines = {part: size for part, size in lines.items() if part not in ("brain", "library", "tokenizer", "tables")}
        lines["code"] = budget.CODE_ROMFS
    return sum(lines.values())


class Bar:
    """One progress bar over all that is sent; nothing where standard error is not a terminal."""

    def __init__(self, total):
        self._bar = tqdm.tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, disable=None, leave=False)
        self._before = 0

    def file(self, name):
        self._bar.set_description(name)
        self._before = 0

    def __call__(self, at):
        self._bar.update(at - self._before)
        self._before = at

    def close(self):
        self._bar.close()


class Plan:
    """What goes where on a board's file system: {path: bytes}, in the order of copying; the model comes last."""

    def __init__(self, about, transfer, files):
        self.about, self.transfer, self.files = about, transfer, files
        self.looked = {path: transfer.look(path, data) for path, data in files.items()}
        self.missing = [path for path in files if not self.looked[path][0]]

    def room(self):
        """Bytes of flash that copying takes, beside what is there."""
        block = self.about.block or 1
        rounded = sum(-(-len(self.files[path]) // block) * block - self.looked[path][1] // block * block
                      for path in self.missing)
        return rounded + (SPARE_BLOCKS * block if self.missing else 0)

    def fits(self):
        return self.room() <= self.about.flash

    def replaced(self):
        """The file whose old version has to go before the new one is copied, if that makes room; else None."""
        for path in self.missing:
            old = self.transfer.size(path)
            if old > 0 and self.room() <= self.about.flash + old:
                return path
        return None

    def copy(self, bar):
        for path in self.missing:
            bar.file(path.rsplit("/", 1)[-1])
            self.transfer.folder(path.rpartition("/")[0])
            self.transfer.put(path, self.files[path], bar, self.looked[path])
        self.transfer.remove(*(twin for path in self.files for twin in _twins(path)))


def _twins(path):
    """The same module compiled, or not: only one of them may be there."""
    stem, _, suffix = path.rpartition(".")
    return [f"{stem}.{'py' if suffix == 'mpy' else 'mpy'}"] if "/scribe/" in path and suffix in ("py", "mpy") else []


def code_for(about, mpy):
    """{name: bytes} of the package for a board, and a note or ""."""
    sources = package.sources()
    if not mpy:
        return sources, ""
    files, left = crosscompile.compiled(sources, about.mpy)
    return files, f"left as .py, no emitter for them: {', '.join(left)}" if left else ""


def refuse(force, message):
    if not force:
        raise UserError(message)
    print(f"note: {message}")


def check_heap(args, about, path):
    """Say what the model needs; raise UserError where the heap is too small for it, or for compiling the package."""
    code = "mpy" if args.mpy or args.romfs else "py"
    needed = heap_needed(path, code, args.romfs)
    print(f"heap: {path.name} and the code need about {kilobytes(needed)}, {kilobytes(about.heap)} are free")
    if needed > about.heap:
        refuse(args.force, f"{path.name} needs about {kilobytes(needed)} of heap, the board has "
                           f"{kilobytes(about.heap)}; choose a smaller model or a board with PSRAM "
                           "(docs/boards.md), or try it with --force")
    elif budget.CODE[code].peak > about.heap and not args.romfs:
        refuse(args.force, f"compiling the code takes {kilobytes(budget.CODE[code].peak)} of heap for a moment, the "
                           f"board has {kilobytes(about.heap)}" + ("" if args.mpy else "; deploy with --mpy"))


def to_files(args, connection, about, path):
    """Deploy to the board's file system; returns bytes copied."""
    if about.root is None:
        raise UserError("the board has no file system to copy to; flash a firmware that has one (docs/boards.md)")
    code, note = code_for(about, args.mpy)
    if note:
        print(note)
    library = about.library()
    files = {f"{library}/{name}": data for name, data in code.items()}
    if args.main:
        files[f"{about.root.rstrip('/')}/main.py"] = (package.DEVICE / "main.py").read_bytes()
    if path:
        files[f"{(args.to or about.root).rstrip('/')}/{path.name}"] = path.read_bytes()
    transfer = Transfer(connection, about)
    plan = Plan(about, transfer, files)
    main = next((name for name in plan.missing if name.endswith("/main.py")), None)
    if main and transfer.size(main) >= 0:
        refuse(args.force, f"the board has another {main}; deploy without --main, or replace it with --force")
    print(f"flash: {len(plan.missing)} of {len(files)} files to copy, {kilobytes(plan.room())} needed, "
          f"{kilobytes(about.flash)} free")
    old = None
    if not plan.fits() and not args.to:
        old = plan.replaced()
        if old is None:
            refuse(args.force, f"{kilobytes(plan.room())} of flash are needed, {kilobytes(about.flash)} are free; "
                               "remove what you do not need (mpremote fs ls, mpremote fs rm) or choose a smaller model")
    if args.check:
        return 0
    if old:
        print(f"no room for two versions of {old}: the old one goes first")
        transfer.remove(old)
    with contextlib.closing(Bar(sum(len(files[name]) for name in plan.missing))) as bar:
        plan.copy(bar)
    return sum(len(files[name]) - plan.looked[name][1] for name in plan.missing)


def to_romfs(args, connection, about, path):
    """Deploy to the ROMFS partition; returns bytes copied."""
    if not about.rom:
        raise UserError("this firmware has no ROMFS partition; deploy without --romfs, or flash a firmware with one "
                        "(docs/boards.md)")
    code, note = code_for(about, True)
    if note:
        print(note)
    files = {f"lib/{name}": data for name, data in code.items()}
    if path:
        files[path.name] = path.read_bytes()
    image = romfs.build(files, CHUNK)
    print(f"ROMFS: an image of {kilobytes(len(image))}, the partition has {kilobytes(about.rom)}")
    if len(image) > about.rom:
        raise UserError(f"the ROMFS image has {kilobytes(len(image))}, the partition {kilobytes(about.rom)}; choose a "
                        "smaller model")
    if args.check:
        return 0
    transfer = Transfer(connection, about)
    if about.root is not None and transfer.size(f"{about.library()}/scribe/__init__.py") >= 0:
        print(f"note: {about.library()}/scribe on the board's file system comes before the ROMFS; remove it with: "
              f"mpremote fs rm -r :{about.library()}/scribe")
    with contextlib.closing(Bar(len(image))) as bar:
        bar.file("ROMFS")
        return len(image) if transfer.burn(0, image, bar) else 0


@command
def main(argv=None):
    args = parser().parse_args(argv)
    if args.list:
        for device, about in candidates():
            print(f"{device}  {about}")
        return 0
    path = None if args.model == "none" else find_model(args.model)
    with Connection(find_port(args.port)) as connection:
        about = connection.about()
        about.check()
        if not args.no_reset and about.platform not in RESETS_BY_PORT:
            connection.reset()
            about = connection.about()
        print(f"{connection.port}: {about.line()}")
        if path:
            check_heap(args, about, path)
        started, sent = time.monotonic(), connection.sent
        copied = (to_romfs if args.romfs else to_files)(args, connection, about, path)
        seconds, sent = time.monotonic() - started, connection.sent - sent
        if args.check:
            return 0
        if copied:
            print(f"copied {kilobytes(copied)} in {seconds:.1f} s ({copied / 1024 / seconds:.1f} KB/s, "
                  f"{sent} bytes on the wire), each file checked by SHA-256")
        else:
            print("everything was there already")
        if not args.no_reset and about.platform not in RESETS_BY_PORT:
            connection.reset()
        print(f"Now: mpremote connect {connection.port} repl, then: import scribe; scribe.chat()")
    return 0


if __name__ == "__main__":
    sys.exit(main())
