"""Where `fetch` puts what `run` boots: one private folder per user, safe to delete at any time."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

KERNELS = ("6.1", "6.12", "7.2")
"""The kernels that lockmeter's tests run on: the oldest supported, a long-term one, a recent one."""

OLDEST_GOOD_QEMU = 10
"""qemu 7.2 crashed and hung these guests under TCG (a flag corrupted after cmpxchg16b); 10.0 does not."""

MODULES = {"FUSE_FS": "fuse"}
"""Modules that tests need where a kernel has them outside its image: the option that tells, and the module's name."""

SKIPPED = 77
FAILED = 125


def root():
    chosen = os.environ.get("LOCKMETER_VM_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lockmeter" / "vm"


def kernel(version):
    return root() / "kernels" / version


def vmlinux(version):
    return kernel(version) / "vmlinux"


def modules(version):
    return kernel(version) / "modules"


def lacks_modules(version):
    """Whether the kernel's configuration, where the cache has it, names modules that are not there."""
    config = kernel(version) / "config"
    options = config.read_text(encoding="utf-8").splitlines() if config.exists() else []
    wanted = (name for option, name in MODULES.items() if f"CONFIG_{option}=m" in options)
    return any(not (modules(version) / f"{name}.ko").exists() for name in wanted)


def tools():
    """An unpacked tree of Debian packages: qemu, busybox, lz4, zstd and every library they load."""
    return root() / "tools"


def busybox():
    """Debian 12 has it in /bin, newer ones in /usr/bin."""
    return next((path for path in (tools() / "bin/busybox", tools() / "usr/bin/busybox") if path.exists()), None)


def tool(name):
    """The start of a command line that runs an unpacked program with its own loader and libraries."""
    libraries = [tools() / "lib/x86_64-linux-gnu", tools() / "usr/lib/x86_64-linux-gnu"]
    loader = libraries[0] / "ld-linux-x86-64.so.2"
    return [loader, "--library-path", ":".join(map(str, libraries)), tools() / "usr/bin" / name]


def tool_environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    return kept | {"QEMU_MODULE_DIR": str(tools() / "usr/lib/x86_64-linux-gnu/qemu")}


def machines_own_qemu():
    """The path of the machine's qemu if it is recent enough, else None."""
    path = shutil.which("qemu-system-x86_64")
    if not path:
        return None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"version (\d+)", said)
    return path if version and int(version[1]) >= OLDEST_GOOD_QEMU else None


def qemu():
    """The start of a qemu command line, of the fetched qemu if it is there; None if no qemu is."""
    if (tools() / "usr/bin/qemu-system-x86_64").exists():
        share = tools() / "usr/share"
        return [*tool("qemu-system-x86_64"), "-L", share / "qemu", "-L", share / "seabios"]
    own = machines_own_qemu()
    return [own] if own else None


def leave(status, sentence):
    """Ends the program with one sentence about why."""
    print(f"tests/vm/{Path(sys.argv[0]).name}: {sentence}", file=sys.stderr, flush=True)
    sys.exit(status)
