"""Traces: a span for each request with spans below it, sent to a collector by OTLP over HTTP with JSON."""

import http.server
import json
import pathlib
import re
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.gateway import Gateway
from support.upstream import Upstream, answers
from support.waiting import poll_until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTHER = "1bf7651916cd43dd8448eb211c80319c"

# The field names of OTLP's JSON, and what stands under each.
FIELDS = {"traceId": r"[0-9a-f]{32}", "spanId": r"[0-9a-f]{16}", "parentSpanId": r"[0-9a-f]{16}", "traceState": r".+",
          "name": r".+", "startTimeUnixNano": r"\d{19}", "endTimeUnixNano": r"\d{19}"}


class Collector:
    """Takes POST /v1/traces and keeps the spans, checked against the encoding."""

    def __init__(self):
        self.spans, self.faults, self.status = [], [], 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    collector.take(self.path, self.headers["Content-Type"], json.loads(body))
                except Exception as fault:  # shown by the test, which waits for spans
                    collector.faults.append(fault)
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def take(self, path, content_type, body):
        assert (path, content_type) == ("/v1/traces", "application/json"), (path, content_type)
        assert set(body) == {"resourceSpans"}, body
        for of_resource in body["resourceSpans"]:
            assert set(of_resource) == {"resource", "scopeSpans"}, of_resource
            resource = attributes_of(of_resource["resource"])
            assert (resource["service.name"], resource["service.instance.id"]) == ("oncekey", "eu-1"), resource
            for of_scope in of_resource["scopeSpans"]:
                assert set(of_scope) == {"scope", "spans"} and of_scope["scope"]["name"] == "oncekey", of_scope
                for span in of_scope["spans"]:
                    self.check(span)
                    self.spans.append(span)

    @staticmethod
    def check(span):
        assert {"traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes"} <= set(span)
        for name, value in span.items():
            if name in FIELDS:
                assert isinstance(value, str) and re.fullmatch(FIELDS[name], value), (name, value)
        assert not set(span) - set(FIELDS) - {"kind", "attributes", "links", "status"}, span
        assert span["kind"] in (1, 2, 3), span
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        attributes_of(span)
        for link in span.get("links", []):
            assert re.fullmatch(FIELDS["traceId"], link["traceId"]) and re.fullmatch(FIELDS["spanId"], link["spanId"])


def attributes_of(holder):
    out = {}
    for attribute in holder["attributes"]:
        assert set(attribute) == {"key", "value"} and len(attribute["value"]) == 1, attribute
        (kind, value), = attribute["value"].items()
        assert kind in ("stringValue", "intValue") and isinstance(value, str), attribute
        out[attribute["key"]] = int(value) if kind == "intValue" else value
    return out


