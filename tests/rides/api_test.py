"""Rocket Rides as its users see it."""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from rides_processes import BOOKING, RidesTest, binary, on_every_database
from support.client import Client
from support.waiting import Background, poll_until


@on_every_database
class Api(RidesTest):
    def setUp(self):
        super().setUp()
        self.start_processor()
        self.start_mailer()
        self.api = self.start_api()

    def test_a_ride_is_booked_charged_and_shown(self):
        booked = self.book(self.api, "first-booking")
        self.assertEqual(booked.status, 201, booked)
        self.assertEqual(booked.header("Location"), "/rides/1")
        self.assertEqual(booked.json(), {"ride": 1, "charge": "ch_000001", "amount": 2000, "currency": "usd"})
        shown = self.get(self.api, "/rides/1")
        self.assertEqual((shown["origin"]["lat"], shown["charge"]), (37.77, "ch_000001"))
        self.complete_and_deliver()
        self.assert_once({"first-booking": [(201, booked.body)]})
        self.api.stop()

    def test_a_retry_gets_the_first_answer_byte_for_byte(self):
        first = self.book(self.api, "same-key")
        again = self.book(self.api, "same-key")
        self.assertEqual((again.status, again.body), (first.status, first.body))
        self.assertEqual(again.header("Location"), first.header("Location"))
        self.assertTrue(again.replayed, again)
        self.assertFalse(first.replayed, first)
        self.assertEqual(self.charges_by_ride(), {1: 1})

    def test_a_declined_card_is_a_final_answer_too(self):
        first = self.book(self.api, "bobs-key", user="bob")
        self.assertEqual(first.status, 402, first)
        again = self.book(self.api, "bobs-key", user="bob")
        self.assertEqual((again.status, again.body, again.replayed), (402, first.body, True))
        self.assertEqual(self.get(self.processor, "/counts")["requests"], 1)
        self.complete_and_deliver()
        self.assert_once({"bobs-key": [(402, first.body)]})

    def test_another_body_under_the_same_key_is_refused(self):
        self.book(self.api, "one-key")
        other = self.book(self.api, "one-key", body=BOOKING.replace(b"48.85", b"51.51"))
        self.assertEqual(other.status, 422, other)
        self.assertEqual(self.charges_by_ride(), {1: 1})

    def test_the_same_key_of_another_user_is_another_booking(self):
        self.assertEqual(self.book(self.api, "shared-key").status, 201)
        self.assertEqual(self.book(self.api, "shared-key", user="bob").status, 402)

    def test_requests_that_are_none_leave_no_trace(self):
        client = Client(self.api.address, "amy")
        self.assertEqual(client.post("/rides", key="k-1", body=BOOKING, authorization=False).status, 401)
        self.assertEqual(self.book(self.api, "k-1", user="mallory").status, 401)
        for body in (b"", b"[]", b'{"origin":{"lat":1,"lon":2}}', BOOKING.replace(b"37.77", b"137.77")):
            self.assertEqual(self.book(self.api, "k-1", body=body).status, 422, body)
        self.assertEqual(client.post("/rides", body=BOOKING).status, 400)
        self.assertEqual(client.post("/rides", key="k" * 256, body=BOOKING).status, 400)
        self.assertEqual(self.book(self.api, "k-1").status, 201)

    def test_nobody_sees_anothers_ride(self):
        self.book(self.api, "amys")
        self.assertEqual(Client(self.api.address, "bob").get("/rides/1").status, 404)
        self.assertEqual(Client(self.api.address, "amy").get("/rides/x").status, 404)


