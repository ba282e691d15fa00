"""A forger knows a victim's name, key and body, and cannot sign. The victim notices nothing of it, and the forger learns
nothing."""

import pathlib
import shutil
import socket
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.client import Client, Connection
from support.messages import Wire
from support.tokens import Secret, bearer, claims_of, encoded, jwks_file, unsigned
from support.upstream import answers
from support.waiting import PATIENCE_SECONDS

SECRET = b'{"secret":"card 4242 of victim"}'
ISSUER = "https://id.test"
ASYNC = [("Prefer", "respond-async")]


class ClientFrom(Client):
    """A client with an address of its own."""

    def __init__(self, address, source):
        super().__init__(address)
        self._source = source

    def connect(self):
        connection = Connection.__new__(Connection)
        connection.socket = socket.create_connection(self.address, timeout=PATIENCE_SECONDS,
                                                     source_address=(self._source, 0))
        connection._wire = Wire(connection.socket)
        return connection


class ForgedTokensTest(GatewayTest):
    issuer = Secret()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="oncekey-forged-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        by_token = {"policy": "classic", "scope": "jwt:sub", **cls.trust()}
        cls.routes = [
            {"path": "/orders/*", **by_token, "respond_async": True},
            {"path": "/v1/*", **by_token, "policy": "stripe-v1"},
            {"path": "/limited/*", **by_token, "rate": "1/m", "burst": 3},
            {"path": "/unverified/*", "policy": "classic", "scope": "jwt:sub", "jwt_unverified": True, "rate": "1/m",
             "burst": 3},
        ]
        super().setUpClass()
        cls.forger = ClientFrom(cls.gateway.address, "127.0.0.2")
        cls.victim = ClientFrom(cls.gateway.address, "127.0.0.3")

    @classmethod
    def trust(cls):
        return {"jwt_keys": jwks_file(cls.folder, cls.issuer), "jwt_issuer": ISSUER, "jwt_audience": "orders"}

    def setUp(self):
        super().setUp()
        self.claims = claims_of("victim", iss=ISSUER, aud="orders")
        self.token = self.issuer.sign(self.claims)
        self.upstream.always(self.verify_as_an_api_would)

    def verify_as_an_api_would(self, exchange):
        genuine = exchange.request.header("Authorization") == f"Bearer {self.token}"
        answers(201, SECRET)(exchange) if genuine else answers(400, b"bad token signature")(exchange)

    def forgeries(self):
        """By name, each a token that says `victim`."""
        other = Secret(b"another secret of thirty-two byte")
        late = claims_of("victim", -61, iss=ISSUER, aud="orders")
        early = claims_of("victim", iss=ISSUER, aud="orders", nbf=self.claims["exp"])
        header, payload, signature = self.token.split(".")
        return {
            "no algorithm": unsigned(self.claims),
            "no algorithm, with the real signature": f"{encoded({'alg': 'none'})}.{payload}.{signature}",
            "no signature": f"{header}.{payload}.",
            "another secret": other.sign(self.claims),
            "an empty secret": Secret(b"").sign(self.claims),
            "another name under a real signature": f"{header}.{encoded({**self.claims, 'sub': 'other'})}.{signature}",
            "another spelling": self.token[:-1] + chr(ord(self.token[-1]) + 1),
            "padding": self.token + "=",
            "expired": self.issuer.sign(late),
            "not yet valid": self.issuer.sign(early),
            "without exp": self.issuer.sign({k: v for k, v in self.claims.items() if k != "exp"}),
            "another issuer": self.issuer.sign({**self.claims, "iss": "https://evil.test"}),
            "another audience": self.issuer.sign({**self.claims, "aud": "invoices"}),
            "critical extension": self.issuer.sign(self.claims, {"alg": "HS256", "crit": ["x"], "x": 1}),
            "another algorithm": self.issuer.sign(self.claims, {"alg": "HS512"}),
            "an unknown key": self.issuer.sign(self.claims, {"alg": "HS256", "kid": "evil"}),
            "two subjects": self.issuer.sign('{"sub":"me",' + str(self.claims).replace("'", '"')[1:]),
            "two algorithms": self.issuer.sign(self.claims, '{"alg":"HS256","alg":"HS256"}'),
            "without a name": self.issuer.sign({k: v for k, v in self.claims.items() if k != "sub"}),
        }

    def by(self, client, token, target="/orders/x", **options):
        options.setdefault("key", self.key)
        return client.post(target, authorization=False, headers=[*bearer(token), *options.pop("headers", [])],
                           **options)

    @staticmethod
    def without_date(response):
        return response.status, [field for field in response.headers if field[0] != "Date"], response.body

    def test_it_reads_nothing(self):
        first = self.by(self.victim, self.token)
        self.assertEqual((first.status, first.body), (201, SECRET))
        for name, token in self.forgeries().items():
            with self.subTest(name):
                refused = self.by(self.forger, token)
                self.assert_problem(refused, 401, "token_invalid")
                self.assertEqual(refused.header("WWW-Authenticate"), 'Bearer error="invalid_token"')
                self.assertNotIn(b"4242", refused.body)
        self.assert_executed(1)
        again = self.by(self.victim, self.token)
        self.assert_replay_of(first, again)

    def test_it_reads_nothing_at_the_status_url_either(self):
        promised = self.by(self.victim, self.token, headers=ASYNC)
        self.assertEqual(promised.status, 202)
        url = promised.header("Location")
        self.upstream.wait_for_executions(1)
        for name, token in self.forgeries().items():
            with self.subTest(name):
                self.assert_problem(self.forger.get(url, authorization=False, headers=bearer(token)), 401,
                                    "token_invalid")

    def test_it_learns_nothing_of_which_keys_exist(self):
        self.by(self.victim, self.token)
        forged = unsigned(self.claims)
        used = self.by(self.forger, forged)
        mismatched = self.by(self.forger, forged, body=b"another body")
        self.key = "never-used-before-0000"
        unused = self.by(self.forger, forged)

        def same(response):
            status, headers, body = self.without_date(response)
            return status, [(n, "" if n == "Idempotency-Key" else v) for n, v in headers], body

        self.assertEqual(same(used), same(mismatched))
        self.assertEqual(same(used), same(unused))

    def test_it_blocks_nothing_and_poisons_nothing(self):
        for target, count in (("/orders/x", 1), ("/v1/charges", 2)):
            for name, token in self.forgeries().items():
                with self.subTest(name, target=target):
                    self.assertEqual(self.by(self.forger, token, target).status, 401)
            self.assert_executed(count - 1)
            mine = self.by(self.victim, self.token, target)
            self.assertEqual((mine.status, mine.body, mine.replayed), (201, SECRET, False))
            self.assert_executed(count)

    def test_it_uses_up_none_of_the_victims_rate(self):
        # Without a key nothing is refused for the token: the API behind does that. It counts all the same.
        for token in list(self.forgeries().values())[:6]:
            self.by(self.forger, token, "/limited/x", key=None)
        mine = self.by(self.victim, self.token, "/limited/x")
        self.assertEqual((mine.status, mine.body), (201, SECRET))

    def test_an_account_that_anyone_can_name_is_charged_nothing(self):
        for _ in range(6):
            self.by(self.forger, unsigned(self.claims), "/unverified/x", key=None)
        self.assertEqual(self.by(self.forger, unsigned(self.claims), "/unverified/x", key=None).status, 429)
        mine = self.by(self.victim, self.token, "/unverified/x")
        self.assertEqual((mine.status, mine.body), (201, SECRET))


if __name__ == "__main__":
    unittest.main()
