"""Other spellings of a path, a method, an account: none leaves its route, and none is executed a second time."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.cases import GatewayTest, fresh_key
from support.client import Client
from support.gateway import Gateway, free_port
from support.upstream import Upstream
from support.waiting import poll_until

ALIASES = ("/orders/", "//orders", "/./orders", "/x/../orders", "/%6frders", "/%6Frders", "/orders;a=1", "/orders/.",
           "/x/%2e%2e/orders")
# Servers disagree on what these are.
AMBIGUOUS = ("/v1%2forders", "/x%2f..%2forders", "/v1\\orders", "/v1%5Corders", "/%256frders", "/../orders",
             "/orders%00", "/orders%3ba=1", "/x/..;/orders", "/a//../../orders", "/v1/%zz", "/v1/caf\xe9",
             "/v1/../orders")


class PathsTest(GatewayTest):
    routes = [{"path": "/orders", "key": "required"}, {"path": "/v1/*", "key": "required"},
              {"path": "/single", "policy": "stripe-v1"}]

    def test_no_spelling_of_a_path_goes_without_the_key_that_its_route_requires(self):
        for path in ("/orders", *ALIASES, "/v1", "/v1/"):
            with self.subTest(path=path):
                self.assert_problem(self.post(path, key=None), 400, "key_missing")
        self.assert_executed(0)

    def test_another_spelling_under_the_same_key_is_a_mismatch(self):
        first = self.post("/orders")
        self.assert_first(first)
        for path in ALIASES:
            with self.subTest(path=path):
                self.assert_problem(self.post(path), 422, "mismatch")
        self.assert_replay_of(first, self.post("/orders"))
        self.assert_executed(1)

    def test_a_path_that_servers_read_in_different_ways_is_refused_where_one_of_them_is_protected(self):
        for path in AMBIGUOUS:
            for key in (self.key, None):
                with self.subTest(path=path, key=key):
                    self.assert_problem(self.post(path, key=key), 400, "path_ambiguous")
        self.assert_executed(0)

    def test_it_passes_where_nothing_is_protected(self):
        for path in ("/files/a%2Fb", "/files/a\\b", "/files/caf\xe9", "/files/%zz", "/../files"):
            with self.subTest(path=path):
                self.assertEqual(self.post(path).status, 201)
                self.assertEqual(self.upstream.last.target, path)
        self.assertEqual(self.client.get("/v1/a%2Fb", key=self.key).status, 201, "GET is not protected")

    def test_what_is_forwarded_is_the_target_as_sent(self):
        self.assert_first(self.post("//v1/./charges%20x/?a=%2F"))
        self.assertEqual(self.upstream.last.target, "//v1/./charges%20x/?a=%2F")

    def test_methods_have_one_spelling(self):
        for method in ("post", "Post", "pOST", "patch"):
            with self.subTest(method=method):
                self.assertEqual(self.client.request(method, "/orders", body=b"{}").status, 400)
                self.assertEqual(self.client.request(method, "/elsewhere", body=b"{}").status, 400)
        self.assert_executed(0)

    def test_a_status_url_is_that_of_every_spelling(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, [{"path": "/orders", "respond_async": True}]) as gateway:
            prefer = [("Prefer", "respond-async")]
            first = gateway.client().post("/orders", key="k", headers=prefer)
            self.assertEqual(first.status, 202)
            url = first.header("Location")
            for spelling in (url, url.replace("/.well-known", "//.well-known"), url.replace("oncekey", "%6Fncekey")):
                poll_until(lambda: gateway.client().get(spelling).status == 201, f"the answer at {spelling}")


class PathSettingsTest(GatewayTest):
    routes = [{"path": "/Any/*", "path_case": "ignore", "key": "required"},
              {"path": "/projects/*", "allow_encoded_slash": True}, {"path": "/orders"},
              {"path": "/seen/*", "mode": "observe"}]

    def test_a_route_that_observes_refuses_nothing(self):
        self.assertEqual(self.post("/seen/a%2Fb").status, 201)
        self.assertEqual(self.gateway.metric("oncekey_requests_total", route="/seen/*", decision="observed_refusal"), 1)
        self.assert_problem(self.post("/seen%2F..%2Forders"), 400, "path_ambiguous")

    def test_the_case_of_a_path_is_ignored_where_the_api_does(self):
        for path in ("/any", "/ANY/x"):
            self.assert_problem(self.post(path, key=None), 400, "key_missing")
        self.assert_first(self.post("/any/x"))
        self.assert_problem(self.post("/ANY/X"), 422, "mismatch")
        self.assert_executed(1)

    def test_encoded_slashes_may_be_allowed(self):
        first = self.post("/projects/group%2Fproject/issues")
        self.assert_first(first)
        self.assert_replay_of(first, self.post("/projects/group%2Fproject/issues"))
        self.assert_problem(self.post("/projects/group/project/issues"), 422, "mismatch")
        self.assert_problem(self.post("/projects/%2e%2e%2Forders"), 400, "path_ambiguous")
        self.assert_executed(1)


class AccountsTest(GatewayTest):
    routes = [{"path": "/cookie", "scope": "cookie:sid"}, {"path": "/limited", "rate": "1/h", "burst": 1}, {"path": "/*"}]

    def as_account(self, authorization, target="/charges"):
        return self.post(target, authorization=False, headers=[("Authorization", authorization)])

    def with_cookie(self, cookie):
        return self.post("/cookie", authorization=False, headers=[("Cookie", cookie)])

    def test_the_scheme_of_credentials_has_many_spellings(self):
        first = self.as_account("Bearer tok")
        for spelling in ("bearer tok", "BEARER tok", "Bearer  tok", "Bearer\ttok"):
            with self.subTest(spelling=spelling):
                self.assert_replay_of(first, self.as_account(spelling))
        self.assert_first(self.as_account("Bearer TOK"))
        self.assert_executed(2)

    def test_they_share_one_bucket_too(self):
        self.key = None
        self.assertEqual(self.as_account("Bearer limited", "/limited").status, 201)
        for spelling in ("bearer limited", "Bearer   limited"):
            self.assertEqual(self.as_account(spelling, "/limited").status, 429)

    def test_a_cookie_has_many_spellings(self):
        first = self.with_cookie("sid=A")
        for spelling in ('sid="A"', "x=1;\tsid=A", "sid =A", "sid= A"):
            with self.subTest(spelling=spelling):
                self.assert_replay_of(first, self.with_cookie(spelling))
        self.assert_executed(1)

    def test_a_cookie_that_the_api_may_see_twice_is_refused(self):
        for cookie in ("sid=A;\tsid=B", "sid=A; sid =B", 'sid=A; sid="A"'):
            with self.subTest(cookie=cookie):
                self.assert_problem(self.with_cookie(cookie), 400, "principal_missing")
        self.assert_executed(0)


class WebhooksTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.receiver = Upstream().start()
        self.addCleanup(self.receiver.stop)
        hook = hooks.hook("stripe", self.receiver.url + "/events")
        github = hooks.hook("github", self.receiver.url + "/events")
        self.gateway = Gateway(self.upstream.url, [{"path": "/orders"}], webhook=[hook, github])
        self.addCleanup(self.gateway.remove)
        self.gateway.start()

    def test_an_unsigned_post_does_not_pass_by_the_webhook_under_another_spelling(self):
        client = Client(self.gateway.address)
        for path in ("/hooks/stripe", "//hooks/stripe", "/hooks/%73tripe", "/hooks/stripe/", "/hooks/./stripe",
                     "/x/../hooks/stripe", "/hooks/stripe;a", "/hooks%2Fstripe", "/hooks\\stripe", "/hooks/%2573tripe"):
            with self.subTest(path=path):
                self.assertEqual(client.post(path, body=b'{"id":"evt_forged"}').status, 400)
        self.assertEqual(self.upstream.executions(), 0)
        self.assertEqual(self.receiver.executions(), 0)

    def test_a_signed_one_is_taken_under_each(self):
        for number, path in enumerate(("/hooks/stripe", "//hooks/stripe", "/hooks/%73tripe")):
            body, headers = hooks.stripe(f"evt_{number}")
            response = Client(self.gateway.address).post(path, body=body, headers=headers, authorization=False)
            self.assertEqual(response.status, 200, response)
        self.receiver.wait_for_executions(3)

    def test_a_captured_github_delivery_is_not_delivered_again_under_a_new_id(self):
        def send(event_id, body=None):
            body, headers = hooks.github(event_id, body)
            response = Client(self.gateway.address).post("/hooks/github", body=body, headers=headers,
                                                         authorization=False)
            self.assertEqual(response.status, 200, response)
            return body, response.json()["duplicate"]

        body, duplicate = send("11111111-aaaa")
        self.assertFalse(duplicate)
        self.assertTrue(send("11111111-aaaa", body)[1], "GitHub's own redelivery")
        self.assertTrue(send("22222222-bbbb", body)[1], "the captured one")
        self.assertFalse(send("33333333-cccc")[1], "another event")
        self.receiver.wait_for_executions(2)
        keys = {request.key for request in self.receiver.received}
        self.assertEqual(keys, {"11111111-aaaa", "33333333-cccc"})


@unittest.skipUnless(shutil.which("nginx"), "nginx is not installed")
class BehindNginxTest(unittest.TestCase):
    """An ordinary nginx as the API: it merges slashes, decodes and resolves dots by itself."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-nginx-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.port = free_port()
        (cls.folder / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {cls.folder}/pid; error_log stderr;
events {{}}
http {{
  access_log {cls.folder}/access.log;
  client_body_temp_path {cls.folder}/body; proxy_temp_path {cls.folder}/proxy; fastcgi_temp_path {cls.folder}/fastcgi;
  uwsgi_temp_path {cls.folder}/uwsgi; scgi_temp_path {cls.folder}/scgi;
  server {{
    listen 127.0.0.1:{cls.port};
    location = /orders {{ return 201 "order placed"; }}
    location / {{ return 404 "nothing here"; }}
  }}
}}
""")
        process = subprocess.Popen(["nginx", "-c", str(cls.folder / "nginx.conf"), "-p", str(cls.folder)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)
        poll_until(cls.nginx_answers, "nginx to answer")
        cls.gateway = Gateway(f"http://127.0.0.1:{cls.port}", [{"path": "/orders", "key": "required"}])
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()

    @classmethod
    def nginx_answers(cls):
        try:
            return Client(("127.0.0.1", cls.port)).get("/").status == 404
        except OSError:
            return False

    def test_one_key_places_one_order_whatever_the_spelling(self):
        key = fresh_key()
        client = Client(self.gateway.address)
        self.assertEqual(client.post("/orders", key=key).body, b"order placed")
        self.assertTrue(client.post("/orders", key=key).replayed)
        for path in (*ALIASES, "/../orders", "/x%2f..%2forders", "/%256frders"):
            with self.subTest(path=path):
                response = client.post(path, key=key)
                self.assertNotIn(b"order placed", response.body)
                self.assertNotIn(b"order placed", client.post(path).body, "without a key")


if __name__ == "__main__":
    unittest.main()
