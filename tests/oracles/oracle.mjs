// One question a line, as JSON, and one answer: what the providers' own packages sign, and what they believe.
//
//   {"do": "sign", "provider": "stripe", "secret": "...", "id": "evt_1", "body": "...", "at": 1700000000, "url": "..."}
//     -> {"headers": {...}}
//   {"do": "verify", "provider": ..., "secret": ..., "headers": {...}, "body": ..., "url": ...}
//     -> {"believed": true}
import { createInterface } from "node:readline";

import { sign as octokitSign, verify as octokitVerify } from "@octokit/webhooks-methods";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";
import twilio from "twilio";

const stripe = new Stripe("sk_test_unused");

const providers = {
  stripe: {
    sign: ({ secret, body, at }) => ({
      "Stripe-Signature": stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: at }),
    }),
    verify: ({ secret, headers, body }) => {
      stripe.webhooks.constructEvent(body, headers["Stripe-Signature"], secret, 300);
      return true;
    },
  },
  github: {
    sign: async ({ secret, body, id }) => ({
      "X-Hub-Signature-256": await octokitSign(secret, body),
      "X-GitHub-Delivery": id,
      "X-GitHub-Event": "push",
    }),
    verify: ({ secret, headers, body }) => octokitVerify(secret, body, headers["X-Hub-Signature-256"]),
  },
  standard: {
    sign: ({ secret, body, id, at }) => ({
      "webhook-id": id,
      "webhook-timestamp": String(at),
      "webhook-signature": new StandardWebhook(secret).sign(id, new Date(at * 1000), body),
    }),
    verify: ({ secret, headers, body }) => {
      new StandardWebhook(secret).verify(body, headers);
      return true;
    },
  },
  svix: {
    sign: ({ secret, body, id, at }) => ({
      "svix-id": id,
      "svix-timestamp": String(at),
      "svix-signature": new SvixWebhook(secret).sign(id, new Date(at * 1000), body),
    }),
    verify: ({ secret, headers, body }) => {
      new SvixWebhook(secret).verify(body, headers);
      return true;
    },
  },
  twilio: {
    sign: ({ secret, url, body, id }) => ({
      "X-Twilio-Signature": twilio.getExpectedTwilioSignature(secret, url, Object.fromEntries(new URLSearchParams(body))),
      "I-Twilio-Idempotency-Token": id,
      "Content-Type": "application/x-www-form-urlencoded",
    }),
    verify: ({ secret, url, headers, body }) =>
      twilio.validateRequest(secret, headers["X-Twilio-Signature"] ?? "", url, Object.fromEntries(new URLSearchParams(body))),
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  const provider = providers[question.provider];
  let answer;
  if (question.do === "sign") {
    answer = { headers: await provider.sign(question) };
  } else {
    try {
      answer = { believed: Boolean(await provider.verify(question)) };
    } catch {
      answer = { believed: false };
    }
  }
  console.log(JSON.stringify(answer));
}
