"""Runs the *.scenario files: every scenario against every policy it names and every store.

A scenario is a title, what it runs against, and steps that a person who knows no C++ can read:

    title: A retry gets the first answer
    policies: classic ietf            # or: all
    stores: durable                   # optional; all stores when left out, here those that survive a restart
    with lease = "1s"                 # optional; any setting of a route

    upstream answers 201 {"id":"ch_1"}
    alice sends POST /charges key k-1 body {"amount":100}
    gets 201 {"id":"ch_1"} first
    alice sends POST /charges key k-1 body {"amount":100}
    gets replay 201 {"id":"ch_1"}
    upstream executed 1 time

All steps are in the table at the end of this file. An unknown one fails with file and line, before anything runs.

On a shared store two gateways play together and every request goes to the other one than the last.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import re
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.client import Client
from support.gateway import Gateway
from support.servers import available
from support.upstream import Upstream, answers, held, resets
from support.waiting import Background, poll_until
from support.with_servers import start as start_servers

POLICIES = ("classic", "ietf", "stripe-v1", "stripe-v2")
# The policies that differ most in what they ask of a store: one takes abandoned keys over, the other holds them.
FEW_POLICIES = ("classic", "stripe-v1")
SHARED_STORES = ("postgres", "redis", "cluster")
DURABLE_STORES = ("journal", *SHARED_STORES)
STORES = ("memory", *DURABLE_STORES)
MISMATCH_STATUS = {"classic": 422, "ietf": 422, "stripe-v1": 400, "stripe-v2": 400}


class BadScenario(Exception):
    """The text is not a scenario; the message begins with file:line."""


class StepFailed(AssertionError):
    pass


class Scenario:
    def __init__(self, file_name, text):
        self.file_name = file_name
        self.name = pathlib.PurePath(file_name).stem
        self.title = None
        self.policies = ()
        self.stores = STORES
        self.settings = {}
        self.steps = []  # (line number, text, function, arguments)
        for number, line in enumerate(text.splitlines(), 1):
            line = re.sub(r"(^|\s)#.*$", "", line).strip()
            if line:
                self._read(number, line)
        if not self.title or not self.policies or not self.steps:
            raise BadScenario(f"{file_name}:1: a scenario needs a title, a policies line and steps")

    def _read(self, number, line):
        if line.startswith("title:"):
            self.title = line[6:].strip()
        elif line.startswith("policies:"):
            self.policies = self._names(number, line, POLICIES)
        elif line.startswith("stores:"):
            self.stores = self._names(number, line.replace("durable", " ".join(DURABLE_STORES)), STORES)
        elif line.startswith("with "):
            name, equals, value = line[5:].partition("=")
            if not equals:
                raise BadScenario(f"{self.file_name}:{number}: write: with NAME = VALUE")
            self.settings[name.strip()] = self._value(value.strip())
        else:
            self.steps.append((number, line, *self._step(number, line)))

    def _names(self, number, line, known):
        names = tuple(line.partition(":")[2].split())
        if names == ("all",):
            return known
        for name in names:
            if name not in known:
                raise BadScenario(f"{self.file_name}:{number}: {name} is none of {', '.join(known)}")
        return names

    @staticmethod
    def _value(text):
        return int(text) if text.isdigit() else text.strip('"')

    def _step(self, number, line):
        for pattern, function in STEPS:
            match = re.fullmatch(pattern, line)
            if match:
                return function, match.groups()
        raise BadScenario(f"{self.file_name}:{number}: no such step: {line}")


class World:
    """One policy on one store: an upstream, and gateways with a route for each scenario."""

    def __init__(self, policy, store, url, scenarios):
        self.policy = policy
        self.upstream = Upstream().start()
        routes = [{"path": f"/{scenario.name}/*", "policy": policy, **scenario.settings} for scenario in scenarios]
        count = 2 if store in SHARED_STORES else 1
        self.gateways = [Gateway(self.upstream.url, routes, store=url) for _ in range(count)]
        if store in SHARED_STORES:
            # The worlds of other policies use the same server with routes of their own.
            for gateway in self.gateways:
                gateway.extra_flags = ["--accept-identity-change"]
        self._turns = itertools.cycle(self.gateways)
        try:
            for gateway in self.gateways:
                gateway.start()
        except BaseException:
            self.close()
            raise

    def next_gateway(self):
        return next(self._turns)

    def close(self):
        self.upstream.stop()
        for gateway in self.gateways:
            gateway.remove()


class Stage:
    """One scenario being played in a world."""

    def __init__(self, world, scenario):
        self.world = world
        self.scenario = scenario
        self.upstream = world.upstream
        self.policy = world.policy
        self.answer = None  # the last one received
        self.herd = []
        self.background = None
        self.gate = None
        self.default = answers()
        self.upstream.reset()
        self.upstream.always(self.default)

    def client(self, name):
        # A store is shared by all scenarios and, with a server, by all policies: everybody is somebody else in each.
        account = f"{name}-in-{self.scenario.name}-under-{self.policy}"
        return Client(self.world.next_gateway().address, account)

    def send(self, name, method, path, key, body):
        headers = [("Content-Type", "application/json")] if (body or "").startswith("{") else []
        return self.client(name).request(method, f"/{self.scenario.name}{path}", key=key,
                                         body=None if body is None else body.encode(), headers=headers)


def require(condition, message):
    if not condition:
        raise StepFailed(message)


# Steps of the upstream.


def made_answer(status, body, header):
    headers = [("Content-Type", "application/json")] if (body or "").startswith("{") else []
    if header:
        name, _, value = header.partition(":")
        headers.append((name.strip(), value.strip()))
    return answers(int(status), body or "", headers)


def upstream_answers(stage, once, status, body, header):
    if once:
        stage.upstream.will(made_answer(status, body, header))
    else:
        stage.default = made_answer(status, body, header)
        stage.upstream.always(stage.default)


def upstream_hangs(stage):
    stage.gate = stage.upstream.gate()
    stage.upstream.will(held(stage.gate, stage.default))


def upstream_goes_on(stage):
    stage.gate.open()


def upstream_drops_the_connection(stage):
    stage.upstream.will(resets())


def upstream_is_down(stage):
    stage.upstream.stop()


def upstream_is_up(stage):
    stage.upstream.start()
    stage.upstream.always(stage.default)


def upstream_executed(stage, key, times):
    count = stage.upstream.executions(key)
    require(count == int(times), f"it executed {count} times")


def every_execution_had_a_higher_fence(stage):
    fences = [request.fence for request in stage.upstream.received if request.complete]
    require(all(earlier < later for earlier, later in zip(fences, fences[1:])), f"the fences were {fences}")


# Steps of clients.


def sends(stage, name, method, path, key, body):
    stage.answer = stage.send(name, method, path, key, body)


def sends_in_background(stage, name, method, path, key, body):
    stage.background = Background(lambda: stage.send(name, method, path, key, body))
    if stage.gate:
        stage.gate.wait_for_arrival()


def sends_many_at_once(stage, name, count, method, path, key, body):
    stage.herd = [Background(lambda: stage.send(name, method, path, key, body)) for _ in range(int(count))]
    if stage.gate:
        stage.gate.wait_for_arrival()


def all_but_one_are_answered(stage):
    poll_until(lambda: sum(one.finished for one in stage.herd) == len(stage.herd) - 1, "all but one to be answered")


def one_gets_first_and_the_others_in_progress_or_replay(stage, status, body):
    replies = [one.result() for one in stage.herd]
    firsts = [reply for reply in replies if not reply.replayed and reply.status == int(status)]
    others = [reply for reply in replies if reply not in firsts]
    require(len(firsts) == 1, f"{len(firsts)} first answers: {replies}")
    require(all(reply.status == 409 or reply.replayed for reply in others), f"{others}")
    require(all(reply.body == body.encode() for reply in replies if reply.status == int(status)), f"{replies}")


def leaves_without_the_answer(stage, name, method, path, key, body):
    client = stage.client(name)
    with client.connect() as connection:
        connection.send(client.request_bytes(method, f"/{stage.scenario.name}{path}", key=key, body=body or ""))
        stage.gate.wait_for_arrival()


def waits_until_settled(stage, name, method, path, key, body):
    """Sends again and again until the answer is neither in progress nor an error on the way."""

    def settled():
        stage.answer = stage.send(name, method, path, key, body)
        return stage.answer.status < 400

    poll_until(settled, "a settled answer")


# Expectations.


def check_answer(stage, answer, status, body, replayed):
    require(answer.status == int(status), f"got {answer}")
    require(body is None or answer.body == body.encode(), f"got {answer}")
    require(answer.replayed == replayed, f"{'not ' if replayed else ''}a replay: {answer}")


def gets_first(stage, status, body):
    check_answer(stage, stage.answer, status, body, False)


def gets_replay(stage, status, body):
    check_answer(stage, stage.answer, status, body, True)


def background_gets(stage, status, body, kind):
    stage.answer = stage.background.result()
    check_answer(stage, stage.answer, status, body, kind == "replay")


def gets_mismatch(stage):
    require(stage.answer.status == MISMATCH_STATUS[stage.policy], f"got {stage.answer}")
    word = b"idempotency_error" if stage.policy.startswith("stripe") else b"mismatch"
    require(word in stage.answer.body, f"got {stage.answer}")


def gets_in_progress(stage):
    require(stage.answer.status == 409, f"got {stage.answer}")
    word = b"idempotency_key_in_use" if stage.policy.startswith("stripe") else b"in_progress"
    require(word in stage.answer.body, f"got {stage.answer}")


def gets_indeterminate(stage):
    word = b"idempotency_outcome_unknown" if stage.policy.startswith("stripe") else b"indeterminate"
    require(stage.answer.status == 409 and word in stage.answer.body, f"got {stage.answer}")
    require(stage.answer.header("Stripe-Should-Retry") != "true", f"told to retry: {stage.answer}")


def gets_error(stage, status):
    require(stage.answer.status == int(status), f"got {stage.answer}")
    require(not stage.answer.replayed, f"a replay: {stage.answer}")


def gets_header(stage, name, value):
    require(value in stage.answer.all(name), f"got {stage.answer}")


def gets_no_header(stage, name):
    require(not stage.answer.has(name), f"got {stage.answer}")


# Steps of the gateway and of time.


def gateway_is_killed_and_restarted(stage):
    for gateway in stage.world.gateways:
        gateway.kill()
    for gateway in stage.world.gateways:
        gateway.start()


def gateway_is_stopped_and_restarted(stage):
    for gateway in stage.world.gateways:
        gateway.stop()
        gateway.start()


def runs_out(stage, setting):
    text = stage.scenario.settings.get(setting)
    if text is None:
        raise StepFailed(f"the scenario must say: with {setting} = \"…\"")
    amount, unit = re.fullmatch(r"(\d+)(ms|s)", text).groups()
    seconds = int(amount) / (1000 if unit == "ms" else 1)
    below = f"/{stage.scenario.name}/"
    for gateway in stage.world.gateways:  # each by its own clock
        if setting == "lease":
            gateway.wait_until_leases_end(seconds, below=below)
        else:
            gateway.wait_until_expired(below=below)


REQUEST = r"(\w+) (/\S*)(?: key (\S+))?(?: body (.*?))?"

STEPS = [
    (r"upstream answers( once)? (\d{3})(?: (?!with header )(.*?))?(?: with header (.*))?", upstream_answers),
    (r"upstream hangs", upstream_hangs),
    (r"upstream goes on", upstream_goes_on),
    (r"upstream drops the connection", upstream_drops_the_connection),
    (r"upstream is down", upstream_is_down),
    (r"upstream is up", upstream_is_up),
    (r"upstream executed(?: key (\S+))? (\d+) times?", upstream_executed),
    (r"every execution had a higher fence", every_execution_had_a_higher_fence),
    (rf"(\w+) sends {REQUEST} in background", sends_in_background),
    (rf"(\w+) sends (\d+) times at once {REQUEST}", sends_many_at_once),
    (rf"(\w+) sends {REQUEST} and leaves", leaves_without_the_answer),
    (rf"(\w+) sends {REQUEST} until it is settled", waits_until_settled),
    (rf"(\w+) sends {REQUEST}", sends),
    (r"all but one are answered", all_but_one_are_answered),
    (r"one gets (\d{3}) (.*) first and the others in progress or replay",
     one_gets_first_and_the_others_in_progress_or_replay),
    (r"gets replay (\d{3})(?: (.*))?", gets_replay),
    (r"gets mismatch", gets_mismatch),
    (r"gets in progress", gets_in_progress),
    (r"gets indeterminate", gets_indeterminate),
    (r"gets error (\d{3})", gets_error),
    (r"gets header ([\w-]+): (.*)", gets_header),
    (r"gets no header ([\w-]+)", gets_no_header),
    (r"gets (\d{3})(?: (.*))? first", gets_first),
    (r"the one in background gets (\d{3})(?: (.*?))? (first|replay)", background_gets),
    (r"gateway is killed and restarted", gateway_is_killed_and_restarted),
    (r"gateway is stopped and restarted", gateway_is_stopped_and_restarted),
    (r"(lease|retention) runs out", runs_out),
]


def play(world, scenario):
    """Nothing when all went well, else the failure with file and line."""
    stage = Stage(world, scenario)
    for number, text, function, arguments in scenario.steps:
        try:
            function(stage, *arguments)
        except Exception as error:
            detail = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            return f"{scenario.file_name}:{number}: {text}\n    {detail}"
    return None


def play_world(policy, store, url, scenarios):
    """All scenarios of one policy on one store; returns (scenario, failure) pairs."""
    mine = [scenario for scenario in scenarios if policy in scenario.policies and store in scenario.stores]
    if not mine:
        return []
    world = World(policy, store, url, mine)
    try:
        return [(scenario, play(world, scenario)) for scenario in mine]
    finally:
        world.close()


def play_worlds(worlds, scenarios):
    """Prints every scenario of every (policy, store); returns how many were played and how many failed."""
    played = failures = 0
    with contextlib.ExitStack() as stack:
        servers = start_servers({store for _, store in worlds if store in SHARED_STORES}, stack)
        urls = {"memory": "memory:", "journal": "journal", **{name: server.url for name, server in servers.items()}}
        # The worlds have nothing to do with each other, and most of their time is waiting for leases to run out.
        with concurrent.futures.ThreadPoolExecutor(len(worlds)) as pool:
            runs = {world: pool.submit(play_world, *world, urls[world[1]], scenarios) for world in worlds}
        for (policy, store), run in runs.items():
            for scenario, failure in run.result():
                played += 1
                failures += failure is not None
                print(f"{'FAIL' if failure else 'ok  '} {scenario.title} [{policy}, {store}]")
                if failure:
                    print(f"    {failure}")
    return played, failures


def store_names(text):
    names = text.split(",")
    unknown = [name for name in names if name not in STORES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: none of {', '.join(STORES)}")
    return names


def read_scenarios(files):
    return [Scenario(os.path.relpath(file), file.read_text()) for file in files]


def main():
    parser = argparse.ArgumentParser(description="Runs scenario files against every policy and store they name.")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="scenario files; all beside this script by default")
    parser.add_argument("--policy", choices=POLICIES, action="append")
    parser.add_argument("--store", type=store_names, metavar="NAME,...",
                        help=f"of {', '.join(STORES)}; all whose servers this machine has by default")
    parser.add_argument("--all", action="store_true", help="every policy on shared stores too, which takes minutes")
    arguments = parser.parse_args()
    files = arguments.files or sorted(pathlib.Path(__file__).parent.glob("*.scenario"))
    try:
        scenarios = read_scenarios(files)
    except BadScenario as error:
        print(error)
        return 1
    stores = arguments.store or [store for store in STORES if store not in SHARED_STORES or store in available()]
    left_out = [store for store in SHARED_STORES if store not in stores]
    if left_out and not arguments.store:
        print(f"left out, since their servers are not installed: {', '.join(left_out)}")
    worlds = [(policy, store) for policy in arguments.policy or POLICIES for store in stores
              if arguments.all or arguments.policy or store not in SHARED_STORES or policy in FEW_POLICIES]
    played, failures = play_worlds(worlds, scenarios)
    print(f"{played} played, {failures} failed")
    return 1 if failures or not played else 0


if __name__ == "__main__":
    sys.exit(main())
