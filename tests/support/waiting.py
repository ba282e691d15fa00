"""Waiting for things to happen, with a bound. Nothing here measures how long something took."""

import threading
import time

# How long a test waits before it calls something lost. Generous: a sanitizer build on a busy machine is slow, and a
# passing test never waits this long.
PATIENCE_SECONDS = 20.0


class GaveUpWaiting(AssertionError):
    pass


class Changing:
    """State that threads wait on: `with changing:` to alter it, `wait_until(predicate)` to wait for it."""

    def __init__(self):
        self._condition = threading.Condition()

    def __enter__(self):
        self._condition.acquire()
        return self

    def __exit__(self, *_):
        self._condition.notify_all()
        self._condition.release()

    def wait_until(self, predicate, what, seconds=PATIENCE_SECONDS):
        with self._condition:
            if not self._condition.wait_for(predicate, seconds):
                raise GaveUpWaiting(f"waited {seconds} s in vain for {what}")


class Background:
    """A call running in its own thread; `result()` returns what it returned or raises what it raised."""

    def __init__(self, call):
        self._outcome = None
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call):
        try:
            self._outcome = call()
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error

    @property
    def finished(self):
        return not self._thread.is_alive()

    def result(self, seconds=PATIENCE_SECONDS):
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise GaveUpWaiting(f"waited {seconds} s in vain for a call in the background")
        if self._error is not None:
            raise self._error
        return self._outcome


def poll_until(probe, what, seconds=PATIENCE_SECONDS, pause=0.02):
    """Calls `probe` until it returns something true, and returns that. For what can only be seen from outside."""
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise GaveUpWaiting(f"waited {seconds} s in vain for {what}")
        time.sleep(pause)
