// Drives the console as an operator would. console_test.py has started the gateway and says in ONCEKEY_WORLD what is
// there.
//
// One browser for all cases; each case has a page of its own. A script that fails, a rule of the
// Content-Security-Policy that is broken, or a request to another host fails the case it happens in.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const world = JSON.parse(process.env.ONCEKEY_WORLD);
const axe = fs.readFileSync("node_modules/axe-core/axe.min.js", "utf8");
const kPatienceMs = 20_000;
const kDesk = { width: 1280, height: 900 };
const kPhone = { width: 390, height: 844 };

let browser;
before(async () => {
  browser = await chromium.launch({
    // The same engine without the browser around it: half of the processor time.
    executablePath: process.env.ONCEKEY_CHROMIUM ?? "/usr/bin/chromium-headless-shell",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--disable-dev-shm-usage",
    ],
  });
});
after(() => browser?.close());

// A browser of its own for a person: cookies, colours, size of the screen.
// With the name of a `certificate`, or null for none, at the gateway whose operators have certificates.
async function person({ login = "operator", viewport = kDesk, scheme = "light", place = "#/", certificate } = {}) {
  const secure = certificate !== undefined;
  const { admin } = secure ? world.secure : world;
  const context = await browser.newContext({
    viewport,
    colorScheme: scheme,
    reducedMotion: "reduce",
    ...(secure ? certificate_options(certificate) : {}),
  });
  context.setDefaultTimeout(kPatienceMs);
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(`error in a script: ${error.stack}`));
  page.on("console", (message) => {
    // The browser notes every status from 400 on; what the page makes of those is tested.
    const noted = message.text().startsWith("Failed to load resource");
    if (["error", "warning"].includes(message.type()) && !noted) page.faults.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(`${admin}/`)) page.faults.push(`request to ${request.url()}`);
  });
  if (login && !secure) {
    const answer = await context.request.post(`${world.admin}/api/login`, {
      data: { token: login === "operator" ? world.token : world.read_token },
      headers: { Origin: world.admin },
    });
    assert.equal(answer.status(), 200, await answer.text());
  }
  await page.goto(`${admin}/console/${place}`);
  return page;
}

function certificate_options(name) {
  const files = world.secure.people[name];
  return {
    ignoreHTTPSErrors: true, // no browser knows the listener's own certificate
    clientCertificates: files ? [{ origin: world.secure.admin, certPath: files.crt, keyPath: files.key }] : [],
  };
}

// A case with its page: what went wrong in it unseen is seen here.
function with_page(name, options, run) {
  test(name, async () => {
    const page = await person(options);
    try {
      await run(page);
      assert.deepEqual(page.faults, []);
      assert.equal(await page.evaluate(() => document.title.includes("owned")), false, "text has become code");
    } catch (error) {
      await page.screenshot({ path: `${world.shots}/failed.png` });
      throw error;
    } finally {
      // A poll may be on its way through a route of the case: closing the page ends it, and that is no fault.
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await page.context().close();
    }
  });
}

const go = (page, hash) =>
  page.evaluate((to) => {
    location.hash = to;
  }, hash);
const key_page = (name) => `#/keys/${world.keys[name].id}`;
const heading = (page, name) => page.getByRole("heading", { name, level: 1 });
const seen = (locator) => locator.first().waitFor({ state: "visible" });
const verdict = (page) => page.locator(".answer");

// What a client gets that sends the request again.
function retry(name, body = '{"amount":2000}') {
  const { key, target } = world.keys[name];
  const headers = {
    Host: "api.test",
    "Content-Type": "application/json",
    "Content-Length": body.length,
    "Idempotency-Key": key,
    Authorization: "Bearer alice",
  };
  return new Promise((resolve, reject) => {
    http
      .request(`${world.gateway}${target}`, { method: "POST", headers }, (answer) => {
        let text = "";
        answer
          .on("data", (piece) => {
            text += piece;
          })
          .on("end", () => resolve({ status: answer.statusCode, text }));
      })
      .on("error", reject)
      .end(body);
  });
}

// The page asks for the overview when it comes into view again.
const poll_now = (page) => page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));

// A route that gets no answer until the gate is opened.
function gate() {
  let open;
  const opened = new Promise((resolve) => {
    open = resolve;
  });
  return {
    open,
    hold: async (route) => {
      await opened;
      await route.continue();
    },
  };
}