class TracingTest(GatewayTest):
    routes = [{"path": "/charges/*"}, {"path": "/later/*", "respond_async": True}]

    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.stop)
        cls.settings = {"otlp_endpoint": cls.collector.url, "trace_sample": "0%", "gateway_name": "eu-1",
                        "access_log": "access.log"}
        super().setUpClass()

    def spans_of(self, trace, count):
        def found():
            self.assertEqual(self.collector.faults, [])
            return [span for span in self.collector.spans if span["traceId"] == trace]

        poll_until(lambda: len(found()) >= count, f"{count} spans of {trace}")
        self.assertEqual(len(found()), count, found())
        return {span["name"]: span for span in found()}

    def test_an_execution_has_a_span_with_three_below_it_and_a_replay_links_to_its_call(self):
        self.upstream.will(answers(201))
        self.post("/charges/1", headers=[("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "vendor=1")])
        spans = self.spans_of(TRACE, 4)
        request, upstream = spans["POST /charges/*"], spans["upstream"]
        self.assertEqual((request["parentSpanId"], request["kind"], request["traceState"]), (PARENT, 2, "vendor=1"))
        told = attributes_of(request)
        self.assertEqual((told["http.request.method"], told["http.route"], told["http.response.status_code"],
                          told["oncekey.decision"]), ("POST", "/charges/*", 201, "execute"))
        self.assertEqual({name: (span["kind"], span["parentSpanId"]) for name, span in spans.items() if span != request},
                         {"claim": (1, request["spanId"]), "upstream": (3, request["spanId"]),
                          "complete": (1, request["spanId"])})
        order = [int(spans[name]["startTimeUnixNano"]) for name in ("claim", "upstream", "complete")]
        self.assertEqual(order, sorted(order))
        # The upstream's own spans hang below the call.
        sent = self.upstream.last
        self.assertEqual(sent.all("traceparent"), [f"00-{TRACE}-{upstream['spanId']}-01"])
        self.assertEqual(sent.all("tracestate"), ["vendor=1"])

        self.post("/charges/1", headers=[("traceparent", f"00-{OTHER}-{PARENT}-01")])
        replay = self.spans_of(OTHER, 2)["POST /charges/*"]
        self.assertEqual(attributes_of(replay)["oncekey.decision"], "replay")
        self.assertEqual(replay["links"], [{"traceId": TRACE, "spanId": upstream["spanId"]}])

    def test_an_execution_that_is_answered_later_has_its_spans_below_the_first_request(self):
        trace = "3" + TRACE[1:]
        self.upstream.will(answers(201))
        accepted = self.post("/later/1", headers=[("traceparent", f"00-{trace}-{PARENT}-01"), ("Prefer", "respond-async")])
        self.assertEqual(accepted.status, 202)
        spans = self.spans_of(trace, 4)
        request, upstream = spans["POST /later/*"], spans["upstream"]
        self.assertEqual(attributes_of(request)["http.response.status_code"], 202)
        self.assertEqual({spans[name]["parentSpanId"] for name in ("claim", "upstream", "complete")}, {request["spanId"]})
        self.assertEqual(self.upstream.last.all("traceparent"), [f"00-{trace}-{upstream['spanId']}-01"])
        # The replay is linked to that call.
        other = "4" + TRACE[1:]
        self.post("/later/1", headers=[("traceparent", f"00-{other}-{PARENT}-01")])
        replay = self.spans_of(other, 2)["POST /later/*"]
        self.assertEqual(replay["links"], [{"traceId": trace, "spanId": upstream["spanId"]}])

    def test_a_request_that_passes_has_a_span_of_its_call(self):
        trace = "2" + TRACE[1:]
        self.client.get("/elsewhere", headers=[("traceparent", f"00-{trace}-{PARENT}-01")])
        spans = self.spans_of(trace, 2)
        self.assertEqual(set(spans), {"GET (none)", "upstream"})
        self.assertEqual(self.upstream.last.all("traceparent"), [f"00-{trace}-{spans['upstream']['spanId']}-01"])

    def test_what_is_not_sampled_is_forwarded_as_it_came(self):
        given = f"00-{TRACE[::-1]}-{PARENT}-00"
        self.post("/charges/2", headers=[("traceparent", given)])
        self.assertEqual(self.upstream.last.all("traceparent"), [given])
        self.post("/charges/2", key=fresh_key())
        self.assertEqual(self.upstream.last.all("traceparent"), [])


class SampledTest(unittest.TestCase):
    def test_a_request_without_a_trace_gets_one_that_its_record_and_the_access_log_name(self):
        collector = Collector()
        self.addCleanup(collector.stop)
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, [{"path": "/*"}], otlp_endpoint=collector.url, gateway_name="eu-1",
                     access_log="access.log") as gateway:
            gateway.client().post("/charges", key=fresh_key())
            poll_until(lambda: len(collector.spans) >= 4, "the spans")
            trace = collector.spans[0]["traceId"]
            self.assertNotIn("parentSpanId", collector.spans[0])
            self.assertEqual(gateway.records()[0]["trace"], trace)
            self.assertIn(trace, upstream.last.all("traceparent")[0])
            poll_until(lambda: f"trace={trace}" in (gateway.folder / "access.log").read_text(), "the access log's line")
            self.assertEqual(collector.faults, [])
            # A collector that refuses costs spans, which are counted, and no request.
            collector.status = 503
            gateway.client().post("/charges", key=fresh_key())
            gateway.wait_for_log("event=spans_dropped")
            self.assertEqual(gateway.metric("oncekey_spans_total", result="dropped"), 4)
            self.assertEqual(gateway.metric("oncekey_spans_total", result="sent"), 4)


if __name__ == "__main__":
    unittest.main()
