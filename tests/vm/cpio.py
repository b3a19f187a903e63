"""Writes the archive that a Linux kernel unpacks as its first root file system (cpio "newc", see the kernel's
Documentation/driver-api/early-userspace/buffer-format.rst)."""

import stat


class Archive:
    """Every parent folder of what is added is added before it, once. The first entry at a path wins."""

    def __init__(self, stream):
        self._stream = stream
        self._paths = set()

    def folder(self, path, mode=0o755):
        self._add(path, stat.S_IFDIR | mode, b"")

    def file(self, path, content, mode=0o644):
        self._add(path, stat.S_IFREG | mode, content)

    def link(self, path, target):
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def finish(self):
        self._entry("TRAILER!!!", 0, b"", number=0)

    def _add(self, path, mode, content):
        path = path.strip("/")
        if not path or path in self._paths:
            return
        parent = path.rpartition("/")[0]
        if parent:
            self.folder(parent)
        self._paths.add(path)
        self._entry(path, mode, content, number=len(self._paths))

    def _entry(self, path, mode, content, number):
        name = path.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        # inode, mode, uid, gid, links, time, size, device major and minor, own major and minor, name's length, checksum
        fields = (number, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields) + name
        self._stream.write(header + _padding(len(header)))
        self._stream.write(content)
        self._stream.write(_padding(len(content)))


def _padding(length):
    return b"\0" * (-length % 4)
