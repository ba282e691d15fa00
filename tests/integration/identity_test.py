"""Whose key it is: verified tokens, client certificates, accounts that outlive a credential, and revoked callers."""

import hashlib
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.client import Client
from support.gateway import Gateway, run_cli, toml
from support.messages import Malformed
from support.tokens import Ed25519, Secret, bearer, claims_of, jwks, jwks_file, unsigned
from support.upstream import Upstream, answers, held, resets
from support.waiting import poll_until

BY_TOKEN = {"path": "/orders/*", "policy": "classic", "scope": "jwt:sub"}


class FolderTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-identity-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.key = fresh_key()

    def start(self, routes, **settings):
        gateway = Gateway(self.upstream.url, routes, **settings)
        self.addCleanup(gateway.remove)
        self.gateway = gateway.start()
        return gateway

    def post(self, token, target="/orders/x", **options):
        options.setdefault("key", self.key)
        return self.gateway.client().post(target, authorization=False, headers=bearer(token), **options)

    def assert_problem(self, response, status, code):
        self.assertEqual(response.status, status, response)
        self.assertTrue(response.json()["type"].endswith(":" + code), response)
        return response.json()


class TokenTest(FolderTest):
    def test_a_renewed_token_keeps_its_account_and_another_subject_is_another(self):
        issuer = Secret()
        self.start([{**BY_TOKEN, "jwt_keys": jwks_file(self.folder, issuer)}])
        first = self.post(issuer.sign(claims_of("alice")))
        self.assertEqual((first.status, first.replayed), (201, False))
        for _ in range(2):  # the second time it is known to hold
            again = self.post(issuer.sign(claims_of("alice", 900, jti="renewed")))
            self.assertEqual((again.body, again.replayed), (first.body, True))
        self.assertFalse(self.post(issuer.sign(claims_of("bob"))).replayed)
        self.assertEqual(self.upstream.executions(), 2)

    def test_the_same_subject_of_two_issuers_is_two_accounts(self):
        issuer = Secret()
        self.start([{**BY_TOKEN, "jwt_keys": jwks_file(self.folder, issuer),
                     "jwt_issuer": ["https://a.test", "https://b.test"]}])
        of_a = self.post(issuer.sign(claims_of("7", iss="https://a.test")))
        of_b = self.post(issuer.sign(claims_of("7", iss="https://b.test")))
        as_number = self.post(issuer.sign(claims_of(7, iss="https://b.test")))
        self.assertEqual([of_a.replayed, of_b.replayed, as_number.replayed], [False] * 3)
        self.assertTrue(self.post(issuer.sign(claims_of("7", iss="https://a.test"))).replayed)

    def test_no_token_is_no_account_and_without_a_key_nothing_is_asked(self):
        self.start([{**BY_TOKEN, "jwt_keys": jwks_file(self.folder, Secret())}])
        client = self.gateway.client()
        self.assert_problem(client.post("/orders/x", key=self.key, authorization=False), 400, "principal_missing")
        self.assertEqual(self.upstream.executions(), 0)
        self.assertEqual(self.post(unsigned(claims_of("alice")), key=None).status, 201)

    def test_a_token_that_would_not_reach_the_upstream_counts_for_nothing(self):
        issuer = Secret()
        self.start([{**BY_TOKEN, "jwt_keys": jwks_file(self.folder, issuer)}])
        headers = [*bearer(issuer.sign(claims_of("alice"))), ("Connection", "authorization")]
        refused = self.gateway.client().post("/orders/x", key=self.key, authorization=False, headers=headers)
        self.assertEqual((refused.status, self.upstream.executions()), (400, 0))

    def test_a_bad_token_is_refused_in_the_policys_own_format(self):
        self.start([{"path": "/*", "policy": "stripe-v1", "scope": "jwt:sub",
                     "jwt_keys": jwks_file(self.folder, Secret())}])
        refused = self.post(unsigned(claims_of("alice")))
        self.assertEqual(refused.status, 401)
        self.assertEqual(refused.header("WWW-Authenticate"), 'Bearer error="invalid_token"')
        self.assertEqual(refused.json()["error"]["code"], "token_invalid")
        self.assertEqual(refused.header("Stripe-Should-Retry"), "false")

    def test_a_changed_file_is_read_again_and_a_broken_one_is_not_taken(self):
        old, new = Secret(kid="old"), Secret(b"another secret of thirty-two byte", kid="new")
        self.start([{**BY_TOKEN, "jwt_keys": jwks_file(self.folder, old)}])
        first = self.post(old.sign(claims_of("alice")))
        self.assert_problem(self.post(new.sign(claims_of("alice"))), 401, "token_invalid")
        jwks_file(self.folder, new)
        again = poll_until(lambda: [r for r in [self.post(new.sign(claims_of("alice")))] if r.status != 401],
                           "the new keys")[0]
        self.assertEqual((again.body, again.replayed), (first.body, True))
        # The old key is gone, also for a token that was verified with it before.
        self.assert_problem(self.post(old.sign(claims_of("alice"))), 401, "token_invalid")
        (self.folder / "jwks.json").write_text("{}")
        self.gateway.wait_for_log("identity_file_unusable")
        self.assertTrue(self.post(new.sign(claims_of("alice"))).replayed)


