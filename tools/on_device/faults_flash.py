# Runs in MicroPython: a model on a card that fails at the n-th read, for one n after another, and what became of it.
import errno
import gc
import json
import os
import sys
import vfs

with open(sys.argv[1]) as f:
    request = json.load(f)
sys.path.append(request["folder"])
import ramdisk  # noqa: E402
import scribe  # noqa: E402

STORY = dict(prompt="The", seed=2, temperature=1.1, top_k=0, max_tokens=5)


class Fault:
    """Fails from the n-th read on, or only then. kind: "error" (EIO), "once" (EIO, then right again), "short", "gone"
    (ENODEV, and the file can't be opened either), "wrong" (a byte is another), "break" (Ctrl-C), "damage" (EIO after
    other bytes than the flash has, then right again)."""

    def __init__(self):
        self.set(None, 0)

    def set(self, kind, left):
        self.kind, self.left, self.reads = kind, left, 0

    def now(self):
        """Whether this read is to fail."""
        self.reads += 1
        self.left -= 1
        if self.kind is None or self.left > 0:
            return False
        return self.left == 0 or self.kind not in ("once", "break", "wrong", "damage")


fault = Fault()
disk = driver = None
remounted = 0


class File:
    def __init__(self, path):
        self.file = open(path, "rb")
        self.seek = self.file.seek

    def readinto(self, buf):
        if not fault.now():
            return self.file.readinto(buf)
        kind = fault.kind
        if kind == "short":
            return self.file.readinto(memoryview(buf)[: len(buf) // 2])
        if kind == "wrong":
            n = self.file.readinto(buf)
            buf[len(buf) // 2] ^= 16
            return n
        if kind == "break":
            raise KeyboardInterrupt
        raise OSError(errno.ENODEV if kind == "gone" else errno.EIO)

    def read(self, n=-1):
        return self.file.read(n)

    def close(self):
        self.file.close()


class Card:
    """A file system whose files are those of a folder of the host, in a driver as people write them."""

    def __init__(self, folder):
        self.folder = folder

    def mount(self, readonly, mkfs):
        pass

    def umount(self):
        pass

    def open(self, path, mode):
        if fault.kind == "gone" and fault.left <= 0:
            raise OSError(errno.ENODEV)
        return File(self.folder + "/" + path)

    def stat(self, path):
        return os.stat(self.folder + "/" + path)


class Disk(ramdisk.Disk):
    """Flash whose driver raises."""

    def readblocks(self, block, buffer, offset=0):
        if fault.now():
            if fault.kind == "break":
                raise KeyboardInterrupt
            if fault.kind == "damage":
                buffer[: len(buffer) // 2] = b"\xaa" * (len(buffer) // 2)
            raise OSError(errno.EIO)
        super().readblocks(block, buffer, offset)


def copy(path, target):
    with open(path, "rb") as f, open(target, "wb") as out:
        while True:
            part = f.read(4096)
            if not part:
                return
            out.write(part)


def mounted(kind, blocks=None):
    """Mount the model's file system; the model's path on it."""
    global disk, driver
    name = request["path"].rpartition("/")[2]
    if kind == "card":
        vfs.mount(Card(request["path"].rpartition("/")[0]), "/card")
    else:
        disk = Disk(bytearray(ramdisk.BLOCK * (blocks or os.stat(request["path"])[6] // ramdisk.BLOCK + 40)))
        driver = vfs.VfsLfs2 if kind == "littlefs" else vfs.VfsFat
        driver.mkfs(disk)
        vfs.mount(driver(disk), "/card")
        copy(request["path"], "/card/" + name)
    return "/card/" + name


def recovered(story):
    """What `story` returns, the file system mounted anew if need be: MicroPython lets a driver's exception pass through
    littlefs and FAT, which may then take half a block for a whole one until they are mounted again."""
    global remounted
    try:
        return story()
    except (OSError, ValueError) as error:
        if request["on"] == "card" or not one_line(error):
            raise
    vfs.umount("/card")
    vfs.mount(driver(disk), "/card")
    remounted += 1
    return story()


def one_line(error):
    text = str(error)
    return "/card/" in text and "\n" not in text


def stories(path):
    """A story with a fault at its n-th read, then one without."""
    s = scribe.open(path, request["cache"], request["check"])
    fault.set(None, 0)
    whole = s.write(**STORY)
    total = fault.reads
    alone = scribe.open(path, 0)
    for n in range(request["first"], total + 1, request["every"]):
        fault.set(request["kind"], n)
        told = said = None
        try:
            told = s.write(**STORY)
        except (OSError, ValueError) as error:
            said = str(error) if not one_line(error) else "line"
        except KeyboardInterrupt:
            said = "break"
        reached = fault.left <= 0  # with a cache this story may have needed fewer reads
        fault.set(None, 0)
        again = recovered(lambda: s.write(**STORY)) == whole
        fresh = recovered(lambda: alone.write(**STORY)) == whole
        told = told is None or told == whole
        if reached:
            print(json.dumps({"at": n, "told": told, "said": said, "again": again, "fresh": fresh}))


def openings(path):
    """Opening with a fault at its n-th read, then without."""
    fault.set(None, 0)
    s = scribe.open(path, 0)
    total = fault.reads
    s.close()
    s = None
    for n in range(request["first"], total + 1, request["every"]):
        gc.collect()
        fault.set(request["kind"], n)
        said = None
        try:
            scribe.open(path, 0).close()
        except (OSError, ValueError) as error:
            said = str(error) if not one_line(error) else "line"
        except KeyboardInterrupt:
            said = "break"
        fault.set(None, 0)
        s = recovered(lambda: scribe.open(path, 0))
        good = len(s.write(**STORY)) > 3
        s.close()
        s = None
        print(json.dumps({"at": n, "told": True, "said": said, "again": good, "fresh": True}))


def full(path):
    """Bookmarks on a file system with less and less room: each is whole, or not there and the one before is kept."""
    s = scribe.open(path, 0)
    s.write(**STORY)
    s.bookmark("/card/kept.mark")
    going = s.write(resume="/card/kept.mark", max_tokens=8, temperature=0)
    size = os.stat("/card/kept.mark")[6]
    s.write(**STORY)
    filler, made = 0, 0
    for n in range(1000):
        said = None
        try:
            s.bookmark("/card/%d.mark" % n)
            made += 1
        except OSError as error:
            said = "line" if one_line(error) else str(error)
        try:
            s.bookmark("/card/kept.mark")  # over a file that is there
        except OSError as error:
            said = said if one_line(error) else str(error)
        names = os.listdir("/card")
        whole = all(os.stat("/card/" + name)[6] == size for name in names if name.endswith(".mark"))
        partial = any(name.endswith(".partial") for name in names)
        same = s.write(resume="/card/kept.mark", max_tokens=8, temperature=0) == going
        s.write(**STORY)
        print(json.dumps({"at": n, "told": whole and not partial, "said": said, "again": same, "fresh": True}))
        if said:
            filler += 1
            if filler == 3:
                return
        try:
            with open("/card/filler%d" % n, "wb") as f:
                f.write(bytes(3000))
        except OSError:
            pass


def main():
    path = mounted(request["on"], request.get("blocks"))
    {"stories": stories, "openings": openings, "full": full}[request["what"]](path)
    print(json.dumps({"end": 1, "remounted": remounted}))


main()