async function until(what, probe) {
  const deadline = Date.now() + kPatienceMs;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function fill_in(page, { reason = "asked the bank", confirm }) {
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill(reason);
  await dialog.getByLabel(/To confirm, type/).fill(confirm);
  return dialog;
}
const digits = (name) => world.keys[name].id.slice(0, 8);

// Login.

with_page(
  "the link of `oncekey console` logs in once, and its code does not stay in the address",
  { login: null },
  async (page) => {
    await seen(heading(page, "Log in to the console"));
    const link = execFileSync(world.binary, ["console", "--admin", world.admin_address], {
      env: { ...process.env, ONCEKEY_ADMIN_TOKEN: world.token },
      encoding: "utf8",
    }).match(/http\S+/)[0];
    await page.goto(link);
    await seen(page.getByText("Is everything all right?"));
    assert.equal(new URL(page.url()).hash, "#/");
    await page.getByRole("button", { name: "Log out" }).click();
    await seen(heading(page, "Log in to the console"));
    assert.equal(await page.getByText("Is everything all right?").count(), 0);
    await page.goto(link);
    await seen(page.getByRole("alert").filter({ hasText: /\w/ }));
    assert.equal(await page.getByRole("navigation").count(), 0);
  },
);

with_page(
  "a typed token logs in; a wrong one says so and keeps the field ready",
  { login: null, place: "#/keys" },
  async (page) => {
    await page.getByLabel("Token").fill("wrong-token-0123456789");
    await page.keyboard.press("Enter");
    await seen(page.getByRole("alert").filter({ hasText: /\w/ }));
    await page.getByLabel("Token").fill(world.token);
    const sent = [];
    page.on("request", (request) => request.method() === "POST" && sent.push(request.url()));
    await page.getByRole("button", { name: "Log in" }).dblclick();
    await seen(heading(page, "Keys"));
    assert.equal(sent.length, 1, "a double click logs in once");
  },
);

const secure_key_page = `#/keys/${world.secure.key}`;

with_page(
  "a client certificate logs in by itself, and who acts is its name",
  { certificate: "alice", place: secure_key_page },
  async (page) => {
    await seen(heading(page, "by-certificate-1"));
    await seen(page.getByText("operator", { exact: true }));
    await page.getByRole("button", { name: "Let the next retry execute" }).click();
    const dialog = await fill_in(page, { confirm: world.secure.key.slice(0, 8) });
    await dialog.locator("button[type=submit]").click();
    await dialog.waitFor({ state: "detached" });
    await seen(page.getByText(/by session .* \(certificate O=Shop,CN=alice\)/));
    await go(page, "#/audit");
    await seen(page.getByRole("row").filter({ hasText: "with a certificate" }));
    await page.screenshot({ path: `${world.shots}/certificate.png`, fullPage: true });
  },
);

with_page(
  "a certificate that is no operator's may read alone",
  { certificate: "bob", place: secure_key_page },
  async (page) => {
    await seen(page.getByText("read only", { exact: true }));
    assert.equal(await page.getByRole("button", { name: "Release" }).getAttribute("aria-disabled"), "true");
    await seen(page.getByText(/logged in to read only/));
  },
);

with_page("without a certificate the token is asked for", { certificate: null }, async (page) => {
  await seen(heading(page, "Log in to the console"));
});

with_page(
  "a session that ends hides everything, and goes on where it was, with what was typed",
  { place: key_page("over") },
  async (page) => {
    await page.getByRole("button", { name: "Release" }).click();
    const dialog = await fill_in(page, { reason: "half a reason", confirm: digits("over") });
    await page.context().clearCookies();
    await dialog.getByRole("button", { name: "Release" }).click();
    await seen(heading(page, "Your session is over"));
    assert.equal(await page.getByText(world.keys.over.key).first().isVisible(), false);
    assert.equal(await page.getByRole("dialog").count(), 0);
    await page.getByLabel("Token").fill(world.token);
    await page.keyboard.press("Enter");
    await seen(page.getByRole("dialog"));
    assert.equal(await page.getByRole("dialog").getByLabel("Reason").inputValue(), "half a reason");
    await page.getByRole("dialog").getByRole("button", { name: "Release" }).click();
    await seen(heading(page, "This key is not there"));
  },
);

// Overview.

with_page("the overview says in words what needs a person, and leads there", {}, async (page) => {
  const answer = verdict(page);
  await seen(answer.getByText(/^.*No\. .* a person\.$/));
  await seen(answer.getByText(/unknown outcome/));
  await seen(answer.getByText(/could not be delivered/));
  for (const name of [
    "Requests by decision",
    "Upstream latency",
    "Store latency",
    "Gateways on this store",
    "Deliveries",
    "Hot keys",
    "Leases about to end",
    "Store and limits",
    "APIs behind it",
  ])
    await seen(page.getByRole("heading", { name, level: 2 }));
  await seen(page.getByRole("row", { name: /eu-1/ }));
  assert.equal(await page.locator(".plot canvas").count(), 3);
  assert.match(await page.locator(".plot").first().getAttribute("aria-label"), /In all: first [1-9]/);
  await answer.getByRole("link", { name: "Show dead letters" }).click();
  await seen(heading(page, "Jobs"));
});

with_page("a key is hot when it is retried more than clients do", {}, async (page) => {
  const row = (id, retries, storm = false) => ({ id: id.repeat(64), route: "/*", retries, storm });
  let keys = [row("a", 40, true), row("b", 3), row("c", 2), row("d", 1)];
  await page.route("**/api/overview*", async (route) => {
    const response = await route.fetch();
    const json = await response.json();
    json.storms.keys = keys;
    await route.fulfill({ response, json });
  });
  await page.reload();
  const table = page.getByRole("table", { name: "Hot keys" });
  await seen(table.getByRole("link", { name: "bbbbbbbb" }));
  assert.equal(await table.getByRole("link").count(), 2);
  keys = "0123456789".split("").map((id) => row(id, 5));
  await poll_now(page);
  await seen(page.getByText("The 8 that are retried most."));
  assert.equal(await table.getByRole("link").count(), 8);
  keys = [row("c", 2)];
  await poll_now(page);
  await seen(page.getByText("No key is retried often at the moment."));
});

with_page("the overview is live, and its history survives a reload", {}, async (page) => {
  const replays = async () =>
    Number(
      (
        await page
          .getByRole("row", { name: /^replay/ })
          .getByRole("cell")
          .nth(1)
          .textContent()
      ).replace(/\D/g, ""),
    );
  await seen(page.getByRole("row", { name: /^replay/ }));
  const before_retry = await replays();
  assert.equal((await retry("done")).status, 201);
  await until("the replay to be counted", async () => (await replays()) > before_retry);
  const counted = await replays();
  await page.reload();
  await seen(page.getByRole("row", { name: /^replay/ }));
  assert.ok((await replays()) >= counted);
});

with_page("an overview that cannot be had is said, and what was there stays", {}, async (page) => {
  await seen(page.getByRole("heading", { name: "Store and limits" }));
  await page.route("**/api/overview*", (route) => route.abort());
  await poll_now(page);
  await seen(page.getByText(/No answer from the gateway since/));
  assert.ok(await page.getByRole("heading", { name: "Store and limits" }).isVisible());
  await page.unroute("**/api/overview*");
  await poll_now(page);
  await page.getByText(/No answer from the gateway since/).waitFor({ state: "detached" });
});

// Keys.

with_page(
  "the keys that need a person come first; pages go on; the look says how far it went",
  { place: "#/keys" },
  async (page) => {
    const rows = page.getByRole("table", { name: "Keys" }).getByRole("row");
    await seen(page.getByRole("rowheader", { name: "Need a person" }));
    assert.match(await rows.nth(1).textContent(), /Need a person/);
    await seen(page.getByText(/Looked at .* more/));
    const first_page = await page.getByRole("table", { name: "Keys" }).textContent();
    await page.getByRole("link", { name: "Next page" }).click();
    await seen(page.getByText(/all there are/));
    assert.notEqual(await page.getByRole("table", { name: "Keys" }).textContent(), first_page);
    await page.goBack();
    await seen(page.getByText(/Looked at .* more/));
    await page.getByLabel("State").selectOption("in_progress");
    await page.getByRole("button", { name: "Search" }).press("Enter");
    await until("the others to go", async () => (await page.getByRole("link", { name: /^bulk-/ }).count()) === 0);
    await seen(page.getByRole("link", { name: world.keys.running.key }));
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Search", "the focus stays");
    await page.goBack();
    await seen(page.getByText(/Looked at .* more/));
    assert.equal(await page.getByLabel("State").inputValue(), "", "the form says what is shown");
  },
);

with_page(
  "a key is found by its text and account, neither of which is in the address",
  { place: "#/keys" },
  async (page) => {
    await page.getByLabel("Key", { exact: true }).fill(world.keys.evil.key);
    await page.getByRole("button", { name: "Search" }).click();
    const found = page.getByRole("link", { name: world.keys.evil.key });
    await seen(found);
    assert.equal(await page.locator("img").count(), 0);
    await page.getByLabel("Account").fill("Bearer alice");
    await page.getByText("More, to name one record exactly").click();
    await page.getByLabel("Path").fill("/charges");
    await page.getByRole("button", { name: "Search" }).click();
    await seen(page.getByText(/exact id/));
    await seen(found);
    assert.doesNotMatch(decodeURIComponent(page.url()), /alice|img/);
    await page.getByLabel("Account").fill("Bearer mallory");
    await page.getByRole("button", { name: "Search" }).click();
    await seen(page.getByText("There is no such key."));
    await page.getByRole("button", { name: "Clear" }).click();
    await seen(page.getByRole("rowheader", { name: "Need a person" }));
  },
);

with_page("a record without a client's key is found and named", { place: "#/keys?route=%2Falike%2F*" }, async (page) => {
  await page.getByRole("link", { name: "no key: known by its content" }).click();
  await seen(heading(page, "no key: known by its content"));
  assert.equal(await page.getByRole("button", { name: "Copy key" }).count(), 0);
  await seen(verdict(page).getByRole("heading", { name: /Executed once$/ }));
  // Events of a key lie close together: each has its time to the millisecond.
  const times = await page.locator(".timeline li .quiet").allTextContents();
  assert.equal(times.length, 4);
  for (const text of times) assert.match(text, /^\d+ \w+,? \d\d:\d\d:\d\d\.\d{3} · /);
});

with_page(
  "filters that fit nothing, and a listing that fails, have their words",
  { place: "#/keys?older_than=1d" },
  async (page) => {
    await seen(page.getByText("No key fits these filters."));
    await page.route("**/api/keys?*", (route) =>
      route.fulfill({ status: 503, json: { error: "the store sleeps", code: "store" } }),
    );
    await go(page, "#/keys?state=completed");
    await seen(page.getByRole("alert").getByText("the store sleeps"));
    await page.unroute("**/api/keys?*");
    await page.getByRole("button", { name: "Try again" }).click();
    await seen(page.getByRole("table", { name: "Keys" }));
  },
);

// The last member changes what the API answers: a record, or the overview.
const kAsFarAsKnown = "Executed once, as far as this gateway knows";
const kLater = "2999-01-02T03:04:05.678Z";
const released_before = (record) =>
  record.timeline.unshift({ at: record.first_received, event: "operator", text: "release: done", who: "token" });
const kVerdicts = [
  ["done", "Executed once", /stored answer \(201\)/],
  ["held", "Not known whether it was executed", /409, “outcome unknown”/],
  ["waits", "Not known whether it was executed", /“outcome unknown”/],
  ["abandoned", "Not known whether it was executed", /next retry with the same body is forwarded/],
  ["taken_over", "Executed, maybe more than once", /took over from one.* stored answer \(201\)/],
  ["running", "Being executed now", /409, “in progress”/],
  ["released", "Executed, maybe more than once", /released the key before.* stored answer \(201\)/],
  ["running", "Being executed again now", /released the key before/, { record: released_before }],
  ["held", "Not known whether it was executed, or how often", /more than one run/, { record: released_before }],
  // 100 actions of operators are not in its timeline.
  ["busy", kAsFarAsKnown, /older than those in the timeline.* stored answer \(201\)/],
  ["done", kAsFarAsKnown, /through other gateways/, { overview: (overview) => (overview.gateways_shared = true) }],
  ["taken_over", "maybe more than once", /took over/, { overview: (overview) => (overview.gateways_shared = true) }],
  [
    "done",
    kAsFarAsKnown,
    /before the time that the audit log was looked at back to/,
    { record: (record) => (record.audit_back_to = kLater) },
  ],
  ["done", "Executed once", /no other run/, { record: (record) => (record.audit_back_to = record.first_received) }],
  ["done", "Executed once", /no other run/, { record: (record) => (record.audit = "memory") }],
  [
    "done",
    kAsFarAsKnown,
    /before this gateway's start/,
    { record: (record) => (record.audit = "memory"), overview: (overview) => (overview.started = kLater) },
  ],
];
with_page("a key's page says whether it was executed and what a retry gets, in every state", {}, async (page) => {
  let change = {};
  const changed = (part) => async (route) => {
    const response = await route.fetch();
    const json = await response.json();
    change[part]?.(json);
    await route.fulfill({ response, json });
  };
  await page.route("**/api/keys/*", changed("record"));
  await page.route("**/api/overview*", changed("overview"));
  for (const [name, title, retry_text, wanted = {}] of kVerdicts) {
    change = wanted;
    await go(page, "#/nowhere");
    await go(page, key_page(name));
    await poll_now(page);
    await seen(heading(page, world.keys[name].key));
    await seen(verdict(page).getByRole("heading", { name: new RegExp(`${title}$`) }));
    assert.match(await verdict(page).textContent(), retry_text, name);
    await seen(page.locator(".timeline li.received"));
  }
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await go(page, `#/keys/${"0".repeat(64)}`);
  await seen(heading(page, "This key is not there"));
  await go(page, "#/nowhere");
  await seen(heading(page, "There is no such page"));
});

with_page("as long as the overview is not there, a key was executed once as far as is known", {}, async (page) => {
  const answer = gate();
  await page.route("**/api/overview*", answer.hold);
  await page.goto(`${world.admin}/console/${key_page("done")}`);
  await page.reload();
  await seen(verdict(page).getByRole("heading", { name: new RegExp(`${kAsFarAsKnown}$`) }));
  answer.open();
  await seen(verdict(page).getByRole("heading", { name: /Executed once$/ }));
});

with_page("a page says what the client was told: the statuses are those that a retry gets", {}, async (page) => {
  for (const name of ["done", "held", "running"]) {
    await go(page, key_page(name));
    await seen(heading(page, world.keys[name].key));
    const status = (await retry(name)).status;
    assert.match(await verdict(page).textContent(), new RegExp(`gets (the stored answer \\()?${status}`), name);
  }
  await go(page, key_page("done"));
  await seen(page.locator(".timeline li.replayed"));
  await seen(page.locator(".timeline li.mismatch"));
});

with_page("a key that was acted on many times shows the newest actions", { place: key_page("busy") }, async (page) => {
  await seen(page.getByText("100 actions of operators up to here: the audit log has them"));
  assert.equal(await page.locator(".timeline li.operator").count(), 51);
});

with_page("a page says when the audit log was not looked at whole", {}, async (page) => {
  await page.route(`**/api/keys/${world.keys.done.id}`, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), audit_back_to: "2026-01-02T03:04:05.678Z" } });
  });
  await go(page, key_page("done"));
  await seen(page.getByText(`oncekey audit show --record ${world.keys.done.id}`));
});

