"""Webhooks in, messages out: what senders, receivers and operators see."""

import base64
import http.client
import json
import pathlib
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.gateway import Gateway, run_cli
from support.upstream import Upstream, answers, held, resets
from support.waiting import poll_until

PROVIDERS = ("stripe", "github", "shopify", "standard", "slack")


class DeliveryTest(unittest.TestCase):
    """A gateway with a webhook for every provider, an outbox, and one receiver behind all of them."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.receiver = Upstream().start()
        cls.addClassCleanup(cls.receiver.stop)
        cls.gateway = cls.make_gateway(store="journal")
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()

    @classmethod
    def make_gateway(cls, **settings):
        url = cls.receiver.url
        tables = [hooks.hook(name, f"{url}/events/{name}", **cls.settings) for name in PROVIDERS]
        destinations = [{"name": "billing", "url": f"{url}/billing?from=outbox", "first_pause": "100ms",
                         "longest_pause": "500ms", "authorization": hooks.kept("billing", "Bearer of-billing")}]
        return Gateway(url, webhook=tables, destination=destinations, outbox="127.0.0.1:0", **settings)

    def setUp(self):
        self.receiver.reset()
        self.receiver.always(answers(200))
        self.event = f"evt_{self.id().rsplit('.', 1)[-1]}_{time.time_ns()}"

    def send(self, provider, signed, target=None):
        body, headers = signed
        return self.gateway.client().post(target or f"/hooks/{provider}", body=body, headers=headers,
                                          authorization=False)

    def delivered(self, key):
        return [request for request in list(self.receiver.received) if request.complete and request.key == key]

    def wait_for_delivery(self, key, count=1):
        self.receiver.wait_for(lambda: len(self.delivered(key)) >= count, f"{count} deliveries of {key}")
        return self.delivered(key)

    def job(self, key, state=None):
        """The line of `oncekey jobs list` for a key, once it is there (in a state)."""
        def look(jobs):
            for job in jobs:
                if job["key"] == key and state in (None, job["state"]):
                    return job
            return None

        what = f"a job {key} in state {state}"
        # A process for each look would keep the machine busy.
        poll_until(lambda: look(self.gateway.admin.get("/api/jobs?limit=1000").json()["jobs"]), what)
        return poll_until(lambda: look(self.jobs()), what)

    def jobs(self):
        done = run_cli("jobs", "list", "--json", "--limit", "1000", "--admin", self.admin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["jobs"]

    @property
    def admin(self):
        return "{}:{}".format(*self.gateway.admin_address)

    def outbox(self, key, body=b"{}", destination="billing", headers=()):
        host, port = self.gateway.outbox_address
        connection = http.client.HTTPConnection(host, port, timeout=30)
        try:
            fields = {"Idempotency-Key": key, "Oncekey-Destination": destination, "Content-Type": "application/json",
                      **dict(headers)}
            connection.request("POST", "/outbox", body, {name: value for name, value in fields.items() if value})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


class InboxTest(DeliveryTest):
    def test_every_provider_is_believed_and_its_event_delivered_as_it_came(self):
        for provider in PROVIDERS:
            with self.subTest(provider):
                event = f"{self.event}_{provider}"
                body, headers = getattr(hooks, provider)(event)
                self.assertEqual(self.send(provider, (body, headers)).status, 200)
                request, = self.wait_for_delivery(event)
                self.assertEqual((request.method, request.target), ("POST", f"/events/{provider}"))
                self.assertEqual(request.body, body)
                for name, value in headers:
                    self.assertEqual(request.header(name), value)
                self.assertEqual(request.header("Oncekey-Attempt"), "1")

    def test_standard_webhooks_may_use_the_names_of_svix(self):
        self.assertEqual(self.send("standard", hooks.standard(self.event, prefix="svix")).status, 200)
        self.wait_for_delivery(self.event)

    def test_a_repetition_is_acknowledged_and_delivered_once(self):
        for _ in range(3):
            self.assertEqual(self.send("stripe", hooks.stripe(self.event)).status, 200)
        self.job(self.event, "delivered")
        self.assertEqual(self.send("stripe", hooks.stripe(self.event)).status, 200)
        self.assertEqual(len(self.delivered(self.event)), 1)

    def test_the_same_event_many_times_at_once_is_delivered_once(self):
        statuses = []
        signed = hooks.stripe(self.event)

        def storm():
            for _ in range(25):
                statuses.append(self.send("stripe", signed).status)

        threads = [threading.Thread(target=storm) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(statuses, [200] * 1000)
        self.job(self.event, "delivered")
        self.assertEqual(len(self.delivered(self.event)), 1)

    def test_what_is_not_believed_is_refused_and_leaves_no_trace(self):
        now = time.time()
        body, headers = hooks.stripe(self.event)
        signature = dict(headers)["Stripe-Signature"]
        upper = signature.split("v1=")[0] + "v1=" + signature.split("v1=")[1].upper()
        altered = {
            "another body": (body + b" ", headers),
            "another secret": hooks.stripe(self.event, secret="whsec_other"),
            "too old": hooks.stripe(self.event, at=now - 3600),
            "from the future": hooks.stripe(self.event, at=now + 3600),
            "no signature": (body, []),
            "no time": (body, [("Stripe-Signature", "v1=" + "0" * 64)]),
            "upper-case hex": (body, [("Stripe-Signature", upper)]),
            "nonsense": (body, [("Stripe-Signature", "\x7f,,==")]),
        }
        for name, signed in altered.items():
            with self.subTest(name):
                self.assertEqual(self.send("stripe", signed).status, 400)
        self.assertEqual([job for job in self.jobs() if job["key"] == self.event], [])
        self.assertEqual(self.delivered(self.event), [])

    def test_one_good_signature_among_several_is_enough(self):
        body, headers = hooks.stripe(self.event)
        signature = dict(headers)["Stripe-Signature"]
        both = signature.replace("v1=", "v1=" + "0" * 64 + ",v1=")
        self.assertEqual(self.send("stripe", (body, [("Stripe-Signature", both)])).status, 200)

    def test_slack_asks_whether_anybody_is_there(self):
        challenge = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"})
        answer = self.send("slack", hooks.slack("", challenge.encode()))
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.body, b"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")

    def test_a_body_of_a_mebibyte_arrives_byte_for_byte(self):
        body = bytes(range(256)) * 4096
        self.assertEqual(self.send("github", hooks.github(self.event, body)).status, 200)
        self.assertEqual(self.wait_for_delivery(self.event)[0].body, body)

    def test_only_posts_are_webhooks(self):
        answer = self.gateway.client().get("/hooks/stripe")
        self.assertEqual((answer.status, answer.header("Allow")), (405, "POST"))

    def test_secrets_are_neither_in_the_log_nor_in_listings(self):
        self.send("stripe", hooks.stripe(self.event, secret="whsec_other"))
        self.send("stripe", hooks.stripe(self.event))
        self.job(self.event, "delivered")
        for secret in hooks.SECRETS.values():
            self.assertNotIn(secret, self.gateway.log)
            self.assertNotIn(secret, json.dumps(self.jobs()))

    def test_both_secrets_count_while_they_are_rotated(self):
        table = hooks.hook("stripe", f"{self.receiver.url}/events", secrets=[hooks.kept("old", "whsec_old"), "env:NEW_SECRET"])
        with Gateway(self.receiver.url, webhook=[table], environment={"NEW_SECRET": "whsec_new"}) as gateway:
            for secret, status in (("whsec_old", 200), ("whsec_new", 200), ("whsec_stripe", 400)):
                body, headers = hooks.stripe(f"{self.event}_{secret}", secret=secret)
                answer = gateway.client().post("/hooks/stripe", body=body, headers=headers, authorization=False)
                self.assertEqual(answer.status, status, secret)

    def test_a_scheme_of_ones_own(self):
        table = {"path": "/hooks/own", "provider": "hmac", "secrets": [hooks.kept("own", "sesame")],
                 "signature_header": "X-Own-Signature",
                 "algorithm": "sha512", "encoding": "base64", "signed": "{timestamp}:{id}:{body}",
                 "timestamp_header": "X-Own-Time", "id_header": "X-Own-Id", "deliver_to": f"{self.receiver.url}/own"}
        with Gateway(self.receiver.url, webhook=[table]) as gateway:
            stamp, body = str(int(time.time())), b"any:thing"
            signature = base64.b64encode(
                hooks.mac("sesame", f"{stamp}:{self.event}:".encode() + body, "sha512").digest()).decode()

            def sent(event, given):
                headers = [("X-Own-Signature", signature), ("X-Own-Time", stamp), ("X-Own-Id", event)]
                return gateway.client().post("/hooks/own", body=given, headers=headers, authorization=False).status

            self.assertEqual(sent(self.event, body), 200)
            self.assertEqual(sent(self.event, b"other"), 400)
            # The same signed bytes, cut elsewhere: another event would be made of one.
            self.assertEqual(sent(f"{self.event}:any", b"thing"), 400)
            self.wait_for_delivery(self.event)

    def test_what_slack_sends_without_an_id_is_named_by_its_body(self):
        body = json.dumps({"type": "app_rate_limited", "minute_rate_limited": time.time_ns()}).encode()
        for duplicate in (False, True):
            answer = self.send("slack", hooks.slack(None, body))
            self.assertEqual((answer.status, json.loads(answer.body)["duplicate"]), (200, duplicate))

    def test_the_query_of_an_event_is_told(self):
        body, headers = hooks.github(self.event)
        self.gateway.client().post("/hooks/github?tenant=7&x=%20", body=body, authorization=False,
                                   headers=headers + [("Oncekey-Query", "forged")])
        self.assertEqual(self.wait_for_delivery(self.event)[0].all("Oncekey-Query"), ["tenant=7&x=%20"])


class DeliveriesTest(DeliveryTest):
    def test_what_fails_is_tried_again_with_the_same_key_until_it_succeeds(self):
        self.receiver.will(answers(500), resets(), answers(404), answers(200))
        self.send("github", hooks.github(self.event))
        requests = self.wait_for_delivery(self.event, 4)
        self.assertEqual([request.header("Oncekey-Attempt") for request in requests], ["1", "2", "3", "4"])
        job = self.job(self.event, "delivered")
        self.assertEqual(job["attempts"], 4)

    def test_a_receiver_that_is_not_there_is_waited_for(self):
        self.receiver.stop()
        self.send("github", hooks.github(self.event))
        job = self.job(self.event, "waiting")
        self.assertGreaterEqual(poll_until(lambda: self.job(self.event)["attempts"], "an attempt"), 1)
        self.assertEqual(job["destination"], "hook /hooks/github")
        self.receiver.start()
        self.job(self.event, "delivered")

    def test_a_message_whose_budget_is_spent_is_a_dead_letter_until_an_operator_decides(self):
        table = hooks.hook("github", f"{self.receiver.url}/dead", budget="300ms")
        with Gateway(self.receiver.url, webhook=[table], store="journal") as gateway:
            self.gateway = gateway
            self.receiver.always(answers(503))
            for name in ("a", "b"):
                self.send("github", hooks.github(f"{self.event}_{name}"))
            for name in ("a", "b"):
                job = self.job(f"{self.event}_{name}", "dead")
                self.assertEqual(job["last"].split()[0], "503")
                self.assertEqual(job["why_dead"], "not delivered within 300ms")
            self.receiver.always(answers(200))
            first = self.job(f"{self.event}_a")["id"]
            second = self.job(f"{self.event}_b")["id"]
            gateway.stop()
            gateway.start()  # a dead letter survives that

            done = run_cli("jobs", "retry", first, "--reason", "mended", "--yes", "--admin", self.admin)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.job(f"{self.event}_a", "delivered")
            attempts = len(self.delivered(f"{self.event}_b"))
            done = run_cli("jobs", "drop", second[:12], "--reason", "nobody wants it", "--yes", "--admin", self.admin)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.job(f"{self.event}_b", "dropped")["last"].split()[0], "503")
            self.assertIn("action=drop", gateway.log)
            done = run_cli("jobs", "retry", second, "--reason", "after all", "--yes", "--admin", self.admin)
            self.assertEqual(done.returncode, 1)
            self.assertIn("not kept", done.stderr)
            self.assertEqual(len(self.delivered(f"{self.event}_b")), attempts)
            # The event is still known: a repetition is not delivered.
            self.assertEqual(self.send("github", hooks.github(f"{self.event}_b")).status, 200)

    def test_a_delivered_message_can_be_sent_again(self):
        self.send("github", hooks.github(self.event))
        job = self.job(self.event, "delivered")
        done = run_cli("jobs", "retry", job["id"], "--reason", "the receiver lost it", "--yes", "--admin", self.admin)
        self.assertEqual(done.returncode, 0, done.stderr)
        requests = self.wait_for_delivery(self.event, 2)
        self.assertEqual(requests[0].body, requests[1].body)
        self.assertEqual(requests[1].header("Oncekey-Attempt"), "2")

    def test_one_message_is_shown_whole(self):
        self.send("github", hooks.github(self.event, b"the body"))
        job = self.job(self.event, "delivered")
        done = run_cli("jobs", "show", job["id"][:12], "--admin", self.admin)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the body", done.stdout)
        self.assertIn(self.event, done.stdout)
        self.assertNotIn(self.event, run_cli("keys", "list", "--admin", self.admin).stdout)

    def test_a_receiver_may_ask_for_patience(self):
        self.receiver.will(answers(503, headers=[("Retry-After", "3600")]))
        self.send("github", hooks.github(self.event))
        self.wait_for_delivery(self.event)
        job = poll_until(lambda: (lambda job: job if job["attempts"] else None)(self.job(self.event)), "the attempt")
        received = time.mktime(time.strptime(job["received"][:19], "%Y-%m-%dT%H:%M:%S"))
        due = time.mktime(time.strptime(job["next_attempt"][:19], "%Y-%m-%dT%H:%M:%S"))
        self.assertGreaterEqual(due - received, 3590)

    def test_no_more_than_the_limit_are_on_their_way_at_one_time(self):
        tables = [hooks.hook("github", f"{self.receiver.url}/few", concurrency=2),
                  hooks.hook("shopify", f"{self.receiver.url}/other")]
        with Gateway(self.receiver.url, webhook=tables) as gateway:
            self.gateway = gateway
            gate = self.receiver.gate()
            self.receiver.always(held(gate, answers(200)))
            for number in range(6):
                self.send("github", hooks.github(f"{self.event}_{number}"))
            gate.wait_for_arrival(2)
            # One for another receiver that comes later is on its way: so would be the others by now.
            self.send("shopify", hooks.shopify(self.event))
            gate.wait_for_arrival(3)
            self.assertEqual(gateway.metric("oncekey_jobs_under_way", destination="hook /hooks/github"), 2)
            self.assertEqual(sum(1 for request in self.receiver.received if request.target == "/few"), 2)
            gate.open()
            self.receiver.wait_for_executions(7)

    def test_a_receiver_that_hangs_holds_up_nobody_else(self):
        tables = [hooks.hook("github", f"{self.receiver.url}/hangs", concurrency=1, timeout="20s"),
                  hooks.hook("shopify", f"{self.receiver.url}/works")]
        with Gateway(self.receiver.url, webhook=tables, store="journal", drain_timeout="1s") as gateway:
            self.gateway = gateway
            gate = self.receiver.gate()
            self.receiver.will(held(gate, answers(200)))
            for number in range(100):
                self.send("github", hooks.github(f"{self.event}_{number}"))
            gate.wait_for_arrival()
            self.send("shopify", hooks.shopify(self.event))
            self.wait_for_delivery(self.event)
            self.assertEqual(sum(1 for r in self.receiver.received if r.target == "/hangs"), 1)
            self.assertEqual(gateway.metric("oncekey_job_attempts_total", destination="hook /hooks/github",
                                            outcome="put_back"), 0)
            gate.open()
            self.receiver.wait_for_executions(101)

    def test_keys_do_not_act_on_messages(self):
        self.receiver.always(answers(500))
        self.send("github", hooks.github(self.event))
        job = self.job(self.event)
        done = run_cli("keys", "release", job["id"], "--reason", "by mistake", "--yes", "--admin", self.admin)
        self.assertEqual(done.returncode, 1)
        self.assertIn("oncekey jobs", done.stderr)
        self.receiver.always(answers(200))
        self.job(self.event, "delivered")

    def test_the_senders_credentials_give_way_to_ours(self):
        table = hooks.hook("github", f"{self.receiver.url}/own", authorization=hooks.kept("ours", "Bearer ours"))
        with Gateway(self.receiver.url, webhook=[table]) as gateway:
            self.gateway = gateway
            body, headers = hooks.github(self.event)
            self.send("github", (body, headers + [("Authorization", "Bearer theirs")]))
            self.assertEqual(self.wait_for_delivery(self.event)[0].all("Authorization"), ["Bearer ours"])

    def test_large_messages_for_a_receiver_that_hangs_hold_up_nobody_else(self):
        hanging = Upstream().start()
        self.addCleanup(hanging.stop)
        gate = hanging.gate()
        hanging.always(held(gate, answers(200)))
        tables = [hooks.hook("github", f"{hanging.url}/hangs", timeout="60s"),
                  hooks.hook("shopify", f"{self.receiver.url}/works")]
        with Gateway(self.receiver.url, webhook=tables, limits={"max_buffered_bytes": "16MiB"}) as gateway:
            self.gateway = gateway
            for number in range(5):
                self.send("github", hooks.github(f"{self.event}_{number}", b"%d" % number + b"x" * (3 << 20)))
            gate.wait_for_arrival()
            # The gateway looks for messages of all endpoints at once: when the first one of this endpoint has arrived,
            # it has looked for the others of the endpoint that hangs too.
            for event in (f"{self.event}_s", f"{self.event}_t"):
                self.send("shopify", hooks.shopify(event))
                self.wait_for_delivery(event)
            self.assertEqual(gateway.client().post(key=f"{self.event}_api").status, 200)
            gate.open()
            hanging.wait_for_executions(5)

    def staged_and_left(self, **settings):
        """A gateway whose store has a job of a webhook that its configuration does not have any more."""
        self.receiver.always(answers(500))
        gateway = Gateway(self.receiver.url, webhook=[hooks.hook("github", f"{self.receiver.url}/e")], store="journal",
                          **settings)
        self.addCleanup(gateway.remove)
        gateway.start()
        self.gateway = gateway
        self.send("github", hooks.github(self.event))
        self.wait_for_delivery(self.event)
        gateway.stop()
        self.was = gateway.settings["webhook"]
        gateway.settings["webhook"] = [hooks.hook("github", f"{self.receiver.url}/e", path="/hooks/renamed")]
        gateway.start()
        return gateway

    def test_a_job_without_its_endpoint_waits_a_while_and_says_so(self):
        self.staged_and_left()
        job = self.job(self.event, "waiting")
        done = run_cli("jobs", "retry", job["id"], "--reason", "now", "--yes", "--admin", self.admin)
        self.assertEqual(done.returncode, 1)
        self.assertIn("hook /hooks/github", done.stderr)

    def test_a_job_whose_endpoint_is_gone_is_a_dead_letter_that_can_be_retried_when_it_is_back(self):
        gateway = self.staged_and_left(orphan_after="100ms")
        job = self.job(self.event, "dead")
        self.assertEqual(job["why_dead"], "no webhook or destination of this name is configured")
        self.assertEqual(poll_until(lambda: gateway.metric("oncekey_jobs", destination="hook /hooks/github", state="dead"),
                                    "the count of dead letters"), 1)
        self.assertIn("event=jobs_left_behind", gateway.log)
        done = run_cli("jobs", "retry", job["id"], "--reason", "now", "--yes", "--admin", self.admin)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no webhook or destination of this name is configured", done.stderr)
        gateway.stop()
        gateway.settings["webhook"] = self.was
        self.receiver.always(answers(200))
        gateway.start()
        done = run_cli("jobs", "retry", job["id"], "--reason", "it is back", "--yes", "--admin", self.admin)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.job(self.event, "delivered")

    def test_a_job_whose_webhooks_are_all_gone_is_a_dead_letter_too(self):
        gateway = self.staged_and_left(orphan_after="100ms")
        gateway.stop()
        del gateway.settings["webhook"]
        gateway.start()
        self.job(self.event, "dead")

    def test_jobs_are_listed_by_endpoint(self):
        tables = [hooks.hook("github", f"{self.receiver.url}/a"), hooks.hook("shopify", f"{self.receiver.url}/b")]
        with Gateway(self.receiver.url, webhook=tables) as gateway:
            self.gateway = gateway
            self.send("github", hooks.github(f"{self.event}_a"))
            self.send("shopify", hooks.shopify(f"{self.event}_b"))
            done = run_cli("jobs", "list", "--json", "--destination", "hook /hooks/shopify", "--admin", self.admin)
            self.assertEqual([job["key"] for job in json.loads(done.stdout)["jobs"]], [f"{self.event}_b"])

    def test_what_a_killed_gateway_was_delivering_is_delivered_at_the_next_start(self):
        table = hooks.hook("github", f"{self.receiver.url}/k", timeout="60s")
        with Gateway(self.receiver.url, webhook=[table], store="journal") as gateway:
            self.gateway = gateway
            gate = self.receiver.gate()
            self.receiver.will(held(gate, answers(200)))
            self.send("github", hooks.github(self.event))
            gate.wait_for_arrival()  # leased for two minutes
            gateway.kill()
            gateway.start()
            self.wait_for_delivery(self.event, 2)
            gate.open()
            self.job(self.event, "delivered")

    def test_events_of_one_order_go_one_after_another_and_others_do_not_wait(self):
        table = hooks.hook("github", f"{self.receiver.url}/ordered", order_by="/order")
        with Gateway(self.receiver.url, webhook=[table], store="journal") as gateway:
            self.gateway = gateway
            gate = self.receiver.gate()
            self.receiver.will(held(gate, answers(200)))
            for number in range(4):
                self.send("github", hooks.github(f"{self.event}-A{number}", b'{"order":"a","number":%d}' % number))
                if number == 0:
                    gate.wait_for_arrival()
            self.send("github", hooks.github(f"{self.event}_b", b'{"order":"b"}'))
            self.wait_for_delivery(f"{self.event}_b")
            self.assertEqual([r.key for r in self.receiver.received if "-A" in r.key], [f"{self.event}-A0"])
            gate.open()
            self.wait_for_delivery(f"{self.event}-A3")
            keys = [r.key for r in self.receiver.received if "-A" in r.key]
            self.assertEqual(keys, [f"{self.event}-A{number}" for number in range(4)])

    def test_draining_lets_deliveries_end_and_loses_none(self):
        with self.make_gateway(store="journal") as gateway:
            self.gateway = gateway
            gate = self.receiver.gate()
            self.receiver.will(held(gate, answers(200)))
            self.send("github", hooks.github(self.event))
            gate.wait_for_arrival()
            gateway.signal(15)
            gateway.wait_for_log("event=draining")
            gate.open()
            self.assertEqual(gateway.wait(), 0)
            gateway.start()
            self.job(self.event, "delivered")
            self.assertEqual(len(self.delivered(self.event)), 1)


class OutboxTest(DeliveryTest):
    def test_a_message_is_staged_once_and_delivered_to_its_destination(self):
        status, answer = self.outbox(self.event, b'{"order":1}')
        self.assertEqual((status, answer["duplicate"]), (202, False))
        again, same = self.outbox(self.event, b'{"order":1}')
        self.assertEqual((again, same["duplicate"], same["id"]), (200, True, answer["id"]))
        request, = self.wait_for_delivery(self.event)
        self.assertEqual((request.method, request.target, request.body),
                         ("POST", "/billing?from=outbox", b'{"order":1}'))
        self.assertEqual(request.header("Authorization"), "Bearer of-billing")
        self.assertEqual(request.header("Content-Type"), "application/json")

    def test_the_same_key_with_another_message_is_refused(self):
        self.outbox(self.event, b"1")
        status, problem = self.outbox(self.event, b"2")
        self.assertEqual((status, problem["type"], problem["title"]),
                         (422, "urn:oncekey:problem:mismatch", "Unprocessable Content"))
        self.wait_for_delivery(self.event)
        self.assertEqual(len(self.delivered(self.event)), 1)

    def test_destinations_come_from_the_configuration_alone(self):
        for name in ("", "other", f"{self.receiver.url}/elsewhere", "hook /hooks/github"):
            self.assertEqual(self.outbox(self.event, destination=name)[0], 400, name)
        self.assertEqual(self.receiver.executions(), 0)

    def test_a_message_needs_a_key(self):
        self.assertEqual(self.outbox("")[0], 400)

    def test_a_refusal_says_its_type(self):
        self.assertEqual(self.outbox("")[1]["type"], "urn:oncekey:problem:key_invalid")
        self.assertEqual(self.outbox(self.event, destination="nowhere")[1]["type"],
                         "urn:oncekey:problem:destination_unknown")
        self.assertEqual(self.outbox(self.event, headers={"Oncekey-Method": "GET"})[1]["type"],
                         "urn:oncekey:problem:method_invalid")
        connection = http.client.HTTPConnection(*self.gateway.outbox_address, timeout=30)
        connection.request("GET", "/")
        missing = json.loads(connection.getresponse().read())
        connection.close()
        self.assertEqual((missing["type"], missing["detail"]),
                         ("urn:oncekey:problem:not_found", "Not found. Available: POST /outbox"))

    def test_a_browser_that_was_led_here_is_refused(self):
        self.assertEqual(self.outbox(self.event, headers=[("Host", "rebound.example")])[0], 403)

    def test_messages_of_one_order_keep_it(self):
        self.receiver.will(answers(500))
        for number in range(3):
            self.outbox(f"{self.event}_{number}", headers=[("Oncekey-Order", "o-1"), ("Oncekey-Method", "PUT")])
        self.wait_for_delivery(f"{self.event}_2")
        requests = [(r.method, r.key) for r in self.receiver.received]
        self.assertEqual(requests, [("PUT", f"{self.event}_{number}") for number in (0, 0, 1, 2)])

    def test_a_token_where_one_is_configured(self):
        with Gateway(self.receiver.url, outbox="127.0.0.1:0", outbox_token="0123456789abcdef0123",
                     destination=[{"name": "billing", "url": self.receiver.url}]) as gateway:
            self.gateway = gateway
            self.assertEqual(self.outbox(self.event)[0], 401)
            token = [("Authorization", "Bearer 0123456789abcdef0123")]
            self.assertEqual(self.outbox(self.event, headers=token)[0], 202)
            self.assertIsNone(self.wait_for_delivery(self.event)[0].header("Authorization"))


class ConfigurationTest(unittest.TestCase):
    def refused(self, table, text, **settings):
        gateway = Gateway("http://127.0.0.1:1", webhook=[table], **settings)
        self.addCleanup(gateway.remove)
        self.assertNotEqual(gateway.start_expecting_refusal(), 0)
        self.assertRegex(gateway.log, text)

    def test_contradictions_are_refused_with_their_line(self):
        good = hooks.hook("stripe", "http://127.0.0.1:1/e")
        self.refused({**good, "provider": "strip"}, r"oncekey.toml:\d+: provider: .*stripe, github")
        self.refused({**good, "secrets": []}, r"secrets")
        self.refused({**good, "secrets": ["env:NOT_SET_ANYWHERE"]}, r"NOT_SET_ANYWHERE")
        for literal in ("whsec_1234", "ENV:SECRET", "SECRET"):
            self.refused({**good, "secrets": [literal]}, r"secrets: write .*env:NAME")
        self.refused({**good, "authorization": "Bearer x"}, r"authorization: write .*env:NAME")
        self.refused({**good, "signed": "{body}"}, r"signed: is only for provider = .*hmac")
        self.refused({**good, "url": "https://example.com/h?tenant=1"}, r"url: .*without its query")
        self.refused({**good, "deliver_to": "http://localhost:18999/hooks/stripe?x=1"}, r"deliver_to: is this webhook",
                     listen="127.0.0.1:18999")
        self.refused({**good, "deliver_to": "http://u:hush@example.com:x/"}, r"deliver_to: (?!.*hush)")
        self.refused({**good, "deliver_to": "elsewhere"}, r"deliver_to: .*is not a URL")
        self.refused({**good, "budget": "7d", "remember": "7d"}, r"budget \(7d\) is not shorter than remember \(7d\).*remember longer")
        self.refused({**good, "order_by": "data"}, r"order_by: .*JSON pointer")
        self.refused({**good, "secret": "x"}, r"no such setting of a webhook.*secrets")
        self.refused({key: value for key, value in good.items() if key != "deliver_to"}, r"deliver_to: is missing")
        self.refused(good, r"outbox.*no \[\[destination\]\]", outbox="127.0.0.1:0")


class StoreDownTest(unittest.TestCase):
    def test_a_stop_while_the_store_does_not_answer_is_a_clean_one(self):
        from support.backends import RedisBackend
        receiver = Upstream().start()
        self.addCleanup(receiver.stop)
        backend = RedisBackend().start()
        self.addCleanup(backend.remove)
        gateway = Gateway(receiver.url, webhook=[hooks.hook("github", f"{receiver.url}/events")], store=backend.url)
        self.addCleanup(gateway.remove)
        gateway.start()
        backend.server.pause()
        try:
            poll_until(backend.server.has_unread_bytes, "the gateway to look for messages")
            gateway.signal(15)
            gateway.wait_for_log("event=draining")
            poll_until(lambda: not gateway.accepts_connections(), "the gateway to close its listener")
        finally:
            backend.server.resume()
        self.assertEqual(gateway.wait(), 0)
        gateway.check_sanitizers()

    def test_without_its_store_nothing_is_acknowledged(self):
        from support.backends import RedisBackend
        receiver = Upstream().start()
        self.addCleanup(receiver.stop)
        receiver.always(answers(200))
        backend = RedisBackend().start()
        self.addCleanup(backend.remove)
        table = hooks.hook("github", f"{receiver.url}/events")
        with Gateway(receiver.url, webhook=[table], store=backend.url) as gateway:
            def send(event):
                body, headers = hooks.github(event)
                return gateway.client().post("/hooks/github", body=body, headers=headers, authorization=False)

            self.assertEqual(send("before").status, 200)
            receiver.wait_for_executions(1, "before")
            backend.crash()
            answer = send("meanwhile")
            self.assertEqual(answer.status, 503)
            self.assertIsNotNone(answer.header("Retry-After"))
            backend.start_again()
            poll_until(lambda: send("meanwhile").status == 200, "the store to be back")
            receiver.wait_for_executions(1, "meanwhile")
            self.assertEqual(receiver.executions("meanwhile"), 1)


if __name__ == "__main__":
    unittest.main()