class KeySetUrlTest(FolderTest):
    def serve(self, *issuers, headers=()):
        self.issuer_server.always(answers(200, jwks(*issuers), headers))

    def setUp(self):
        super().setUp()
        self.issuer_server = Upstream().start()
        self.addCleanup(self.issuer_server.stop)
        self.routes = [{**BY_TOKEN, "jwt_keys": f"{self.issuer_server.url}/jwks.json"}]

    def post_when_known(self, token):
        """A client that comes again after a 503, as it should."""
        return poll_until(lambda: [r for r in [self.post(token)] if r.status != 503], "an answer other than 503")[0]

    def test_a_new_key_is_fetched_when_a_token_names_it_and_an_invented_one_is_not_fetched_for_twice(self):
        old, new = Ed25519("old"), Ed25519("new")
        self.serve(old)
        self.start(self.routes)
        first = self.post_when_known(old.sign(claims_of("alice")))
        self.assertEqual(first.status, 201)
        self.assertEqual(self.issuer_server.executions(), 1)
        self.serve(old, new)
        again = self.post_when_known(new.sign(claims_of("alice")))
        self.assertEqual((again.body, again.replayed), (first.body, True))
        self.assertEqual(self.issuer_server.executions(), 2)
        for number in range(3):
            forged = old.sign(claims_of("alice"), {"alg": "EdDSA", "kid": f"invented-{number}"})
            self.assert_problem(self.post(forged), 401, "token_invalid")
        self.assertEqual(self.issuer_server.executions(), 2)
        self.assertEqual(self.upstream.executions(), 1)

    def test_without_keys_keyed_requests_wait_and_others_pass(self):
        issuer = Ed25519("one")
        token = issuer.sign(claims_of("alice"))
        self.issuer_server.always(answers(500, b"down"))
        self.start(self.routes)
        self.gateway.wait_for_log("jwks_fetch_failed")
        refused = self.post(token)
        self.assert_problem(refused, 503, "jwks_unavailable")
        self.assertEqual(refused.header("Retry-After"), "1")
        self.assertEqual(self.upstream.executions(), 0)
        self.assertEqual(self.post(token, key=None).status, 201)
        self.assertEqual(self.gateway.metric("oncekey_jwks_usable"), 0)
        self.serve(issuer)
        self.assertEqual(self.post_when_known(token).status, 201)
        poll_until(lambda: self.gateway.metric("oncekey_jwks_usable") == 1, "the metric to say so")

    def test_a_set_stays_in_use_while_it_cannot_be_fetched_again(self):
        issuer = Ed25519("one")
        self.serve(issuer)
        self.start(self.routes)
        self.assertEqual(self.post_when_known(issuer.sign(claims_of("alice"))).status, 201)
        self.issuer_server.stop()
        unknown = issuer.sign(claims_of("alice"), {"alg": "EdDSA", "kid": "two"})
        self.assert_problem(self.post(unknown), 503, "jwks_unavailable")
        self.gateway.wait_for_log("jwks_fetch_failed")
        # Whether it is a new key cannot be said; what is known goes on.
        self.assert_problem(self.post(unknown), 503, "jwks_unavailable")
        self.assertTrue(self.post(issuer.sign(claims_of("alice"))).replayed)
        self.issuer_server.start()

    def test_what_is_no_key_set_is_not_taken(self):
        secret = Secret(kid="published")
        for what, answer in {"a page": answers(200, b"<html>"), "a redirect": answers(302, b"", [("Location", "/x")]),
                             "too much": answers(200, b" " * (1 << 20) + jwks(Ed25519()).encode()),
                             "a secret": answers(200, jwks(secret)), "nothing whole": resets()}.items():
            with self.subTest(what):
                self.issuer_server.always(answer)
                with Gateway(self.upstream.url, self.routes) as self.gateway:
                    self.gateway.wait_for_log("jwks_fetch_failed")
                    self.assert_problem(self.post(secret.sign(claims_of("alice"))), 503, "jwks_unavailable")

    def test_the_issuers_certificate_is_verified(self):
        key, certificate = str(self.folder / "id.key"), str(self.folder / "id.crt")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                        key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        secure = Upstream(tls_context=context).start()
        self.addCleanup(secure.stop)
        issuer = Ed25519("one")
        secure.always(answers(200, jwks(issuer)))
        routes = [{**BY_TOKEN, "jwt_keys": f"{secure.url}/jwks.json"}]
        with Gateway(self.upstream.url, routes) as self.gateway:
            self.gateway.wait_for_log("jwks_fetch_failed")
            self.assert_problem(self.post(issuer.sign(claims_of("alice"))), 503, "jwks_unavailable")
        self.assertEqual(secure.executions(), 0)
        with Gateway(self.upstream.url, routes, environment={"SSL_CERT_FILE": certificate}) as self.gateway:
            self.assertEqual(self.post_when_known(issuer.sign(claims_of("alice"))).status, 201)

    def test_a_gateway_ends_while_it_fetches(self):
        gate = self.issuer_server.gate()
        self.issuer_server.always(held(gate, answers(200, b"{}")))
        gateway = self.start(self.routes)
        gate.wait_for_arrival()
        gateway.stop()