with_page("bodies and cookies are hidden until asked for, and are text", { place: key_page("done") }, async (page) => {
  await seen(page.getByRole("button", { name: /Show the body/ }));
  assert.doesNotMatch(await page.locator("main").textContent(), /secret-cookie|ch_1/);
  await seen(page.getByText("hidden until the body is shown"));
  await page.getByRole("button", { name: /Show the body/ }).click();
  await seen(page.locator("pre.body"));
  assert.ok((await page.locator("pre.body").textContent()).includes(world.evil));
  await seen(page.getByText("session=secret-cookie"));
  assert.equal(await page.locator("main img").count(), 0);
  await page.getByRole("button", { name: "Hide the body" }).click();
  assert.doesNotMatch(await page.locator("main").textContent(), /secret-cookie|ch_1/);
});

with_page("a copy button copies, and says so", { place: key_page("done") }, async (page) => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: world.admin });
  await page.getByRole("button", { name: "Copy key" }).click();
  await seen(page.getByRole("status").getByText("Copied key."));
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), world.keys.done.key);
});

// Actions.

with_page(
  "a dialog explains, keeps the focus, closes on Escape and gives the focus back",
  { place: key_page("held") },
  async (page) => {
    const button = page.getByRole("button", { name: "Release" });
    await button.focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: /Release/ });
    await seen(dialog.getByText("What it risks:"));
    assert.equal(await page.evaluate(() => document.activeElement.name), "reason");
    for (let presses = 0; presses < 8; ++presses) {
      await page.keyboard.press("Tab");
      assert.ok(
        await page.evaluate(
          () => document.activeElement === document.body || document.activeElement.closest("dialog") !== null,
        ),
      );
    }
    // Without a reason, or with the wrong digits, nothing is sent.
    const sent = [];
    page.on("request", (request) => request.method() === "POST" && sent.push(request.url()));
    await dialog.getByRole("button", { name: "Release" }).click();
    await dialog.getByLabel("Reason").fill("x");
    await dialog.getByLabel(/To confirm/).fill("00000000");
    await dialog.getByRole("button", { name: "Release" }).click();
    assert.deepEqual(sent, []);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Release");
  },
);

