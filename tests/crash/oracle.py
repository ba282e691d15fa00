"""Judges a run with crashes by what was seen from outside: by the clients, and by the upstream.

Nothing here knows how the gateway works or shares code with it. Every observation has a time of one monotonic clock,
taken so that it errs on the gateway's side: an execution is stamped when it arrived, an answer when it had been read.
"""

import dataclasses
import threading


@dataclasses.dataclass
class Execution:
    time: float
    number: int  # of the answer the upstream gave; each execution has its own
    fence: int


@dataclasses.dataclass
class Answer:
    """A final answer a client has read: a success, or that the outcome is unknown and an operator must settle it."""

    time: float
    body: bytes  # empty for indeterminate
    indeterminate: bool = False


class History:
    """What happened, by key. Safe to write from many threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self.first_sent = {}
        self.executions = {}
        self.answers = {}
        self.kills = []

    def sent(self, key, time):
        with self._lock:
            self.first_sent.setdefault(key, time)

    def executed(self, key, execution):
        with self._lock:
            self.executions.setdefault(key, []).append(execution)

    def answered(self, key, answer):
        with self._lock:
            self.answers.setdefault(key, []).append(answer)

    def killed(self, time):
        with self._lock:
            self.kills.append(time)


def number_in(body):
    """The number of the execution an answer belongs to; the upstream writes `execution=N key=K`."""
    return int(body.split(b"execution=")[1].split()[0])


def violations(history, key, *, may_execute_again):
    """Everything wrong with one key, as sentences. Empty when all promises were kept."""
    executions = sorted(history.executions.get(key, []), key=lambda execution: execution.time)
    answers = sorted(history.answers.get(key, []), key=lambda answer: answer.time)
    successes = [answer for answer in answers if not answer.indeterminate]
    return [f"{key}: {sentence}" for sentence in (
        *_executed_too_often(history, key, executions, successes, may_execute_again),
        *_fences(executions),
        *_answers_differ(successes),
        *_answer_from_nowhere(executions, successes),
        *_executed_after_the_answer(executions, successes),
        *_unfinished(answers, successes, may_execute_again),
    )]


def _executed_too_often(history, key, executions, successes, may_execute_again):
    # An owner loses its lease only when it or its store dies: the upstream always answers well within it.
    until = successes[0].time if successes else float("inf")
    deaths = sum(1 for time in history.kills if history.first_sent[key] <= time <= until)
    allowed = 1 + deaths if may_execute_again else 1
    if len(executions) > allowed:
        yield f"executed {len(executions)} times, {allowed} allowed"


def _fences(executions):
    fences = [execution.fence for execution in executions]
    if any(later <= earlier for earlier, later in zip(fences, fences[1:])):
        yield f"the fences did not grow: {fences}"


def _answers_differ(successes):
    bodies = {answer.body for answer in successes}
    if len(bodies) > 1:
        yield f"clients saw different answers: {sorted(bodies)}"


def _answer_from_nowhere(executions, successes):
    numbers = {execution.number for execution in executions}
    strange = {answer.body for answer in successes if number_in(answer.body) not in numbers}
    if strange:
        yield f"an answer that belongs to none of its executions: {sorted(strange)}"


def _executed_after_the_answer(executions, successes):
    if successes and any(execution.time > successes[0].time for execution in executions):
        yield "executed again after a client had its answer"


def _unfinished(answers, successes, may_execute_again):
    if not answers:
        yield "never finished"
    elif may_execute_again and len(successes) != len(answers):
        yield "declared indeterminate although its policy executes again"
    elif successes and len(successes) != len(answers):
        yield "both answered and indeterminate"


def violations_of(history):
    """Everything wrong with a run whose keys are named by their policy: `hold-…` and `again-…`."""
    return [violation for key in list(history.first_sent)  # which clients may still add to
            for violation in violations(history, key, may_execute_again=key.startswith("again"))]