class TokenConfigurationTest(FolderTest):
    def check(self, **route):
        config = self.folder / "oncekey.toml"
        config.write_text(toml({"upstream": "http://127.0.0.1:9", "store": "memory:",
                                "route": [{"path": "/*", "policy": "classic", **route}]}))
        return run_cli("check", str(config))

    def test_tokens_that_are_not_verified_have_to_be_called_so(self):
        refused = self.check(scope="jwt:sub")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("jwt_keys", refused.stderr)
        self.assertIn("jwt_unverified = true", refused.stderr)
        allowed = self.check(scope="jwt:sub", jwt_unverified=True)
        self.assertEqual(allowed.returncode, 0, allowed.stderr)
        self.assertIn("warning", allowed.stderr)

    def test_weak_keys_are_refused_at_check_and_at_start(self):
        for weak in (Secret(b"x" * 31), Secret(b"")):
            route = {"scope": "jwt:sub", "jwt_keys": jwks_file(self.folder, weak)}
            self.assertEqual(self.check(**route).returncode, 1)
            gateway = Gateway(self.upstream.url, [{"path": "/*", "policy": "classic", **route}])
            self.addCleanup(gateway.remove)
            self.assertEqual(gateway.start_expecting_refusal(), 1)
            self.assertIn("jwks.json", gateway.log)
        self.assertEqual(self.check(scope="jwt:sub", jwt_keys="file:/nowhere/jwks.json").returncode, 1)
        self.assertEqual(self.check(scope="jwt:sub", jwt_keys=jwks_file(self.folder, Secret())).returncode, 0)


class AccountsTest(FolderTest):
    def credential(self, value, **options):
        return self.gateway.client(value).post("/orders/x", key=self.key, **options)

    def test_a_rotated_api_key_keeps_its_account(self):
        accounts = self.folder / "accounts.toml"
        hashed = hashlib.sha256(b"sk_live_old").hexdigest()
        accounts.write_text(f'"sha256:{hashed}" = "acme"\n')
        self.start([{"path": "/*", "policy": "classic", "accounts": f"file:{accounts}"}])
        first = self.credential("sk_live_old")
        other = self.credential("sk_live_new")
        self.assertEqual((first.replayed, other.replayed), (False, False))
        self.key = fresh_key()
        first = self.credential("sk_live_old")
        accounts.write_text(f'"sha256:{hashed}" = "acme"\n"sk_live_new" = "acme"\n')
        self.gateway.wait_for_log("identity_file_reread")
        again = self.credential("sk_live_new")
        self.assertEqual((again.body, again.replayed), (first.body, True))
        self.assertFalse(self.credential("acme").replayed)

    def test_a_file_that_loses_an_account_is_not_taken(self):
        accounts = self.folder / "accounts.toml"
        accounts.write_text('"old" = "acme"\n"new" = "acme"\n')
        self.start([{"path": "/*", "policy": "classic", "accounts": f"file:{accounts}"}])
        first = self.credential("old")
        accounts.write_text('"new" = "acme"\n')
        self.gateway.wait_for_log("identity_file_unusable")
        self.assertEqual(self.credential("old").body, first.body)
        self.assertNotIn('"old"', self.gateway.log)


