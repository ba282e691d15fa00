"""Rocket Rides killed and paused wherever it hurts, then finished by its workers: one charge, one receipt, one answer.

The long form (ONCEKEY_SLOW_TESTS=1) has every moment of every statement and many more random kills. The short one takes
some of the moments, others each time: tests/phases/crash_test.cc has all of them, in processes that start more quickly.
"""

import collections
import json
import pathlib
import random
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from rides_processes import LATER, LONG, RidesTest, on_every_database
from support.messages import Malformed
from support.waiting import Background, poll_until

# More moments than a booking has: a loop that comes here counts something else.
MOMENTS_MAX = 200
# How far apart the moments are, from another first one each time.
STRIDE = 1 if LONG else 6
DECLINED_STRIDE = 1 if LONG else 12
PAUSE_STRIDE = 2 if LONG else 18
RANDOM_KILLS = 40 if LONG else 4
# Before, at about, and after the moment of a charge that takes 0.6 seconds.
WAITS_IN_THE_CALL = (0.05, 0.25, 0.3, 0.35, 0.5) if LONG else (0.05, 0.3, 0.5)
SEED = random.SystemRandom().randrange(1 << 31)


def answers_in(log):
    """Key -> [(status, body)] of a simulator's log."""
    answers = collections.defaultdict(list)
    for line in log.read_text().splitlines() if log.exists() else []:
        given = json.loads(line)
        answers[given["key"]].append((given["status"], given["body"].encode()))
    return answers


class Crashing(RidesTest):
    def try_to_book(self, api, key, **options):
        """The answer, or None if the process died on it."""
        try:
            return self.book(api, key, **options)
        except (OSError, Malformed):
            return None

    def restart_and_ask(self, keys):
        """What the clients are told in the end: the same as all who were told before."""
        api = self.start_api()
        answers = {key: [(answer.status, answer.body) for answer in [self.book(api, key, user=user)]]
                   for key, user in keys.items()}
        api.stop()
        return answers


@on_every_database
class KilledAtEveryStatement(Crashing):
    def kill_at_every_moment(self, user, stride):
        answers = collections.defaultdict(list)
        first = random.Random(SEED).randrange(stride)
        for moment in range(1 + first, MOMENTS_MAX, stride):
            key = f"killed-at-{moment}"
            api = self.start_api("--die-at", str(moment))
            answer = self.try_to_book(api, key, user=user)
            api.kill()
            if answer is not None:
                answers[key].append((answer.status, answer.body))
                break
        else:
            self.fail("a booking has no end")
        self.assertGreater(moment, 20, "a booking cannot have so few statements")
        self.complete_and_deliver()
        # A booking that died before its claim was durable is new to the API now, and another ride: never a second one.
        keys = {f"killed-at-{at}": user for at in range(1 + first, moment + 1, stride)}
        for key, given in self.restart_and_ask(keys).items():
            answers[key] += given
        self.complete_and_deliver()
        self.assert_once(answers)

    def test_a_booking_killed_at_any_statement_is_finished_by_the_workers(self):
        self.start_processor()
        self.start_mailer()
        self.kill_at_every_moment("amy", STRIDE)

    def test_a_declined_booking_killed_at_any_statement_stays_declined(self):
        self.start_processor()
        self.start_mailer()
        self.kill_at_every_moment("bob", DECLINED_STRIDE)

    def test_a_booking_killed_while_the_processor_works_is_charged_once(self):
        self.start_processor("--latency", "0.6")
        self.start_mailer()
        for number, wait in enumerate(WAITS_IN_THE_CALL):
            api = self.start_api()
            asked = self.get(self.processor, "/counts")["requests"]
            booking = Background(lambda api=api, number=number: self.try_to_book(api, f"in-call-{number}"))
            poll_until(lambda asked=asked: self.get(self.processor, "/counts")["requests"] > asked, "the call")
            time.sleep(wait)
            api.kill()
            booking.result()
        self.complete_and_deliver()
        answers = self.restart_and_ask({f"in-call-{number}": "amy" for number in range(len(WAITS_IN_THE_CALL))})
        self.assertEqual(self.get(self.processor, "/counts")["charges"], len(WAITS_IN_THE_CALL))
        self.assert_once(answers)

    def test_a_second_charge_would_be_noticed(self):
        """With a processor that forgets its keys at once the same kill charges twice: the judge must see it."""
        self.start_processor("--latency", "0.6", "--key-memory", "0")
        self.start_mailer()
        api = self.start_api()
        booking = Background(lambda: self.try_to_book(api, "twice"))
        poll_until(lambda: self.get(self.processor, "/counts")["charges"] == 1, "the charge")
        api.kill()
        booking.result()
        self.complete_and_deliver()
        answers = self.restart_and_ask({"twice": "amy"})
        with self.assertRaisesRegex(AssertionError, "ride 1 was charged 2 times"):
            self.assert_once(answers)


