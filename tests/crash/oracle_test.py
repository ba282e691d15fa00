"""The oracle finds every kind of violation when it is planted, and nothing in a clean history. The crowd waits long
enough for what the oracle judges."""

import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import crowd
from oracle import Answer, Execution, History, violations


class OracleTest(unittest.TestCase):
    def setUp(self):
        self.history = History()
        self.history.sent("k", 0.0)

    def executed(self, time, number, fence):
        self.history.executed("k", Execution(time, number, fence))

    def answered(self, time, number):
        self.history.answered("k", Answer(time, f"execution={number} key=k".encode()))

    def indeterminate(self, time):
        self.history.answered("k", Answer(time, b"", indeterminate=True))

    def found(self, may_execute_again=True):
        return " ".join(violations(self.history, "k", may_execute_again=may_execute_again))

    def test_a_clean_history_has_no_violation(self):
        self.executed(1, 1, 1)
        self.answered(2, 1)
        self.answered(3, 1)
        self.assertEqual(self.found(True), "")
        self.assertEqual(self.found(False), "")

    def test_a_second_execution_after_a_kill_is_allowed_where_the_policy_executes_again(self):
        self.executed(1, 1, 1)
        self.history.killed(1.5)
        self.executed(2, 2, 2)
        self.answered(3, 2)
        self.assertEqual(self.found(True), "")

    def test_a_second_execution_is_found_under_hold(self):
        self.executed(1, 1, 1)
        self.history.killed(1.5)
        self.executed(2, 2, 2)
        self.answered(3, 2)
        self.assertIn("executed 2 times, 1 allowed", self.found(False))

    def test_more_executions_than_kills_are_found(self):
        self.executed(1, 1, 1)
        self.executed(2, 2, 2)
        self.answered(3, 2)
        self.assertIn("executed 2 times, 1 allowed", self.found(True))

    def test_a_kill_outside_the_keys_life_excuses_nothing(self):
        self.history.killed(-1.0)
        self.executed(1, 1, 1)
        self.executed(2, 2, 2)
        self.answered(3, 2)
        self.history.killed(4.0)
        self.assertIn("executed 2 times", self.found(True))

    def test_a_fence_that_does_not_grow_is_found(self):
        self.history.killed(1.5)
        self.executed(1, 1, 1)
        self.executed(2, 2, 1)
        self.answered(3, 2)
        self.assertIn("fences did not grow", self.found(True))

    def test_a_changed_answer_is_found(self):
        self.history.killed(1.5)
        self.executed(1, 1, 1)
        self.executed(1.6, 2, 2)
        self.answered(3, 1)
        self.answered(4, 2)
        self.assertIn("different answers", self.found(True))

    def test_another_keys_answer_is_found(self):
        self.executed(1, 1, 1)
        self.answered(2, 77)
        self.assertIn("belongs to none", self.found(True))

    def test_an_execution_after_an_answer_is_found(self):
        self.executed(1, 1, 1)
        self.answered(2, 1)
        self.history.killed(2.5)
        self.executed(3, 2, 2)
        self.assertIn("executed again after", self.found(True))

    def test_a_key_that_never_finished_is_found(self):
        self.executed(1, 1, 1)
        self.assertIn("never finished", self.found(True))
        self.assertIn("never finished", self.found(False))

    def test_indeterminate_finishes_a_key_only_under_hold(self):
        self.executed(1, 1, 1)
        self.indeterminate(2)
        self.assertEqual(self.found(False), "")
        self.assertIn("although its policy executes again", self.found(True))

    def test_an_answer_beside_indeterminate_is_found(self):
        self.executed(1, 1, 1)
        self.indeterminate(2)
        self.answered(3, 1)
        self.assertIn("both answered and indeterminate", self.found(False))


class SlowCrowd(crowd.Crowd):
    """Every request takes a second of a clock that is not real; keys finish when asked for the second time, or never."""

    def __init__(self, keys, stuck=()):
        super().__init__(History(), 0, seed=1)
        self.addresses = ["here"]
        self.unfinished = list(keys) + list(stuck)
        self.stuck = stuck
        self.now = 0.0
        self.asked = {}

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def send(self, key, address):
        self.now += 1
        self.asked[key] = self.asked.get(key, 0) + 1
        if self.asked[key] == 2 and key not in self.stuck:
            self.unfinished.remove(key)


class CrowdTest(unittest.TestCase):
    def settled(self, slow):
        with mock.patch.object(crowd, "time", slow):
            slow.settle()
        return slow.unfinished

    def test_a_long_list_of_keys_is_asked_for_until_all_are_finished(self):
        keys = [f"hold-{number}" for number in range(int(crowd.SETTLING_SECONDS) * 3)]
        self.assertEqual(self.settled(SlowCrowd(keys)), [])

    def test_a_key_that_never_finishes_ends_the_patience(self):
        slow = SlowCrowd(["hold-1"], stuck=("again-2",))
        self.assertEqual(self.settled(slow), ["again-2"])
        self.assertGreater(slow.now, crowd.SETTLING_SECONDS)


if __name__ == "__main__":
    unittest.main()