class ReauthorizeTest(FolderTest):
    """The upstream answers `GET /v1/me` as the test says, and executes everything else."""

    def setUp(self):
        super().setUp()
        self.me = answers(200, b"you")
        self.upstream.always(self.answer)

    def answer(self, exchange):
        (self.me if exchange.request.target == "/v1/me" else answers(201, b"done"))(exchange)

    def route(self, **more):
        self.start([{"path": "/*", "policy": "classic", "reauthorize": "GET /v1/me", "respond_async": True, **more}])
        self.client = self.gateway.client()

    def questions(self):
        return [request for request in self.upstream.received if request.target == "/v1/me"]

    def post(self, **options):
        return self.client.post("/orders", key=self.key, **options)

    def test_a_revoked_token_gets_no_replays(self):
        self.route()
        first = self.post()
        self.assertEqual((first.status, len(self.questions())), (201, 0))
        again = self.post(headers=[("If-None-Match", '"x"'), ("X-Tenant", "a")])
        self.assertEqual((again.body, again.replayed, len(self.questions())), (b"done", True, 1))
        question = self.questions()[0]
        self.assertEqual((question.method, question.body), ("GET", b""))
        self.assertEqual(question.header("Authorization"), "Bearer alice")
        self.assertEqual(question.header("X-Tenant"), "a")
        for absent in ("Idempotency-Key", "Content-Length", "Content-Type", "If-None-Match", "Oncekey-Fence"):
            self.assertFalse(question.has(absent), absent)
        for status in (401, 403):
            self.me = answers(status, b"revoked", [("WWW-Authenticate", "Bearer"), ("X-Said", "so")])
            refused = self.post()
            self.assertEqual((refused.status, refused.body, refused.replayed), (status, b"revoked", False))
            self.assertEqual(refused.header("X-Said"), "so")
        self.assertEqual(self.upstream.executions(self.key), 1)

    def test_any_other_answer_is_no_consent(self):
        self.route(upstream_timeout="2s")
        self.post()
        for what, answer in {"500": answers(500, b"x"), "404": answers(404, b"x"), "302": answers(302, b""),
                             "429": answers(429, b"x"), "reset": resets()}.items():
            with self.subTest(what):
                self.me = answer
                refused = self.post()
                self.assert_problem(refused, 503, "not_reauthorized")
                self.assertEqual(refused.header("Retry-After"), "1")
                self.assertNotIn(b"done", refused.body)
        self.me = answers(204, b"")
        self.assertTrue(self.post().replayed)
        self.assertEqual(self.upstream.executions(self.key), 1)

    def test_the_status_url_asks_too(self):
        self.route()
        url = self.post(headers=[("Prefer", "respond-async")]).header("Location")
        poll_until(lambda: self.client.get(url).replayed, "the answer")
        self.me = answers(401, b"revoked")
        self.assertEqual(self.client.get(url).body, b"revoked")
        self.me = answers(500, b"x")
        self.assert_problem(self.client.get(url), 503, "not_reauthorized")

    def test_a_yes_is_remembered_for_one_caller_with_the_same_credentials(self):
        self.route(reauthorize_for="1h", scope="header:X-Tenant")
        tenant = [("X-Tenant", "a")]
        self.post(headers=tenant)
        for number in range(3):
            self.assertTrue(self.post(headers=[*tenant, ("X-Request-Id", str(number))]).replayed)
        self.assertEqual(len(self.questions()), 1)
        self.me = answers(401, b"who are you")
        self.assertTrue(self.post(headers=tenant).replayed)
        # Another credential of the same account was not asked about yet.
        other = self.gateway.client("mallory").post("/orders", key=self.key, headers=tenant)
        self.assertEqual(other.status, 401)
        self.assertEqual(self.post(headers=[*tenant, ("X-Api-Key", "another")]).status, 401)


