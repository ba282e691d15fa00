// Takes the pictures that pictures.py wants.
import { chromium } from "playwright-core";

const world = JSON.parse(process.env.ONCEKEY_WORLD);
const browser = await chromium.launch({
  executablePath: process.env.ONCEKEY_CHROMIUM ?? "/usr/bin/chromium-headless-shell",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const kDesk = { width: 1280, height: 880 };
const kPhone = { width: 390, height: 780 };

async function take(name, place, { viewport = kDesk, scheme = "light", full = false, act } = {}) {
  const context = await browser.newContext({ viewport, colorScheme: scheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  await context.request.post(`${world.admin}/api/login`, { data: { token: world.token }, headers: { Origin: world.admin } });
  await page.goto(`${world.admin}/console/${place}`);
  await page.waitForLoadState("networkidle");
  await page.locator("[aria-busy]").waitFor({ state: "detached" });
  if (act) await act(page);
  await page.waitForTimeout(500);
  await page.screenshot({ path: `${world.to}/${name}.png`, fullPage: full });
  await context.close();
}

const key = (name) => `#/keys/${world.keys[name]}`;
if (world.all) {
  const pages = {
    overview: "#/",
    keys: "#/keys",
    "key-lost": key("lost-91c0"),
    "key-held": key("lost-refund"),
    "key-running": key("slow-1"),
    "key-done": key("order-storm"),
    "key-made": key("made"),
    jobs: "#/jobs",
    job: `#/jobs/${world.job}`,
    audit: "#/audit",
  };
  for (const [name, place] of Object.entries(pages)) {
    await take(`${name}-light`, place, { full: true });
    await take(`${name}-dark`, place, { full: true, scheme: "dark" });
    await take(`${name}-phone`, place, { full: true, viewport: kPhone });
  }
  const ask = (name) => (page) => page.getByRole("button", { name, exact: true }).click();
  await take("dialog-light", key("lost-91c0"), { act: ask("Release") });
  await take("dialog-phone", key("lost-91c0"), { act: ask("Complete"), viewport: kPhone, scheme: "dark" });
} else {
  await take("console-overview", "#/");
  await take("console-key", key("lost-91c0"));
  await take("console-phone", key("lost-91c0"), { viewport: kPhone, scheme: "dark" });
}
await browser.close();