with_page("complete gives the answer that retries get from then on", { place: key_page("complete") }, async (page) => {
  await page.getByRole("button", { name: "Complete" }).click();
  const dialog = await fill_in(page, { reason: `charged, says the bank ${world.evil}`, confirm: digits("complete") });
  await dialog.getByLabel("Status").fill("203");
  await dialog.getByLabel("Body").fill('{"id":"by hand"}');
  await dialog.getByRole("button", { name: "Complete" }).click();
  await dialog.waitFor({ state: "detached" });
  await seen(verdict(page).getByText("Settled by an operator"));
  await seen(page.getByText(/charged, says the bank/));
  assert.deepEqual(await retry("complete"), { status: 203, text: '{"id":"by hand"}' });
});

with_page("a double click acts once", { place: key_page("twice") }, async (page) => {
  const keys = [];
  page.on("request", (request) => request.method() === "POST" && keys.push(request.headers()["idempotency-key"]));
  await page.getByRole("button", { name: "Release" }).click();
  const dialog = await fill_in(page, { confirm: digits("twice") });
  await dialog.getByRole("button", { name: "Release" }).dblclick();
  await seen(heading(page, "This key is not there"));
  assert.equal(new Set(keys).size, 1);
  assert.match(keys[0], /^[0-9a-f]{32}$/);
  await go(page, "#/audit");
  await seen(page.getByRole("row").filter({ hasText: digits("twice") }));
  assert.equal(
    await page
      .getByRole("row")
      .filter({ hasText: digits("twice") })
      .count(),
    1,
  );
});

with_page(
  "an answer that is lost is said to be unknown, and the same key goes again",
  { place: key_page("release") },
  async (page) => {
    const keys = [];
    page.on("request", (request) => request.method() === "POST" && keys.push(request.headers()["idempotency-key"]));
    await page.getByRole("button", { name: "Release" }).click();
    const dialog = await fill_in(page, { confirm: digits("release") });
    await page.route(
      "**/release",
      async (route) => {
        await route.fetch();
        await route.abort();
      },
      { times: 1 },
    );
    await dialog.getByRole("button", { name: "Release" }).click();
    await seen(dialog.getByText(/It is not known whether it was done/));
    await dialog.getByRole("button", { name: "Release" }).click();
    await seen(heading(page, "This key is not there"));
    assert.equal(keys.length, 2);
    assert.equal(keys[0], keys[1]);
  },
);

