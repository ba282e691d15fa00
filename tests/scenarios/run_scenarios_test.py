"""The scenario runner refuses what it does not understand. A harness that skips silently proves nothing."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import run_scenarios
from run_scenarios import BadScenario, Scenario

HEAD = "title: A title\npolicies: classic\n"


class ScenarioTextTest(unittest.TestCase):
    def refusal_of(self, text):
        with self.assertRaises(BadScenario) as caught:
            Scenario("some.scenario", text)
        return str(caught.exception)

    def test_an_unknown_step_is_refused_with_file_and_line(self):
        self.assertIn("some.scenario:3: no such step: alice dances", self.refusal_of(HEAD + "alice dances\n"))

    def test_an_unknown_policy_or_store_is_refused_with_file_and_line(self):
        self.assertIn("some.scenario:2: strict is none of",
                      self.refusal_of("title: x\npolicies: strict\nupstream hangs\n"))
        self.assertIn("some.scenario:3: disk is none of", self.refusal_of(HEAD + "stores: disk\nupstream hangs\n"))

    def test_a_scenario_without_steps_is_refused(self):
        self.assertIn("needs a title", self.refusal_of(HEAD))

    def test_the_parts_of_a_step_are_found(self):
        scenario = Scenario("some.scenario", HEAD + 'alice sends POST /a key k-1 body {"a": 1} in background\n'
                            'gets 201 {"id": 1} first\nupstream answers once 200 {"a": 1} with header X: y\n'
                            'upstream answers 204\n')
        functions = [function.__name__ for _, _, function, _ in scenario.steps]
        self.assertEqual(functions, ["sends_in_background", "gets_first", "upstream_answers", "upstream_answers"])
        self.assertEqual(scenario.steps[0][3], ("alice", "POST", "/a", "k-1", '{"a": 1}'))
        self.assertEqual(scenario.steps[1][3], ("201", '{"id": 1}'))
        self.assertEqual(scenario.steps[2][3], (" once", "200", '{"a": 1}', "X: y"))
        self.assertEqual(scenario.steps[3][3], (None, "204", None, None))

    def test_a_wrong_answer_fails_the_step_and_names_its_line(self):
        scenario = Scenario("some.scenario", HEAD + "gets mismatch\n")

        class Answered:
            status = 201
            body = b""

        class EmptyWorld:
            policy = "classic"
            upstream = run_scenarios.Upstream()

        original = run_scenarios.Stage.__init__
        try:
            def answered(stage, world, played):
                original(stage, world, played)
                stage.answer = Answered()
            run_scenarios.Stage.__init__ = answered
            self.assertIn("some.scenario:3: gets mismatch", run_scenarios.play(EmptyWorld(), scenario))
        finally:
            run_scenarios.Stage.__init__ = original


if __name__ == "__main__":
    unittest.main()
