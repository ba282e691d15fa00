"""Senders of webhooks, as their documentation describes them: each signs a body and gives the headers to send."""

import base64
import hashlib
import hmac
import json
import os
import time

SECRETS = {"stripe": "whsec_test_stripe", "github": "It's a Secret to Everybody", "shopify": "hush",
           "standard": "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode(),
           "slack": "8f742231b10e8888abcd99yyyzzz85a5"}


def kept(name, secret):
    """The secret as a configuration names it. Gateways that tests start inherit the environment of the test."""
    variable = f"ONCEKEY_TEST_{name.upper()}"
    os.environ[variable] = secret
    return f"env:{variable}"


def mac(secret, message, algorithm="sha256"):
    return hmac.new(secret if isinstance(secret, bytes) else secret.encode(), message, algorithm)


def stripe(event_id, body=None, *, secret=SECRETS["stripe"], at=None):
    body = body if body is not None else json.dumps({"id": event_id, "object": "event"}).encode()
    stamp = str(int(at if at is not None else time.time()))
    signature = mac(secret, stamp.encode() + b"." + body).hexdigest()
    return body, [("Stripe-Signature", f"t={stamp},v1={signature}"), ("Content-Type", "application/json")]


def github(event_id, body=None, *, secret=SECRETS["github"]):
    """What happened, and when, stands in the body: no two events have the same."""
    body = body if body is not None else json.dumps({"zen": "Keep it logically awesome.", "after": event_id}).encode()
    return body, [("X-GitHub-Delivery", event_id), ("X-GitHub-Event", "push"),
                  ("X-Hub-Signature-256", "sha256=" + mac(secret, body).hexdigest()),
                  ("Content-Type", "application/json")]


def shopify(event_id, body=b'{"order":1}', *, secret=SECRETS["shopify"]):
    return body, [("X-Shopify-Webhook-Id", event_id), ("X-Shopify-Topic", "orders/create"),
                  ("X-Shopify-Hmac-Sha256", base64.b64encode(mac(secret, body).digest()).decode()),
                  ("Content-Type", "application/json")]


def standard(event_id, body=b'{"type":"a"}', *, secret=SECRETS["standard"], at=None, prefix="webhook"):
    stamp = str(int(at if at is not None else time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(mac(key, f"{event_id}.{stamp}.".encode() + body).digest()).decode()
    return body, [(f"{prefix}-id", event_id), (f"{prefix}-timestamp", stamp), (f"{prefix}-signature", f"v1,{signature}"),
                  ("Content-Type", "application/json")]


def slack(event_id, body=None, *, secret=SECRETS["slack"], at=None):
    body = body if body is not None else json.dumps({"type": "event_callback", "event_id": event_id}).encode()
    stamp = str(int(at if at is not None else time.time()))
    signature = mac(secret, b"v0:" + stamp.encode() + b":" + body).hexdigest()
    return body, [("X-Slack-Request-Timestamp", stamp), ("X-Slack-Signature", f"v0={signature}"),
                  ("Content-Type", "application/json")]


def hook(provider, deliver_to, **settings):
    """The [[webhook]] table of a provider at /hooks/PROVIDER, quick to try again."""
    return {"path": f"/hooks/{provider}", "provider": provider, "secrets": [kept(provider, SECRETS[provider])],
            "deliver_to": deliver_to, "first_pause": "100ms", "longest_pause": "500ms", **settings}