with_page("a rerun lets the next retry execute, and the page follows", { place: key_page("rerun") }, async (page) => {
  await page.getByRole("button", { name: "Let the next retry execute" }).click();
  const dialog = await fill_in(page, { confirm: digits("rerun") });
  await dialog.locator("button[type=submit]").click();
  await dialog.waitFor({ state: "detached" });
  await seen(verdict(page).getByText("Runs again at the next retry"));
  await retry("rerun");
  await go(page, "#/");
  await go(page, key_page("rerun"));
  await seen(page.locator(".timeline li.taken_over"));
});

with_page("hold stops the retries of an abandoned key", { place: key_page("hold") }, async (page) => {
  await seen(verdict(page).getByText(/next retry with the same body is forwarded/));
  await page.getByRole("button", { name: "Hold" }).click();
  await (await fill_in(page, { confirm: digits("hold") })).getByRole("button", { name: "Hold" }).click();
  await seen(page.locator(".badge").getByText("indeterminate"));
  assert.equal((await retry("hold")).status, 409);
});

// Jobs.

const jobs = (page) => page.getByRole("table", { name: "Jobs" });

with_page("a run is stopped half way, and the rest is dropped by its count", { place: "#/jobs" }, async (page) => {
  await page.getByLabel("Destination").selectOption({ label: "hook /hooks/shopify" });
  await seen(page.getByText(`${world.orders} jobs: all that fit.`));
  await page.getByRole("button", { name: "Retry all that match…" }).click();
  const all = page.getByRole("dialog", { name: `Retry: ${world.orders} messages` });
  await fill_in(page, { reason: "repaired", confirm: String(world.orders) });
  await all.getByRole("button", { name: `Retry ${world.orders}` }).click();
  await seen(page.getByText(/Retry runs: [1-9]/));
  await page.screenshot({ path: `${world.shots}/run.png`, fullPage: true });
  await page.getByRole("button", { name: "Stop" }).dblclick();
  await seen(page.locator(".run").getByText(/Retry was stopped: \d+ of/));
  const [, done] = /was stopped: (\d+) of/.exec(await page.locator(".run").textContent());
  const left = world.orders - Number(done);
  assert.ok(left > 0 && left < world.orders, `${left} left`);

  await seen(page.getByText(new RegExp(`^${left} jobs?: all that fit`)));
  await page.getByRole("button", { name: "Drop all that match…" }).dblclick();
  const drop = page.getByRole("dialog", { name: `Drop: ${left} message` });
  await seen(drop.getByText(`${left} to hook /hooks/shopify`));
  assert.equal(await page.getByRole("dialog").count(), 1);
  await page.screenshot({ path: `${world.shots}/drop-all.png` });
  const sent = [];
  page.on("request", (request) => request.method() === "POST" && sent.push(request.url()));
  await fill_in(page, { reason: "the shop is closed", confirm: String(left + 1) });
  await drop.getByRole("button", { name: `Drop ${left}` }).click();
  assert.deepEqual(sent, [], "another number confirms nothing");
  await fill_in(page, { reason: "the shop is closed", confirm: String(left) });
  await drop.getByRole("button", { name: `Drop ${left}` }).dblclick();
  await seen(page.getByText(`Drop is done: ${left} of ${left} dropped.`));
  await seen(page.getByText("No message fits these filters."));
  assert.equal(sent.filter((url) => url.endsWith("/api/jobs/drop")).length, 1);
  await page.getByRole("link", { name: "Dropped" }).click();
  await seen(page.getByText(new RegExp(`^${left} jobs?: all that fit`)));

  await go(page, "#/audit");
  for (const what of ["stop_run", "retry_jobs", "drop_jobs"]) await seen(page.getByRole("row").filter({ hasText: what }));
  assert.equal(await page.getByRole("row").filter({ hasText: "stop_run" }).count(), 1, "a double click stops once");
});

with_page(
  "dead letters say why each died; one is dropped, and a selection, and what matches",
  { place: "#/jobs" },
  async (page) => {
    await seen(jobs(page).getByText(/410/));
    assert.equal(await jobs(page).getByRole("checkbox", { name: /evt_/ }).count(), 6);
    await jobs(page).getByRole("link", { name: "evt_stripe_0" }).click();
    await seen(verdict(page).getByText("No, and it is not tried again"));
    await seen(page.getByRole("table", { name: "Attempts" }).getByText(/410/));
    await page.getByRole("button", { name: /Show the body/ }).click();
    await seen(page.locator("pre.body").getByText(/evt_stripe_0/));
    const id = (await page.locator("dd code").last().textContent()).slice(0, 8);
    await page.getByRole("button", { name: "Drop" }).click();
    await (await fill_in(page, { reason: "a test event", confirm: id })).getByRole("button", { name: "Drop" }).click();
    await seen(verdict(page).getByText("No: an operator dropped it"));
    await seen(page.getByRole("table", { name: "What operators did" }).getByText("a test event"));

    await go(page, "#/jobs");
    await jobs(page).getByRole("link", { name: "evt_github_0" }).click();
    await seen(heading(page, "evt_github_0"));
    const other = (await page.locator("dd code").last().textContent()).slice(0, 8);
    await page.getByRole("button", { name: "Retry" }).click();
    await (
      await fill_in(page, { reason: "receiver works", confirm: other })
    )
      .getByRole("button", { name: "Retry" })
      .click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await until("the delivery", async () => {
      await go(page, "#/jobs?state=delivered");
      return (await jobs(page).getByText("evt_github_0").count()) > 0;
    });
    await jobs(page).getByRole("link", { name: "evt_github_0" }).click();
    await seen(verdict(page).getByRole("heading", { name: /Yes$/ }));

    await go(page, "#/jobs");
    await jobs(page).getByRole("checkbox", { name: "Select evt_stripe_1" }).check();
    await seen(page.getByText("1 selected"));
    await page.getByRole("button", { name: "Retry selected…" }).click();
    const one = page.getByRole("dialog", { name: "Retry: 1 message" });
    await seen(one.getByText(/to .*stripe/));
    await fill_in(page, { reason: "repaired", confirm: "1" });
    await one.getByRole("button", { name: "Retry 1" }).click();
    await seen(page.getByText(/Retry is done: 1 of 1/));

    await page.getByLabel("Destination").focus();
    await page.getByLabel("Destination").selectOption({ label: "hook /hooks/stripe" });
    await jobs(page).getByText("evt_github_1").waitFor({ state: "detached" });
    assert.equal(await page.evaluate(() => document.activeElement.name), "destination", "the focus stays");
    await page.goBack();
    await seen(jobs(page).getByText("evt_github_1"));
    assert.equal(await page.getByLabel("Destination").inputValue(), "", "the filter says what is shown");
    await page.goForward();
    await jobs(page).getByText("evt_github_1").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Retry all that match…" }).click();
    const two = page.getByRole("dialog", { name: "Retry: 2 messages" });
    await fill_in(page, { reason: "repaired", confirm: "2" });
    await two.getByRole("button", { name: "Retry 2" }).click();
    await seen(page.getByRole("meter", { name: "Progress of the run" }).or(page.getByText(/Retry is done: 2 of 2/)));
    await seen(page.getByText(/Retry is done: 2 of 2/));
    await seen(page.getByText("No message fits these filters."));

    await page.getByLabel("Destination").selectOption("");
    await jobs(page).getByRole("checkbox", { name: "Select all shown" }).check();
    await page.getByRole("button", { name: "Drop selected…" }).click();
    await (await fill_in(page, { reason: "old", confirm: "1" })).getByRole("button", { name: "Drop 1" }).click();
    await seen(page.getByText(/Drop is done: 1 of 1/));
    await seen(page.getByText("There are no dead letters."));
    await page.getByRole("link", { name: "Delivered", exact: true }).click();
    await seen(jobs(page).getByText("evt_stripe_1"));
  },
);