@on_every_database
class Troubles(RidesTest):
    def test_two_at_once_charge_once(self):
        self.start_processor("--latency", "1.5")
        self.start_mailer()
        api = self.start_api()
        first = Background(lambda: self.book(api, "double-click"))
        poll_until(lambda: self.get(self.processor, "/counts")["requests"] == 1, "the first call to the processor")
        second = self.book(api, "double-click")
        self.assertEqual(second.status, 409, second)
        self.assertGreaterEqual(int(second.header("Retry-After")), 1)
        self.assertEqual(first.result().status, 201)
        self.assertEqual(self.book(api, "double-click").body, first.result().body)
        self.assertEqual(self.charges_by_ride(), {1: 1})

    def test_an_unknown_outcome_is_not_an_answer(self):
        # The processor loses nine answers in ten, before or after it charged.
        self.start_processor("--drops", "60", "--errors", "30", "--seed", "3")
        self.start_mailer()
        api = self.start_api()
        statuses = []
        for _ in range(200):
            answer = self.book(api, "stubborn")
            statuses.append(answer.status)
            if answer.status == 201:
                break
            self.assertEqual(answer.status, 503, answer)
        self.assertEqual(statuses[-1], 201, statuses)
        self.assertGreater(len(statuses), 1, "the processor did not fail")
        self.complete_and_deliver()
        self.assert_once({"stubborn": [(201, answer.body)]})

    def test_the_workers_in_the_process_of_the_api_finish_and_deliver(self):
        self.start_processor("--drops", "50", "--seed", "5")
        self.start_mailer("--drops", "30")
        api = self.start_api("--with-workers", "--grace", "0", "--completer-backoff", "0.2", "--enqueuer-backoff", "0.1",
                             "--enqueuer-backoff-max", "0.5", "--mailer", self.mailer.url)
        for number in range(8):
            self.book(api, f"once-{number}")  # whatever comes back: nobody asks again
        poll_until(lambda: len(self.receipts_by_ride()) == 8, "all receipts")
        answers = {f"once-{number}": [(answer.status, answer.body)]
                   for number in range(8) for answer in [self.book(api, f"once-{number}")]}
        self.assert_once(answers)
        api.stop()

    def test_the_enqueuer_waits_for_a_mailer_that_is_down(self):
        self.start_processor()
        self.start_mailer()
        api = self.start_api()
        booked = self.book(api, "no-mail-today")
        port = str(self.mailer.address[1])
        self.mailer.stop()
        enqueuer = self.start_enqueuer()
        poll_until(lambda: enqueuer.running, "the enqueuer to run")
        self.mailer = self.start("mailer", "--port", port, "--database", f"sqlite:{self.folder}/mail.db").listening()
        self.finish(enqueuer)
        self.assert_once({"no-mail-today": [(201, booked.body)]})

    def test_a_booking_older_than_the_processors_memory_is_for_a_person(self):
        """A day later the processor has forgotten the key: the same call would charge again."""
        self.start_processor("--drops", "100", "--seed", "2", "--key-memory", "0")
        self.start_mailer()
        api = self.start_api()
        self.assertEqual(self.book(api, "forgotten").status, 503)
        asked = self.get(self.processor, "/counts")["requests"]
        day_later = str(25 * 3600)
        completer = self.start_completer("--clock-ahead", day_later)
        self.finish(completer)
        self.assertIn("dead letters 1", completer.printed)
        self.assertEqual(self.get(self.processor, "/counts")["requests"], asked, "the call was made all the same")
        listed = self.start("backlog", "--database", self.database)
        self.assertEqual(listed.wait(), 0)
        self.assertRegex(listed.printed, r"dead letters 1\ndead: key forgotten of user:1 at ride_created: .+")
        self.assertNotIn(self.book(api, "forgotten").status, (201, 402))

        # The person has looked at the processor's side, and restarts it.
        self.assertEqual(self.start("backlog", "--database", self.database, "--restart-dead").wait(), 0)
        self.processor.stop()
        self.start_processor()
        self.complete_and_deliver()
        self.api = self.start_api()
        answer = self.book(self.api, "forgotten")
        self.assert_once({"forgotten": [(answer.status, answer.body)]})

    def test_the_reaper_drops_answers_after_their_retention(self):
        self.start_processor()
        self.start_mailer()
        api = self.start_api()
        self.book(api, "old-news")
        for ahead, dropped in (("0", "0"), (str(10 * 24 * 3600), "[1-9]")):
            reaper = self.start("reaper", "--once", "--database", self.database, "--clock-ahead", ahead)
            self.assertEqual(reaper.wait(), 0, reaper.printed)
            self.assertRegex(reaper.printed, f"dropped {dropped} buckets")


@on_every_database
class Demo(RidesTest):
    def test_the_demo_ends_with_every_count_right(self):
        done = subprocess.run([binary(), "demo", "--database", self.database], capture_output=True, text=True, timeout=200,
                              check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"killed with SIGKILL in the middle")
        self.assertRegex(done.stdout, r"Every ride was charged once and has one receipt\.")


if __name__ == "__main__":
    unittest.main()
