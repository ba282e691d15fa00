// One question a line, as JSON, and one answer: tokens that the package `jose` signs, and what it believes.
//
//   {"do": "key", "alg": "ES256", "kid": "a"}                       -> {"jwk": {...}}, the public half (or the secret)
//   {"do": "sign", "kid": "a", "header": {...}, "claims": {...}}    -> {"token": "..."}
//   {"do": "verify", "jwks": {...}, "token": "...", "issuer": ..., "audience": ...} -> {"believed": true}
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";

import { CompactSign, createLocalJWKSet, exportJWK, generateKeyPair, jwtVerify } from "jose";

const keys = new Map();

const questions = {
  async key({ alg, kid }) {
    if (alg === "HS256") {
      const secret = randomBytes(32);
      keys.set(kid, secret);
      return { jwk: { kty: "oct", k: secret.toString("base64url"), kid, alg } };
    }
    const pair = await generateKeyPair(alg, { crv: alg === "EdDSA" ? "Ed25519" : undefined, modulusLength: 2048 });
    keys.set(kid, pair.privateKey);
    return { jwk: { ...(await exportJWK(pair.publicKey)), kid, alg } };
  },
  async sign({ kid, header, claims }) {
    const payload = new TextEncoder().encode(JSON.stringify(claims));
    return { token: await new CompactSign(payload).setProtectedHeader(header).sign(keys.get(kid)) };
  },
  async verify({ jwks, token, issuer, audience }) {
    const options = { issuer, audience, clockTolerance: 60, requiredClaims: ["exp", "sub"],
      algorithms: ["EdDSA", "ES256", "RS256", "PS256", "HS256"] };
    try {
      // A local set holds public keys only; secrets are given as they are.
      const secret = jwks.keys.length === 1 && jwks.keys[0].kty === "oct" && Buffer.from(jwks.keys[0].k, "base64url");
      await jwtVerify(token, secret || createLocalJWKSet(jwks), options);
      return { believed: true };
    } catch {
      return { believed: false };
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  console.log(JSON.stringify(await questions[question.do](question)));
}