with_page("“Show more” asks for more, on every tab and with every filter", { place: "#/" }, async (page) => {
  const asked = [];
  await page.route("**/api/jobs?*", async (route) => {
    asked.push(new URL(route.request().url()).searchParams);
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), more: true } });
  });
  for (const [hash, state, newer_than] of [
    ["#/jobs?state=", null, null],
    ["#/jobs?newer_than=1d&state=", null, "1d"],
    ["#/jobs?state=delivered", "delivered", null],
  ]) {
    await go(page, hash);
    for (const limit of ["500", "2500"]) {
      await page.getByRole("link", { name: "Show more" }).click();
      await until(`${limit} jobs to be asked for`, () => asked.at(-1).get("limit") === limit);
      assert.equal(asked.at(-1).get("state"), state, hash);
      assert.equal(asked.at(-1).get("newer_than"), newer_than, hash);
    }
    await go(page, "#/");
  }
});

with_page("where not all jobs were looked at, none found does not mean none there", { place: "#/" }, async (page) => {
  await page.route("**/api/jobs?*", (route) => route.fulfill({ json: { jobs: [], more: true, whole: false } }));
  for (const [hash, advice] of [
    ["#/jobs?state=dead&older_than=1d", /Choose a destination/],
    ["#/jobs?state=&older_than=1d", /Choose a state or a destination/],
    ["#/jobs?state=&destination=hook%20/hooks/stripe", /Choose a state/],
    ["#/jobs?state=dead&destination=hook%20/hooks/stripe&older_than=1d", /Choose another age/],
    ["#/jobs?state=delivered", /Choose a destination/],
  ]) {
    await go(page, hash);
    await seen(page.getByText("None was found, but not all messages were looked at."));
    await seen(page.getByText(advice));
    assert.equal(await page.getByText(/No message fits|No delivered messages/).count(), 0, hash);
    await go(page, "#/");
  }
});

with_page(
  "a run over messages of which not all were looked at says so when none of them fits",
  { place: "#/" },
  async (page) => {
    await page.route("**/api/jobs?*", async (route) => {
      const answer = await page.request.get(`${world.admin}/api/jobs?state=delivered&limit=1`);
      const { jobs } = await answer.json();
      await route.fulfill({ json: { jobs: jobs.map((job) => ({ ...job, state: "dead" })), more: true, whole: false } });
    });
    let capped = true;
    await page.route("**/api/jobs/retry", (route) =>
      route.fulfill({
        json: { action: "retry", count: 0, capped, cap: 10_000, destinations: [], skipped: [], takes_seconds: 0 },
      }),
    );
    await go(page, "#/jobs?state=dead&older_than=1d");
    await page.getByRole("button", { name: "Retry all that match…" }).click();
    await seen(page.getByRole("status").getByText(/not all messages were looked at\. Choose a destination/));
    capped = false;
    await page.getByRole("button", { name: "Retry all that match…" }).click();
    await seen(page.getByRole("status").getByText("No message fits any more."));
    assert.equal(await page.getByRole("dialog").count(), 0);
  },
);

with_page("id, headers and body of a webhook are text", { place: "#/jobs?state=delivered" }, async (page) => {
  await jobs(page).getByRole("link", { name: world.keys.evil.key }).click();
  await seen(heading(page, world.keys.evil.key));
  await seen(page.getByRole("table", { name: "Headers of the message" }).getByText(world.evil));
  await page.getByRole("button", { name: /Show the body/ }).click();
  await seen(page.locator("pre.body"));
  assert.ok((await page.locator("pre.body").textContent()).includes(world.evil));
  assert.equal(await page.locator("img").count(), 0);
});

// The audit trail.

const trail = (page) => page.getByRole("table", { name: "Audit trail" }).getByRole("row");

