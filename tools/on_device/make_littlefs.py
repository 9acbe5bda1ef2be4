# Runs in MicroPython on the host: copies a folder to littlefs on a RAM disk and writes the disk to a file.
import os
import sys
import vfs

import ramdisk


def copy(source, target):
    for name, kind, *_ in os.ilistdir(source):
        if kind == 0x4000:
            os.mkdir(target + "/" + name)
            copy(source + "/" + name, target + "/" + name)
            continue
        with open(source + "/" + name, "rb") as f, open(target + "/" + name, "wb") as out:
            while True:
                part = f.read(65536)
                if not part:
                    break
                out.write(part)


def main():
    tree, image, blocks = sys.argv[1:]
    data = bytearray(int(blocks) * ramdisk.BLOCK)
    disk = ramdisk.Disk(data)
    vfs.VfsLfs2.mkfs(disk)
    vfs.mount(vfs.VfsLfs2(disk), "/disk")
    copy(tree, "/disk")
    vfs.umount("/disk")
    with open(image, "wb") as f:
        f.write(data)


main()
