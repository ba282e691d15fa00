"""Other users of the machine: what they can read, tried as one of them."""

import json
import os
import pathlib
import unittest

NOBODY = 65534


def needs_root():
    """Loudly: without root there is no other user to try as."""
    return unittest.skipUnless(os.geteuid() == 0, "NOT TESTED: needs root to act as another user of the machine")


def as_user(user, action):
    """What `action` returns when that user does it, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writing, json.dumps(action()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def may_open(path):
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False


def read_as(user, text, *paths):
    """The files below `paths` that the user can read, and those of them that hold `text`."""
    def look():
        readable, found = [], []
        for path in paths:
            try:
                files = [path, *pathlib.Path(path).rglob("*")]
            except OSError:
                files = [path]
            for file in filter(may_open, files):
                readable.append(str(file))
                if text.encode() in pathlib.Path(file).read_bytes():
                    found.append(str(file))
        return readable, found

    return as_user(user, look)
