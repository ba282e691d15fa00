"""The judge is shown every kind of lie, and must notice each."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from judge import violations_of


def told(ride, charge):
    return 201, json.dumps({"ride": ride, "charge": charge}).encode()


class JudgeTest(unittest.TestCase):
    def setUp(self):
        self.answers = {"a": [told(1, "ch_1"), told(1, "ch_1")], "b": [told(2, "ch_2")], "c": [(402, b"declined")]}
        self.charges = [{"ride": 1, "id": "ch_1"}, {"ride": 2, "id": "ch_2"}]
        self.receipts = [1, 2]

    def judged(self):
        return violations_of(self.answers, self.charges, self.receipts)

    def test_an_honest_run_passes(self):
        self.assertEqual(self.judged(), [])

    def test_two_different_answers_to_one_key(self):
        self.answers["a"].append((402, b"declined"))
        self.assertIn("answers to a differ", self.judged()[0])

    def test_an_answer_that_is_none(self):
        self.answers["c"] = [(503, b"try again")]
        self.assertEqual(len(self.judged()), 1)

    def test_one_ride_for_two_keys(self):
        self.answers["b"] = [told(1, "ch_1")]
        self.assertTrue(any("was told the ride 1 of a" in found for found in self.judged()))

    def test_a_second_charge(self):
        self.charges.append({"ride": 1, "id": "ch_3"})
        self.assertEqual(self.judged(), ["ride 1 was charged 2 times: ['ch_1', 'ch_3']"])

    def test_a_charge_that_nobody_was_told_of(self):
        self.charges.append({"ride": 3, "id": "ch_3"})
        self.assertEqual(self.judged(), ["ride 3 was charged and nobody was told"])

    def test_a_promise_without_its_charge(self):
        del self.charges[0]
        self.assertEqual(self.judged(), ["ride 1 was promised and not charged"])

    def test_another_charge_than_was_told(self):
        self.charges[0]["id"] = "ch_9"
        self.assertEqual(len(self.judged()), 1)

    def test_receipts_missing_twice_and_unasked_for(self):
        for receipts in ([1], [1, 2, 2], [1, 2, 3]):
            self.receipts = receipts
            self.assertEqual(len(self.judged()), 1, receipts)


if __name__ == "__main__":
    unittest.main()