with_page("the audit trail goes back page by page and says how far it looked", { place: "#/audit" }, async (page) => {
  await seen(page.getByText(/^100 lines, newest first\. Looked at [\d,]+ lines of the log, back to .*; there are older ones/));
  assert.equal(await trail(page).count(), 101);
  const newest = await trail(page).nth(1).textContent();
  await page.getByRole("link", { name: "Older" }).press("Enter");
  await page.getByRole("link", { name: "Newest" }).waitFor();
  await until("other lines", async () => (await trail(page).nth(1).textContent()) !== newest);
  const older = page.getByRole("link", { name: "Older" });
  // Looked at in one go: what was there before stays until the next page has been read.
  const leads_to = () => older.evaluateAll((links) => links[0]?.getAttribute("href") ?? null);
  for (let from = await leads_to(); from !== null; from = await leads_to()) {
    await older.click();
    await until("the next page", () =>
      page.evaluate(
        (before) =>
          /Looked at/.test(document.body.textContent) &&
          document.querySelector(".pages a:last-child")?.getAttribute("href") !== before,
        from,
      ),
    );
  }
  await seen(page.getByText(/: that is all/));
  await page.getByRole("link", { name: "Newest" }).click();
  await seen(page.getByText(/^100 lines/));

  // A day before the first line; the address has it, and a reload and the way back keep to it.
  await page.getByLabel("Up to this day").fill("2020-01-02");
  await seen(page.getByText("There is nothing older."));
  await page.reload();
  assert.equal(await page.getByLabel("Up to this day").inputValue(), "2020-01-02");
  await page.goBack();
  await seen(page.getByText(/^100 lines/));
  assert.equal(await page.getByLabel("Up to this day").inputValue(), "");
});

with_page("a part of the log in which no operator acted is said to be one", { place: "#/" }, async (page) => {
  let asked = 0;
  await page.route("**/api/audit?*", (route) => {
    asked += 1;
    const lines = [];
    route.fulfill({ json: { lines, next: 1000 - asked, looked: 20000, back_to: "2026-01-02T03:04:05.678Z", from: "log" } });
  });
  await go(page, "#/audit");
  await seen(page.getByText("No operator has acted in this part of the log."));
  await seen(page.getByText(/Looked at 160,000 lines of the log/));
  assert.equal(asked, 8);
  await page.getByRole("link", { name: "Older" }).click();
  await until("the next part", () => asked === 16);
});

with_page("the audit trail says who did what and why, and cannot be changed", { place: "#/audit" }, async (page) => {
  const row = page.getByRole("row").filter({ hasText: digits("complete") });
  await seen(row.getByText("complete"));
  assert.ok((await row.textContent()).includes(world.evil));
  await page.getByLabel("Find in what is shown").fill("a test event");
  await until("one line", async () => (await page.getByRole("row").count()) === 2);
  assert.equal(await page.locator("main button:not(.copy)").count(), 0);
  await page.route("**/api/audit*", (route) =>
    route.fulfill({ status: 404, json: { error: "no audit log", code: "not_found" } }),
  );
  await page.reload();
  await seen(page.getByText("This gateway has no audit trail to show."));
});

// Who may only read.

with_page(
  "a reader sees everything but bodies, and why actions are not for them",
  { login: "reader", place: key_page("held") },
  async (page) => {
    const release = page.getByRole("button", { name: "Release" });
    await seen(release);
    assert.equal(await release.getAttribute("aria-disabled"), "true");
    await seen(page.getByText(/logged in to read only/));
    await release.click({ force: true });
    assert.equal(await page.getByRole("dialog").count(), 0);
    await go(page, key_page("done"));
    const show_body = page.getByRole("button", { name: /Show the body/ });
    await seen(show_body);
    assert.equal(await show_body.getAttribute("aria-disabled"), "true");
    await go(page, "#/jobs?state=");
    assert.equal(await page.getByRole("button", { name: "Retry selected…" }).getAttribute("aria-disabled"), "true");
    await seen(page.getByText("read only", { exact: true }));
  },
);

// Keyboard, colours, words.

with_page("the keyboard leads through it: skip link, focus on what is new, times", {}, async (page) => {
  await seen(page.getByText("Is everything all right?"));
  await page.locator("body").press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.getByRole("link", { name: /^Keys/ }).focus();
  await page.keyboard.press("Enter");
  await seen(heading(page, "Keys"));
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "H1");
  await go(page, key_page("done"));
  const received = page.locator(".timeline time").first();
  await received.focus();
  assert.match(await received.evaluate((node) => getComputedStyle(node, "::after").content), /20\d\d/);
});

with_page("the focus stays where it is while the page renews itself", { place: key_page("held") }, async (page) => {
  const button = page.getByRole("button", { name: "Copy id" }).last();
  await button.focus();
  const renewed = page.waitForResponse((response) => response.url().includes("/api/overview"));
  await poll_now(page);
  await renewed;
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Copy id");
});

with_page("colours follow the system until a person chooses, over reloads too", { scheme: "dark" }, async (page) => {
  const dark = () => page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
  await seen(page.getByLabel("Colours"));
  assert.equal(await dark(), "dark");
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await until(`${colorScheme} colours`, async () => (await dark()) === colorScheme);
  }
  await page.getByLabel("Colours").selectOption("light");
  assert.equal(await dark(), "light");
  await page.reload();
  await seen(page.getByLabel("Colours"));
  assert.equal(await dark(), "light");
});