@on_every_database
class KilledUnderLoad(Crashing):
    def test_random_kills_under_load(self):
        print(f"seed {SEED}", file=sys.stderr)
        choice = random.Random(SEED)
        self.start_processor("--latency", "0.02", "--errors", "5", "--drops", "10", "--seed", str(SEED % 1000))
        self.start_mailer("--drops", "20", "--seed", str(SEED % 1000))
        log = pathlib.Path(self.folder) / "answers"
        arguments = ("--lease", "1")
        api = self.start_api(*arguments)
        port = str(api.address[1])
        rides = 400 if LONG else 40
        riders = self.start("simulator", "--api", api.url, "--rides", str(rides), "--clients", "6", "--patience", "90",
                            "--log", str(log))
        for _ in range(RANDOM_KILLS):
            time.sleep(choice.uniform(0.05, 0.8))
            api.kill()
            api = self.start("api", "--port", port, "--database", self.database, "--processor", self.processor.url,
                             *arguments).listening()
        self.assertEqual(riders.wait(150), 0, riders.printed)
        self.complete_and_deliver()
        answers = answers_in(log)
        self.assertEqual(len(answers), rides)
        self.assert_once(answers)

    def test_several_completers_and_enqueuers_do_it_once(self):
        self.start_processor("--latency", "0.4")
        self.start_mailer("--drops", "20")
        api = self.start_api()
        riders = self.start("simulator", "--api", api.url, "--rides", "30", "--clients", "30", "--patience", "0")
        poll_until(lambda: self.get(self.processor, "/counts")["requests"] >= 20, "many calls at once")
        api.kill()
        riders.wait()
        completers = [self.start_completer("--clock-ahead", LATER) for _ in range(3)]
        enqueuers = [self.start_enqueuer("--clock-ahead", LATER, "--claim", "2", "--batch", "4") for _ in range(2)]
        for worker in completers + enqueuers:
            self.finish(worker)
        self.complete_and_deliver()
        self.assertGreaterEqual(len(self.charges_by_ride()), 10)
        # All are asked again, also those that had not begun.
        log = pathlib.Path(self.folder) / "answers"
        api = self.start_api()
        again = self.start("simulator", "--api", api.url, "--rides", "30", "--clients", "6", "--log", str(log))
        self.assertEqual(again.wait(60), 0, again.printed)
        self.complete_and_deliver()
        self.assert_once(answers_in(log))

    def test_completers_and_enqueuers_that_are_killed(self):
        choice = random.Random(SEED)
        rides = 24 if LONG else 12
        self.start_processor("--latency", "0.1", "--drops", "20")
        self.start_mailer("--drops", "30")
        api = self.start_api()
        riders = self.start("simulator", "--api", api.url, "--rides", str(rides), "--clients", str(rides), "--patience",
                            "0")
        poll_until(lambda: self.get(self.processor, "/counts")["requests"] >= rides // 2, "many calls at once")
        api.kill()
        riders.wait()
        ahead = int(LATER)
        for _ in range(12 if LONG else 3):
            # Each death leaves a lease and a claim: the next ones look later.
            ahead += 120
            workers = [start("--clock-ahead", str(ahead)) for start in (self.start_completer, self.start_enqueuer)]
            time.sleep(choice.uniform(0.1, 0.6))
            for worker in workers:
                worker.kill()
        self.finish(self.start_completer("--clock-ahead", str(ahead + 4000)))
        self.finish(self.start_enqueuer("--clock-ahead", str(ahead + 4000)))
        log = pathlib.Path(self.folder) / "answers"
        api = self.start_api("--clock-ahead", str(ahead + 4000))
        again = self.start("simulator", "--api", api.url, "--rides", str(rides), "--clients", "6", "--log", str(log))
        self.assertEqual(again.wait(60), 0, again.printed)
        self.finish(self.start_enqueuer("--clock-ahead", str(ahead + 4000)))
        self.assert_once(answers_in(log))


@on_every_database
class Paused(Crashing):
    """The owner sleeps, is taken for dead, and wakes: it must not change anything any more."""

    def wake_after_takeover(self, api, booking):
        completer = self.start_completer("--clock-ahead", LATER)
        # Asleep inside a transaction it may hold a lock that the completer needs: then it is woken first.
        try:
            poll_until(lambda: not completer.running, "the takeover", 1.5)
        except AssertionError:
            pass
        api.wake()
        answer = booking.result(60)
        self.finish(completer)
        api.kill()
        return answer

    def test_an_owner_that_wakes_during_its_call_gets_the_others_answer(self):
        self.start_processor("--latency", "1")
        self.start_mailer()
        api = self.start_api()
        booking = Background(lambda: self.book(api, "sleeper"))
        poll_until(lambda: self.get(self.processor, "/counts")["requests"] == 1, "the call")
        api.process.send_signal(signal.SIGSTOP)
        self.finish(self.start_completer("--clock-ahead", LATER))
        self.finish(self.start_enqueuer("--clock-ahead", LATER))
        api.wake()
        answer = booking.result(60)
        self.finish(self.start_enqueuer("--clock-ahead", LATER))
        self.assert_once({"sleeper": [(answer.status, answer.body)]})

    def test_an_owner_paused_at_any_statement_changes_nothing_after_a_takeover(self):
        self.start_processor()
        self.start_mailer()
        answers = collections.defaultdict(list)
        keys = {}
        for moment in range(1 + random.Random(SEED).randrange(PAUSE_STRIDE), MOMENTS_MAX, PAUSE_STRIDE):
            key = f"paused-at-{moment}"
            api = self.start_api("--pause-at", str(moment))
            booking = Background(lambda api=api, key=key: self.try_to_book(api, key))
            poll_until(lambda: booking.finished or api.paused(), "the pause")
            if booking.finished:
                answers[key].append((booking.result().status, booking.result().body))
                break
            keys[key] = "amy"
            answer = self.wake_after_takeover(api, booking)
            # 409 and 503 are no answers: the client asks again, below.
            if answer is not None and answer.status in (201, 402):
                answers[key].append((answer.status, answer.body))
        self.complete_and_deliver()
        for key, given in self.restart_and_ask(keys).items():
            answers[key] += given
        self.complete_and_deliver()
        self.assert_once(answers)


if __name__ == "__main__":
    unittest.main()
