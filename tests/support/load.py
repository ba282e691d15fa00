"""Clients that keep a gateway busy while something is done to it. They retry nothing: they see what users see."""

import itertools
import threading

from support.client import Client
from support.waiting import Changing


class Load:
    """Some clients keep their connections, others make one for each request. Each request has a key of its own; now and
    then one is sent a second time, on purpose, and must get the answer of the first."""

    def __init__(self, address, keeping=4, connecting=2, tls_context=None):
        self._client = Client(address, "load", tls_context=tls_context)
        self._stop = threading.Event()
        self._state = Changing()
        self._answered = 0
        self.errors = []
        self.keys = []
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._run, args=(keeps,), daemon=True)
                         for keeps in [True] * keeping + [False] * connecting]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.wait_for(20)
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more):
        """Until so many more requests were answered."""
        goal = self._answered + more
        self._state.wait_until(lambda: self._answered >= goal or self.errors, f"{more} more answers", 60)

    def _run(self, keeps):
        connection = None
        while not self._stop.is_set():
            key = f"load-{next(self._numbers)}"
            try:
                first, connection = self._post(connection, key)
                if not keeps or first.header("Connection") == "close":
                    connection.socket.close()
                    connection = None
                self._check(key, first, replayed=False)
                if hash(key) % 8 == 0:
                    again, other = self._post(None, key)
                    other.socket.close()
                    self._check(key, again, replayed=True)
                    if again.body != first.body:
                        raise AssertionError(f"{key}: {again} after {first}")
            except Exception as error:  # all of them are what a client sees
                with self._state:
                    self.errors.append(f"{key}: {error!r}")
                if connection:
                    connection.socket.close()
                connection = None
            with self._state:
                self._answered += 1
        if connection:
            connection.socket.close()

    def _post(self, connection, key):
        connection = connection or self._client.connect()
        connection.send(self._client.request_bytes("POST", "/charges", key=key, body="{}"))
        return connection.read_response(), connection

    def _check(self, key, response, replayed):
        if response.status != 201 or response.replayed != replayed:
            raise AssertionError(f"{key}: {response}")
        with self._state:
            self.keys.append(key)