with_page("what is all right and what is not, line by line", {}, async (page) => {
  await seen(page.getByText("Is everything all right?"));
  const said = await page.evaluate(async () => {
    const { findings_of, headline_of } = await import("/console/health.js");
    const fine = {
      status: "ready",
      reason: null,
      keys: { abandoned: 0, indeterminate: 0 },
      disk: { free_bytes: 50, size_bytes: 100 },
      store: { healthy: true, fault: null, room: true, shortage: null, bytes: 1, bytes_max: 100, durability: "power" },
      memory: { rss_bytes: 1, limit_bytes: 100, buffered_bytes: 1, buffered_bytes_max: 100 },
      connections: { open: 1, max: 100 },
      in_flight: { now: 1, max: 100 },
      upstreams: [{ name: "http://api", breaker_open: false }],
      gateways: [{ name: "a", state: "ready", seconds_ago: 1 }],
      jobs: { dead: 0, destinations: [] },
      storms: { stormy: 0 },
      history: { step_seconds: 5, columns: ["at", "first", "failed"], rows: [[1, 100, 1]] },
    };
    const tell = (change) => {
      const overview = structuredClone(fine);
      change(overview);
      const findings = findings_of(overview);
      return [headline_of(findings).tone, findings.map((finding) => finding.text).join(" ")];
    };
    return [
      tell(() => {}),
      tell((o) => {
        o.store.healthy = false;
        o.store.fault = "disk gone";
      }),
      tell((o) => {
        o.status = "starting";
      }),
      tell((o) => {
        o.status = "draining";
      }),
      tell((o) => {
        o.store.room = false;
        o.store.shortage = "disk full";
      }),
      tell((o) => {
        o.keys.indeterminate = 1;
      }),
      tell((o) => {
        o.keys.abandoned = 2;
      }),
      tell((o) => {
        o.jobs.dead = 3;
      }),
      tell((o) => {
        o.keys.abandoned = 1;
        o.jobs.dead = 1;
      }),
      tell((o) => {
        o.jobs.destinations = [{ destination: "x", waiting: 1, configured: false }];
      }),
      tell((o) => {
        o.upstreams[0].breaker_open = true;
      }),
      tell((o) => {
        o.gateways[0].state = "silent";
      }),
      tell((o) => {
        o.history.rows = [[1, 10, 9]];
      }),
      tell((o) => {
        o.storms.stormy = 1;
      }),
      tell((o) => {
        o.disk.free_bytes = 5;
      }),
      tell((o) => {
        o.store.bytes = 95;
      }),
      tell((o) => {
        o.memory.rss_bytes = 95;
      }),
      tell((o) => {
        o.connections.open = 95;
      }),
      tell((o) => {
        o.store.durability = "none";
      }),
      tell((o) => {
        o.disk = null;
        o.store.bytes_max = 0;
        o.in_flight.max = 0;
      }),
    ];
  });
  const expected = [
    ["good", /^$/],
    ["bad", /disk gone/],
    ["bad", /not ready/],
    ["warn", /shutting down/],
    ["bad", /disk full/],
    ["bad", /unknown outcome/],
    ["warn", /2 keys are abandoned/],
    ["bad", /3 messages could not/],
    ["bad", /^1 message could not.*1 key is abandoned/],
    ["bad", /not configured/],
    ["bad", /circuit breaker/],
    ["bad", /silent/],
    ["bad", /9 requests of 19/],
    ["warn", /retried/],
    ["warn", /disk is nearly full/],
    ["warn", /store holds/],
    ["warn", /95 B of the 100 B of memory/],
    ["warn", /95 of 100 connections/],
    ["warn", /over a restart/],
    ["good", /^$/],
  ];
  assert.equal(said.length, expected.length);
  expected.forEach(([tone, text], at) => {
    assert.equal(said[at][0], tone, said[at][1]);
    assert.match(said[at][1], text);
  });
});

// Every page: readable by everybody, nothing sticks out, and a picture of it.

const kPages = [
  ["overview", "#/", "Is everything all right?"],
  ["keys", "#/keys", "Need a person"],
  ["key-completed", key_page("done"), "Executed once"],
  ["key-indeterminate", key_page("held"), "Not known whether"],
  ["key-abandoned", key_page("abandoned"), "Not known whether"],
  ["key-running", key_page("running"), "Being executed"],
  ["key-taken-over", key_page("taken_over"), "maybe more than once"],
  ["job", `#/jobs/${world.job}`, "Was it delivered?"],
  ["jobs", "#/jobs?state=delivered", "evt_stripe_1"],
  ["jobs-empty", "#/jobs?state=taken", "Nothing is being delivered"],
  ["audit", "#/audit", "newest first"],
  ["not-found", `#/keys/${"0".repeat(64)}`, "not there"],
];

async function check_page(page, name) {
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: `${world.shots}/${name}.png`, fullPage: true });
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  assert.deepEqual(
    violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]),
    [],
    name,
  );
  assert.ok(
    await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
    `${name} is wider than the screen`,
  );
}

const kLoading = [
  ["overview", "#/", "**/api/overview*", "Loading the overview…", "Is everything all right?"],
  ["keys", "#/keys", "**/api/keys?*", "Loading the keys…", "Need a person"],
  ["key", key_page("done"), "**/api/keys/*", "Loading the key…", "Was it executed?"],
  ["jobs", "#/jobs?state=delivered", "**/api/jobs?*", "Loading the jobs…", world.keys.evil.key],
  ["job", `#/jobs/${world.job}`, "**/api/jobs/*", "Loading the message…", "Was it delivered?"],
  ["audit", "#/audit", "**/api/audit?*", "Loading the audit trail…", "newest first"],
];
with_page("a page says what it is loading, and that can be read by everybody", { place: "#/nowhere" }, async (page) => {
  for (const [name, hash, api, text, then] of kLoading) {
    const answer = gate();
    await page.route(api, answer.hold);
    await go(page, hash);
    await page.reload(); // nothing of an earlier page is there
    await seen(page.locator("[aria-busy=true]").getByText(text));
    assert.equal(await page.getByText(then).count(), 0, name);
    await page.evaluate(axe);
    await check_page(page, `loading-${name}`);
    answer.open();
    await seen(page.getByText(then));
    assert.equal(await page.getByText(text).count(), 0, name);
    await page.unroute(api);
  }
});

for (const [kind, options] of [
  ["light", {}],
  ["dark", { scheme: "dark" }],
  ["phone", { viewport: kPhone }],
  ["phone-dark", { viewport: kPhone, scheme: "dark" }],
]) {
  with_page(`every page can be read by everybody: ${kind}`, options, async (page) => {
    await page.evaluate(axe);
    for (const [name, hash, text] of kind === "phone-dark" ? kPages.slice(0, 3) : kPages) {
      await go(page, hash);
      await seen(page.getByText(text));
      await check_page(page, `${name}-${kind}`);
    }
    await go(page, key_page("held"));
    await page.getByRole("button", { name: "Complete" }).click();
    await check_page(page, `dialog-${kind}`);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Log out" }).click();
    await seen(heading(page, "Log in to the console"));
    await check_page(page, `login-${kind}`);
  });
}
