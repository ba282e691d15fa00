"""The gateway on a disk that loses its power under load: no promise is broken.

    power_cut_test.py [--rounds N] [--seed S] [--clients N]    exits 0 when the oracle found nothing
    power_cut_test.py --syncs-lie                              exits 0 when loss was seen: no write of the log is synced

The disk is an ext4 image on a loop device, in a mount namespace of its own, so that nothing stays mounted however the
test ends. A power cut is EXT4_IOC_SHUTDOWN without a flush of its journal: what is in the page cache is gone. Then the
gateway is killed, the file system mounted again, which replays its journal, and the gateway started anew. Rounds
alternate between io_uring and the writer thread, every second time of which writes only one block at once, so that cuts
fall between the blocks of a batch. Answers are of all sizes, so that segments are sealed and used again and
some bodies have files of their own.

Not modelled: the write cache of the disk itself. What has left the kernel is kept.

Needs root, and a library to preload (ONCEKEY_MACHINE_FAULTS); without them it exits 77, which ctest shows as skipped.
"""

import argparse
import contextlib
import fcntl
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from crowd import CountingUpstream, Crowd
from kill_test import ROUTES
from oracle import History, violations_of
from support.gateway import DidNotStart, Gateway
from support.waiting import poll_until

SKIPPED = 77
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
DISK_BYTES = 8 << 30  # of a sparse file; a hundred rounds use a part of it
ROUNDS = 100 if os.environ.get("ONCEKEY_SLOW_TESTS") else 5
# Of answers. The last one is above what goes into the log (kLogBodyBytesMax).
PADDING_BYTES = (0, 0, 0, 2_000, 20_000, 200_000, 300_000)
# A cut loses what was answered since the last start: the first round should do.
LYING_ROUNDS_MAX = 10


def skip(reason):
    print(f"NOT TESTED: {reason}")
    sys.exit(SKIPPED)


def enter_own_mounts():
    """Runs this program again where its mounts are its own and end with it."""
    if os.environ.get("ONCEKEY_OWN_MOUNTS") == "1":
        return
    if os.geteuid() != 0:
        skip("mounting a file system needs root")
    missing = [tool for tool in ("unshare", "mount", "umount", "mkfs.ext4") if shutil.which(tool) is None]
    if missing:
        skip(f"there is no {' and no '.join(missing)}")
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*unshare, "true"], check=False).returncode != 0:
        skip("a mount namespace of its own is not allowed here")
    os.environ["ONCEKEY_OWN_MOUNTS"] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


