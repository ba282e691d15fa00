"""Issuers of bearer tokens: good ones, and what a forger makes of them. Public keys are made by the openssl command."""

import base64
import hashlib
import hmac
import json
import pathlib
import subprocess
import tempfile
import time


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def encoded(part):
    """A header or payload; text is taken as it is, for JSON that no writer would write."""
    return base64url(part.encode() if isinstance(part, str) else json.dumps(part).encode())


def claims_of(subject, seconds=600, **more):
    return {"sub": subject, "exp": int(time.time()) + seconds, **more}


def unsigned(claims, alg="none"):
    return f"{encoded({'alg': alg})}.{encoded(claims)}."


def bearer(token):
    return [("Authorization", f"Bearer {token}")]


class Secret:
    """HS256, for a JWKS file."""

    alg = "HS256"

    def __init__(self, secret=b"0123456789abcdef0123456789abcdef", kid=None):
        self._secret = secret
        self.kid = kid

    def jwk(self):
        return {"kty": "oct", "k": base64url(self._secret), **({"kid": self.kid} if self.kid else {})}

    def header(self):
        return {"alg": self.alg, **({"kid": self.kid} if self.kid else {})}

    def sign(self, claims, header=None):
        message = f"{encoded(header or self.header())}.{encoded(claims)}"
        return f"{message}.{base64url(self._signature(message.encode()))}"

    def _signature(self, message):
        return hmac.new(self._secret, message, hashlib.sha256).digest()


class Ed25519(Secret):
    """EdDSA, for a JWKS at a URL."""

    alg = "EdDSA"

    def __init__(self, kid=None):
        super().__init__(b"", kid)
        self._key = self._openssl("genpkey", "-algorithm", "ed25519")
        self._public = self._openssl("pkey", "-pubout", "-outform", "DER", input=self._key)[-32:]

    @staticmethod
    def _openssl(*arguments, **options):
        return subprocess.run(["openssl", *arguments], check=True, capture_output=True, **options).stdout

    def jwk(self):
        return {"kty": "OKP", "crv": "Ed25519", "x": base64url(self._public),
                **({"kid": self.kid} if self.kid else {})}

    def _signature(self, message):
        with tempfile.TemporaryDirectory(prefix="oncekey-issuer-") as folder:
            key, text = pathlib.Path(folder) / "key.pem", pathlib.Path(folder) / "message"
            key.write_bytes(self._key)
            text.write_bytes(message)
            return self._openssl("pkeyutl", "-sign", "-inkey", str(key), "-rawin", "-in", str(text))


def jwks(*issuers):
    return json.dumps({"keys": [issuer.jwk() for issuer in issuers]})


def jwks_file(folder, *issuers, name="jwks.json"):
    """Writes the set and returns the setting that names it. Replaced in one step, as a deployment would."""
    path = pathlib.Path(folder) / name
    fresh = path.with_suffix(".new")
    fresh.write_text(jwks(*issuers))
    fresh.replace(path)
    return f"file:{path}"
