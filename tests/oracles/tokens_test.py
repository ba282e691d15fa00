"""The package `jose` as an independent oracle for tokens: it signs, it says which tokens it would believe, and the running
gateway must say the same.

It comes from the npm registry, in the version of package-lock.json, into a folder of the build.
"""

import json
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

from oracle_test import Oracle
from support.cases import fresh_key
from support.gateway import Gateway
from support.tokens import base64url, bearer
from support.upstream import Upstream

ALGORITHMS = ("EdDSA", "ES256", "RS256", "PS256", "HS256")
ISSUER, AUDIENCE = "https://id.test", "orders"


class TokenOracleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.oracle = Oracle("tokens.mjs")
        cls.addClassCleanup(cls.oracle.close)
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.keys = {alg: cls.oracle.ask(do="key", alg=alg, kid=alg)["jwk"] for alg in ALGORITHMS}
        # A second key of each kind, for signatures that must not hold.
        cls.others = {alg: cls.oracle.ask(do="key", alg=alg, kid=f"other {alg}")["jwk"] for alg in ALGORITHMS}
        routes = [{"path": f"/{alg}/*", "policy": "classic", "scope": "jwt:sub", "jwt_keys": f"file:{alg}.json",
                   "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE} for alg in ALGORITHMS]
        cls.gateway = Gateway(cls.upstream.url, routes)
        cls.addClassCleanup(cls.gateway.remove)
        for alg, key in cls.keys.items():
            (cls.gateway.folder / f"{alg}.json").write_text(json.dumps({"keys": [key]}))
        cls.gateway.start()

    def sign(self, alg, claims, key=None, name=None):
        """With the key called `key`; the token says that it is the one called `name`."""
        return self.oracle.ask(do="sign", kid=key or alg, header={"alg": alg, "kid": name or alg},
                               claims=claims)["token"]

    def both(self, alg, token):
        """Whether the package believes the token, and whether the gateway does."""
        package = self.oracle.ask(do="verify", jwks={"keys": [self.keys[alg]]}, token=token, issuer=ISSUER,
                                  audience=AUDIENCE)["believed"]
        response = self.gateway.client().post(f"/{alg}/x", key=fresh_key(), authorization=False, headers=bearer(token))
        self.assertIn(response.status, (201, 401), response)
        return package, response.status == 201

    def test_both_believe_the_same_tokens(self):
        now = int(time.time())
        good = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 600}
        believed = {"plain": good, "two audiences": {**good, "aud": ["x", AUDIENCE]}, "nbf": {**good, "nbf": now - 1},
                    "within the leeway": {**good, "exp": now - 20}, "fraction": {**good, "exp": now + 600.5}}
        refused = {"expired": {**good, "exp": now - 100}, "early": {**good, "nbf": now + 200},
                   "audience": {**good, "aud": "x"}, "no audience": {**good, "aud": []},
                   "issuer": {**good, "iss": ISSUER + "/"}, "exp as text": {**good, "exp": str(now + 600)},
                   "no exp": {name: value for name, value in good.items() if name != "exp"},
                   "no sub": {name: value for name, value in good.items() if name != "sub"}}
        for alg in ALGORITHMS:
            for name, claims in believed.items():
                with self.subTest(name, alg=alg):
                    self.assertEqual(self.both(alg, self.sign(alg, claims)), (True, True))
            for name, claims in refused.items():
                with self.subTest(name, alg=alg):
                    self.assertEqual(self.both(alg, self.sign(alg, claims)), (False, False))

    def test_neither_believes_a_signature_of_another_key_or_kind(self):
        good = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600}
        for alg in ALGORITHMS:
            tokens = {"another key": self.sign(alg, good, key=f"other {alg}")}
            for other in ALGORITHMS:
                if other != alg:
                    tokens[f"by {other}"] = self.sign(other, good, name=alg)
            head, body, signature = self.sign(alg, good).split(".")
            for swapped in (*ALGORITHMS, "none"):
                if swapped != alg:
                    named = base64url(json.dumps({"alg": swapped, "kid": alg}).encode())
                    tokens[f"called {swapped}"] = f"{named}.{body}.{signature}"
            tokens["no signature"] = f"{head}.{body}."
            for name, token in tokens.items():
                with self.subTest(name, alg=alg):
                    self.assertEqual(self.both(alg, token), (False, False))


if __name__ == "__main__":
    unittest.main()
