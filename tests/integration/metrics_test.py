"""The metrics as an interface: every name, type, help text and label is in tests/golden/metrics.golden, and the dashboard
and the alert rules in packaging/ name nothing else.

ONCEKEY_WRITE_GOLDEN=1 writes the list anew. `*` stands for names out of the configuration: routes, upstreams, destinations.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.cases import GatewayTest, fresh_key
from support.upstream import answers
from support.waiting import poll_until

PROJECT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = PROJECT / "tests" / "golden" / "metrics.golden"
PACKAGING = PROJECT / "packaging"

# Labels whose values the configuration names, as many as it has; and the version.
CONFIGURED = {"route", "upstream", "destination", "keys", "version"}
# Labels whose values appear when they are first counted: all that there can be.
OUTCOMES = {
    ("oncekey_jobs_received_total", "outcome"): {
        "staged", "duplicate", "challenge", "store_fault", "store_full", "overloaded", "too_large", "broken", "method",
        "unread", "mismatch", "secret_unusable", "header_missing", "header_malformed", "too_old", "too_new",
        "signature_wrong", "body_not_covered", "event_id_missing"},
    ("oncekey_job_attempts_total", "outcome"): {"delivered", "retry", "dead", "lost", "put_back"},
    ("oncekey_jobs", "state"): {"waiting", "taken", "dead"},
}
SAMPLE = re.compile(r'(\w+)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def families_of(text):
    """{name: {"type", "help", "labels": {label: values}}} of the text format."""
    families = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            families.setdefault(name, {"labels": {}})[what.lower()] = rest
            continue
        name, labels, _ = SAMPLE.fullmatch(line).groups()
        family = families.get(name) or families[re.sub(r"_(bucket|count|sum)$", "", name)]
        for label, value in LABEL.findall(labels or ""):
            if label != "le":
                family["labels"].setdefault(label, set()).add(value)
    return families


def golden_text(families):
    lines = ["Every metric: name, type, labels with the values they can have, and the help text."]
    for name, family in sorted(families.items()):
        lines.append(f"\n{name} {family['type']}")
        for label, values in sorted(family["labels"].items()):
            allowed = {"*"} if label in CONFIGURED else OUTCOMES.get((name, label), values)
            lines.append(f"  {label}: {' '.join(sorted(allowed))}")
        lines.append(f"  {family['help']}")
    return "\n".join(lines) + "\n"


def golden_names():
    return {line.split()[0] for line in GOLDEN.read_text().splitlines() if line.startswith("oncekey_")}


def golden_values(name, label):
    block = GOLDEN.read_text().split(f"\n{name} ", 1)[1].split("\n\n", 1)[0]
    return set(re.search(rf"^  {label}: (.*)$", block, re.MULTILINE).group(1).split())


def names_in(expression):
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\boncekey_\w+", expression)}


class MetricsTest(GatewayTest):
    @classmethod
    def setUpClass(cls):
        cls.routes = [{"path": "/charges/*"},
                      {"path": "/tokens/*", "scope": "jwt:sub", "jwt_keys": "http://127.0.0.1:9/keys",
                       "jwt_audience": "me"}]
        super().setUpClass()

    @classmethod
    def upstream_url(cls):
        cls.settings = {"webhook": [hooks.hook("stripe", cls.upstream.url + "/events")]}
        return cls.upstream.url

    def scrape(self, accept=None):
        return self.gateway.admin.get("/metrics", headers=[("Accept", accept)] if accept else [])

    def see_everything(self):
        self.upstream.always(answers(200))
        self.post("/charges/1")
        body, headers = hooks.stripe("evt_1")
        self.client.post("/hooks/stripe", body=body, headers=headers)
        poll_until(lambda: self.gateway.metric("oncekey_job_attempts_total", outcome="delivered") == 1, "the delivery")
        self.upstream.will(answers(410))  # gone for good: a dead letter
        body, headers = hooks.stripe("evt_2")
        self.client.post("/hooks/stripe", body=body, headers=headers)
        poll_until(lambda: self.gateway.metric("oncekey_jobs", state="dead") == 1, "the dead letter in the count")

    def test_names_types_labels_and_help_are_those_of_the_golden_list(self):
        self.see_everything()
        families = families_of(self.scrape().body.decode())
        for (name, label), allowed in OUTCOMES.items():
            self.assertLessEqual(families[name]["labels"][label], allowed, name)
        text = golden_text(families)
        if os.environ.get("ONCEKEY_WRITE_GOLDEN"):
            GOLDEN.write_text(text)
        self.assertEqual(text, GOLDEN.read_text())

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not there: scripts/setup test")
    def test_promtool_has_nothing_to_say_against_them(self):
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.scrape().body, capture_output=True,
                                 check=False)
        self.assertEqual((checked.returncode, checked.stderr), (0, b""), checked)

    def test_open_metrics_are_sent_where_asked_for_with_exemplars(self):
        trace = "0af7651916cd43dd8448eb211c80319c"
        self.post("/charges/traced", headers=[("traceparent", f"00-{trace}-b7ad6b7169203331-00")])
        answer = self.scrape("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
        self.assertEqual(answer.header("Content-Type"), "application/openmetrics-text; version=1.0.0; charset=utf-8")
        lines = answer.body.decode().split("\n")
        self.assertEqual(lines[-2:], ["# EOF", ""])
        exemplar = rf'oncekey_upstream_seconds_bucket\{{route="/charges/\*",upstream="[^"]+",le="[0-9.+Inf]+"\}} [0-9]+' \
                   rf' # \{{trace_id="{trace}"\}} [0-9.e-]+ [0-9]+\.[0-9]{{3}}'
        self.assertEqual(len([line for line in lines if re.fullmatch(exemplar, line)]), 1)
        sample = re.compile(r'\w+(\{(\w+="([^"\\]|\\["\\n])*",?)+\})? [0-9.e+-]+( # \{trace_id="[0-9a-f]{32}"\} \S+ \S+)?')
        of_type = {}
        for line in lines[:-2]:
            if line.startswith("# TYPE "):
                of_type[line.split()[2]] = line.split()[3]
            elif not line.startswith("# HELP "):
                self.assertRegex(line, sample)
                name = re.match(r"\w+", line).group()
                self.assertIn(of_type.get(re.sub(r"_(total|bucket|count|sum)$", "", name)) or of_type.get(name),
                              ("counter", "gauge", "histogram"), line)
        self.assertEqual(of_type["oncekey_requests"], "counter")
        plain = self.scrape("text/plain")
        self.assertEqual(plain.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")


class PackagedTest(unittest.TestCase):
    """What stands in packaging/ fits the metrics and the documents. Needs no gateway."""

    def setUp(self):
        # Flow mappings and one key a line: enough of YAML to find the rules.
        text = (PACKAGING / "prometheus" / "alerts.yml").read_text()
        self.alerts = {re.match(r" (\w+)", rule).group(1): rule for rule in text.split("- alert:")[1:]}

    def test_alerts_and_dashboard_name_metrics_that_exist(self):
        names = golden_names()
        for alert, rule in self.alerts.items():
            expression = re.search(r"expr: (.*?)(?=\n        (?:for|labels):)", rule, re.DOTALL).group(1)
            self.assertLessEqual(names_in(expression), names, alert)
            for values in re.findall(r'decision=~?"([^"]+)"', expression):
                self.assertLessEqual(set(values.split("|")), golden_values("oncekey_requests_total", "decision"), alert)
        dashboard = json.loads((PACKAGING / "grafana" / "oncekey.json").read_text())
        shown = set()
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                shown |= names_in(target["expr"])
                for values in re.findall(r'decision=~?"([^"]+)"', target["expr"]):
                    self.assertLessEqual(set(values.split("|")), golden_values("oncekey_requests_total", "decision"))
        self.assertLessEqual(shown, names)
        unseen = {"oncekey_build_info", "oncekey_jwks_age_seconds", "oncekey_jwks_fetches_total", "oncekey_jwks_usable",
                  "oncekey_config_loaded_timestamp_seconds", "oncekey_store_buckets", "oncekey_store_durability",
                  "oncekey_stored_bytes_total", "oncekey_upstream_breaker_refusals_total"}
        self.assertEqual(names - shown, unseen, "a metric is in the dashboard, or left out on purpose")

    def test_each_alert_has_a_heading_that_says_what_to_do(self):
        headings = {line[4:].lower() for line in (PROJECT / "docs" / "OPERATING.md").read_text().splitlines()
                    if line.startswith("### ")}
        for alert, rule in self.alerts.items():
            self.assertEqual(re.search(r"runbook: (\S+)", rule).group(1), f"docs/OPERATING.md#{alert.lower()}")
            self.assertIn(alert.lower(), headings)
            self.assertIn("summary:", rule)
            self.assertIn("severity:", rule)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not there: scripts/setup test")
    def test_promtool_accepts_and_tests_the_rules(self):
        for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
            ran = subprocess.run(["promtool", *words], cwd=PACKAGING / "prometheus", capture_output=True, text=True, check=False)
            self.assertEqual(ran.returncode, 0, ran)


if __name__ == "__main__":
    unittest.main()
