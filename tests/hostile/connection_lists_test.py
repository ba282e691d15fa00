"""Connection lists: long ones cost nothing, and none removes what a proxy in front has added."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.upstream import answers


class ConnectionListsTest(GatewayTest):
    routes = [{"path": "/charges"}, {"path": "/observed", "mode": "observe"}]

    def test_a_long_list_is_refused(self):
        for lists in ([",".join(["z"] * 65)], ["z,z,z"] * 22):
            for target in ("/charges", "/elsewhere"):
                response = self.post(target, headers=[("Connection", value) for value in lists])
                self.assertEqual(response.status, 400, response)
        self.assert_executed(0)
        self.assert_first(self.post(headers=[("Connection", ",".join(["z"] * 64))]))

    def test_a_client_does_not_remove_what_a_proxy_in_front_added(self):
        added = [("X-Authenticated-User", "alice"), ("X-Forwarded-For", "10.0.0.1")]
        for name in ("X-Authenticated-User", "x-authenticated-user", "X-Forwarded-For", "Content-Type", "Origin"):
            for target, key in (("/charges", self.key), ("/charges", None), ("/elsewhere", None), ("/observed", self.key)):
                with self.subTest(name=name, target=target, key=key):
                    response = self.post(target, key=key, headers=[*added, ("Origin", "https://a.example"),
                                                                   ("Connection", f"keep-alive, {name}")])
                    self.assertEqual(response.status, 400, response)
        self.assert_executed(0)

    def test_what_real_clients_send_is_taken(self):
        for fields in ([("Connection", "keep-alive")], [("Connection", "Keep-Alive, TE"), ("TE", "trailers")],
                       [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")],
                       [("Connection", "close, X-Not-There")], [("Proxy-Connection", "keep-alive")]):
            with self.subTest(fields=fields):
                self.upstream.reset()
                self.assertEqual(self.client.post("/elsewhere", headers=fields).status, 201)
                for name in ("TE", "Upgrade", "HTTP2-Settings", "Proxy-Connection"):
                    self.assertFalse(self.upstream.last.has(name), name)

    def test_a_long_list_of_an_answer_is_honoured(self):
        names = ",".join(f"z{number}" for number in range(2000))
        self.upstream.will(answers(201, b"x", [("Connection", f"X-Hop,{names}"), ("X-Hop", "1"), ("X-End", "2")]))
        response = self.post()
        self.assertEqual((response.status, response.has("X-Hop"), response.header("X-End")), (201, False, "2"))


if __name__ == "__main__":
    unittest.main()
