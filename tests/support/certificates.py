"""Certificates for one run of a test, made by the openssl command in a folder of the test's."""

import pathlib
import ssl
import subprocess

from support.waiting import PATIENCE_SECONDS


class Certificates:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def file(self, name):
        return str(self.folder / name)

    def make(self, name, subject, extension):
        """One that signs itself: a certificate authority, or a server's."""
        self._openssl("req", "-x509", *self._new_key(name), "-days", "2", "-subj", subject, "-addext", extension, "-out",
                      self.file(f"{name}.crt"))

    def issue(self, name, subject, extension=None):
        """A person's, signed by `ca`."""
        self._openssl("req", *self._new_key(name), "-subj", subject, "-out", self.file(f"{name}.csr"))
        extra = []
        if extension:
            pathlib.Path(self.file(f"{name}.ext")).write_text(extension)
            extra = ["-extfile", self.file(f"{name}.ext")]
        self._openssl("x509", "-req", "-days", "2", "-in", self.file(f"{name}.csr"), "-CA", self.file("ca.crt"), "-CAkey",
                      self.file("ca.key"), "-CAcreateserial", "-out", self.file(f"{name}.crt"), *extra)

    def admin_settings(self, operators):
        """Makes the authority `ca` and the admin listener's certificate; what a gateway is told of them."""
        self.make("ca", "/CN=people", "basicConstraints=critical,CA:TRUE")
        self.make("server", "/CN=oncekey", "subjectAltName=IP:127.0.0.1")
        return {"admin_tls_cert": self.file("server.crt"), "admin_tls_key": self.file("server.key"),
                "admin_client_ca": self.file("ca.crt"), "admin_operators": operators}

    def context(self, name=None):
        """What a client trusts, and shows as `name`."""
        context = ssl.create_default_context(cafile=self.file("server.crt"))
        context.check_hostname = False
        if name:
            context.load_cert_chain(self.file(f"{name}.crt"), self.file(f"{name}.key"))
        return context

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.file(f"{name}.key"))

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=PATIENCE_SECONDS)
