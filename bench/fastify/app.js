// A payment API as a team would write it: with the usual idempotency middleware on Redis, or without one.
//
//   node app.js PORT [redis://...]
"use strict";

const fastify = require("fastify");

async function main() {
  const [port, redis] = process.argv.slice(2);
  const app = fastify();
  if (redis) {
    const { Idempotency } = require("@node-idempotency/core");
    const { RedisStorageAdapter } = require("@node-idempotency/storage-adapter-redis");
    const storage = new RedisStorageAdapter({ url: redis });
    await storage.connect();
    const idempotency = new Idempotency(storage, { cacheTTLMS: 86_400_000 });
    const asked = (request) => ({
      headers: { "Idempotency-Key": request.headers["idempotency-key"] },
      path: request.url,
      body: request.body,
      method: request.method,
    });
    app.addHook("preHandler", async (request, reply) => {
      const known = await idempotency.onRequest(asked(request));
      if (!known) return undefined;
      request.replayed = true;
      return reply.code(known.additional.status).send(known.body);
    });
    app.addHook("onSend", async (request, reply, payload) => {
      if (!request.replayed) {
        await idempotency.onResponse(asked(request), { body: JSON.parse(payload), additional: { status: reply.statusCode } });
      }
      return payload;
    });
  }
  app.post("/charges", async (request, reply) => {
    reply.code(201);
    return { id: "ch_000001", amount: request.body.amount, currency: request.body.currency, status: "succeeded" };
  });
  await app.listen({ host: "127.0.0.1", port: Number(port) });
}

main();