class ClientCertificateTest(FolderTest):
    """Certificates are made by the openssl command for this run alone."""

    def setUp(self):
        super().setUp()
        self.authority("ca")
        self.certificate("server", "ca", "DNS:localhost", use="serverAuth")

    def file(self, name, kind):
        return str(self.folder / f"{name}.{kind}")

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                     "-subj", f"/CN={name}", "-keyout", self.file(name, "key"), "-out", self.file(name, "crt"))

    def certificate(self, name, issuer, alternative, subject=None, use="clientAuth"):
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"extendedKeyUsage={use}\n" +
                              (f"subjectAltName={alternative}\n" if alternative else ""))
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                     f"/CN={subject or name}", "-keyout", self.file(name, "key"), "-out", self.file(name, "csr"))
        self.openssl("x509", "-req", "-in", self.file(name, "csr"), "-CA", self.file(issuer, "crt"), "-CAkey",
                     self.file(issuer, "key"), "-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out",
                     self.file(name, "crt"))

    def client(self, name=None):
        context = ssl.create_default_context(cafile=self.file("ca", "crt"))
        if name:
            context.load_cert_chain(self.file(name, "crt"), self.file(name, "key"))
        return Client(self.gateway.address, tls_context=context)

    def start_with_certificates(self):
        self.start([{"path": "/cert/*", "policy": "classic", "scope": "client-cert"},
                    {"path": "/*", "policy": "classic"}],
                   tls_cert=self.file("server", "crt"), tls_key=self.file("server", "key"),
                   client_ca=self.file("ca", "crt"))

    def by(self, name):
        return self.client(name).post("/cert/x", key=self.key)

    def test_the_account_is_the_name_in_the_certificate(self):
        self.certificate("one", "ca", "URI:spiffe://test/alice,DNS:a.test")
        self.certificate("renewed", "ca", "DNS:b.test,URI:spiffe://test/alice")
        self.certificate("other", "ca", "URI:spiffe://test/bob,DNS:a.test")
        self.certificate("dns", "ca", "DNS:spiffe.test")
        self.certificate("dns-again", "ca", "DNS:SPIFFE.test", subject="another")
        self.certificate("subject", "ca", None, subject="carol")
        self.certificate("subject-again", "ca", None, subject="carol")
        self.start_with_certificates()
        first = self.by("one")
        self.assertEqual((first.status, first.replayed), (201, False), first)
        self.assertEqual([self.by(name).replayed for name in ("renewed", "other", "dns", "dns-again", "subject",
                                                              "subject-again")],
                         [True, False, False, True, False, True])

    def test_a_route_that_needs_one_refuses_requests_without_and_others_do_not_care(self):
        self.certificate("one", "ca", "URI:spiffe://test/alice")
        self.start_with_certificates()
        self.assert_problem(self.by(None), 400, "principal_missing")
        self.assertEqual(self.client().post("/else", key=self.key).status, 201)
        self.assertEqual(self.client("one").post("/else", key=self.key).status, 201)

    def test_a_certificate_of_another_authority_or_for_servers_is_not_accepted(self):
        self.authority("evil")
        self.certificate("forged", "evil", "URI:spiffe://test/alice")
        self.certificate("one", "ca", "URI:spiffe://test/alice")
        self.certificate("misused", "ca", "URI:spiffe://test/alice", use="serverAuth")
        self.start_with_certificates()
        self.assertEqual(self.by("one").status, 201)
        for name in ("forged", "misused", "server"):
            self.key = fresh_key()
            with self.subTest(name), self.assertRaises((OSError, Malformed)):
                self.by(name)
        self.assertEqual(self.upstream.executions(), 1)

    def test_a_resumed_session_is_the_same_caller(self):
        self.certificate("one", "ca", "URI:spiffe://test/alice")
        self.start_with_certificates()
        client = self.client("one")
        client.tls_context.maximum_version = ssl.TLSVersion.TLSv1_2
        with client.connect() as connection:
            first = client.post("/cert/x", key=self.key, connection=connection)
            session = connection.socket.session
        sock = client.tls_context.wrap_socket(socket.create_connection(self.gateway.address), session=session,
                                              server_hostname="localhost")
        with sock:
            self.assertTrue(sock.session_reused)
            sock.sendall(client.request_bytes("POST", "/cert/x", key=self.key, body=b'{"amount":100}'))
            self.assertIn(b"Idempotent-Replayed: true", sock.recv(65536))
        self.assertEqual(first.status, 201)


if __name__ == "__main__":
    unittest.main()