class Disk:
    """A file system that can lose its power."""

    def __init__(self):
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-power-"))
        self._image = self._folder / "image"
        self.root = self._folder / "mounted"
        self.root.mkdir()
        with self._image.open("wb") as image:
            image.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True)

    def mount(self):
        # The loop device goes with the mount.
        subprocess.run(["mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.root)], check=True)

    def cut(self):
        root = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(root, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(root)

    def unmount(self):
        # A write of a killed process may still be under way.
        umount = ["umount", str(self.root)]
        poll_until(lambda: not os.path.ismount(self.root)
                   or subprocess.run(umount, check=False, stderr=subprocess.DEVNULL).returncode == 0,
                   "the file system to be unmounted")

    def remove(self):
        self.unmount()
        shutil.rmtree(self._folder)


def disk_to_cut(stack):
    """A mounted one; ends the test where such a disk is not allowed."""
    disk = Disk()
    stack.callback(disk.remove)
    try:
        disk.mount()
        disk.cut()
    except (OSError, subprocess.CalledProcessError) as error:
        skip(f"ext4 on a loop device, or its shutdown, is not allowed here: {error}")
    disk.unmount()
    disk.mount()
    return disk


class Machine:
    """A gateway and the disk of its store, switched off together."""

    def __init__(self, disk, upstream_url, syncs_lie):
        self._disk = disk
        # A sanitizer's runtime wants to be loaded first; it says so and stops unless told that this order is meant.
        self._environment = {"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"],
                             "ASAN_OPTIONS": "verify_asan_link_order=0"}
        self._syncs_lie = syncs_lie
        if syncs_lie:
            self._environment["ONCEKEY_SYNCS_LIE"] = "1"
        self.gateway = Gateway(upstream_url, ROUTES, store=f"journal:{disk.root / 'data'}",
                               environment=self._environment)
        self.rings = 0  # starts with io_uring
        self._starts = 0

    def start(self):
        by_thread = self._syncs_lie or self._starts % 2 == 1
        for name, wanted in (("ONCEKEY_NO_IO_URING", by_thread), ("ONCEKEY_SHORT_WRITES", self._starts % 4 == 3)):
            self._environment.pop(name, None)
            if wanted:
                self._environment[name] = "1"
        self._starts += 1
        self.gateway.start()
        self.rings += not by_thread and not self._has_writer_thread()  # the kernel may not allow it
        return [self.gateway.address]

    def _has_writer_thread(self):
        threads = pathlib.Path(f"/proc/{self.gateway.pid}/task").iterdir()
        return any((thread / "comm").read_text().strip() == "journal" for thread in threads)

    def cut_power(self):
        self._disk.cut()
        self.gateway.kill()
        self.gateway.check_sanitizers()

    def restore_power(self):
        self._disk.unmount()
        self._disk.mount()

    def remove(self):
        self.gateway.kill()
        self.gateway.remove()


def set_up(stack, seed, clients, syncs_lie):
    disk = disk_to_cut(stack)
    history = History()
    upstream = CountingUpstream(history, seed, PADDING_BYTES)
    stack.callback(upstream.stop)
    machine = Machine(disk, upstream.upstream.url, syncs_lie)
    stack.callback(machine.remove)
    crowd = Crowd(history, clients, seed)
    crowd.addresses = machine.start()
    crowd.start()
    stack.callback(crowd.stop)
    return disk, machine, history, crowd


def cut_once(machine, history, crowd, choice):
    crowd.wait_for_answers(1)
    time.sleep(choice.uniform(0, 1))
    machine.cut_power()
    crowd.addresses = []
    machine.restore_power()
    history.killed(time.monotonic())
    crowd.addresses = machine.start()


def run(rounds, seed, clients):
    choice = random.Random(seed)
    with contextlib.ExitStack() as stack:
        disk, machine, history, crowd = set_up(stack, seed, clients, syncs_lie=False)
        found = []
        for number in range(rounds):
            cut_once(machine, history, crowd, choice)
            if "event=memory_lost" in machine.gateway.log:
                found.append(f"after cut {number + 1} the store has lost its memory:\n{machine.gateway.log}")
                break
        crowd.stop()
        if not found:
            crowd.settle()
            machine.gateway.stop()
            crowd.addresses = machine.start()
            crowd.ask_again()
        found += crowd.unexpected + violations_of(history)
        sorted_files = len(list((disk.root / "data").glob("*.sst")))
        bodies = len(list((disk.root / "data" / "bodies").iterdir()))
        print(f"{rounds} cuts, {machine.rings} starts with io_uring, {crowd.requests} answers, "
              f"{len(history.first_sent)} keys, {sorted_files} sorted files, {bodies} bodies in files of their own")
    for violation in found[:50]:
        print(f"VIOLATION {violation}")
    print(f"{len(found)} violations")
    if not crowd.finished:
        print("nothing was tested: no key ever finished")
        return 1
    return 1 if found else 0


def run_lying(seed, clients):
    """Succeeds once a loss is seen."""
    choice = random.Random(seed)
    with contextlib.ExitStack() as stack:
        _, machine, history, crowd = set_up(stack, seed, clients, syncs_lie=True)
        for number in range(LYING_ROUNDS_MAX):
            try:
                cut_once(machine, history, crowd, choice)
            except DidNotStart as refusal:
                seen = [str(refusal)]
            else:
                crowd.ask_again()
                # Keys under way are not finished; all else counts.
                seen = [violation for violation in violations_of(history) if "never finished" not in violation]
                seen += [line for line in machine.gateway.log.splitlines() if "event=memory_lost" in line]
            if seen:
                print(f"loss was seen after cut {number + 1}: {seen[0]}")
                return 0
    print(f"{LYING_ROUNDS_MAX} cuts of a disk whose syncs lie, and no loss was seen")
    return 1


def main():
    parser = argparse.ArgumentParser(description="Cuts the power of the gateway's disk and judges what was seen.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how many cuts ({ROUNDS})")
    parser.add_argument("--seed", type=int, default=None, help="replays the choices of an earlier run")
    parser.add_argument("--clients", type=int, default=6, help="client threads (6)")
    parser.add_argument("--syncs-lie", action="store_true", help="succeed only if loss was seen")
    arguments = parser.parse_args()
    enter_own_mounts()
    if "ONCEKEY_MACHINE_FAULTS" not in os.environ:
        skip("ONCEKEY_MACHINE_FAULTS names no library to preload")
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.clients} clients", flush=True)
    return run_lying(seed, arguments.clients) if arguments.syncs_lie else run(arguments.rounds, seed, arguments.clients)


if __name__ == "__main__":
    sys.exit(main())
