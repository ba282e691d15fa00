// api: calls to the gateway's JSON API. It is on the same listener as the page; no other host is ever asked.

const kPatienceMs = 20_000;

export class ApiError extends Error {
  constructor(status, code, message, body) {
    super(message);
    this.status = status; // 0: no answer
    this.code = code;
    this.body = body ?? {};
  }
}

export class Api {
  #csrf = null;

  // `on_logged_out` is called when the session is over.
  constructor(on_logged_out) {
    this.on_logged_out = on_logged_out;
  }

  use_session(session) {
    this.#csrf = session?.csrf ?? null;
  }

  get(path, signal) {
    return this.#call("GET", path, { signal });
  }

  // `key` makes an action happen once, however often it is sent.
  post(path, body, { key = null, signal = null } = {}) {
    return this.#call("POST", path, { body, key, signal });
  }

  async #call(method, path, { body, key, signal, again = false }) {
    const headers = {};
    if (method !== "GET") {
      headers["Content-Type"] = "application/json";
      if (this.#csrf) headers["X-Oncekey-CSRF"] = this.#csrf;
      if (key) headers["Idempotency-Key"] = key;
    }
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(), kPatienceMs);
    const give_up = () => patience.abort();
    signal?.addEventListener("abort", give_up);
    let response, answer;
    try {
      response = await fetch(path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        credentials: "same-origin",
        cache: "no-store",
        redirect: "error",
        signal: patience.signal,
      });
      answer = await response.json();
    } catch (error) {
      if (signal?.aborted) throw error;
      if (response && !patience.signal.aborted)
        throw new ApiError(response.status, "unreadable", `The gateway's answer (${response.status}) is not JSON.`);
      throw new ApiError(
        0,
        "unreachable",
        patience.signal.aborted
          ? `The gateway has not answered within ${kPatienceMs / 1000} s.`
          : "The gateway cannot be reached.",
      );
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", give_up);
    }
    if (response.ok) return answer;
    // Another tab has logged in since: its session is the browser's now.
    if (answer.code === "csrf" && !again) {
      this.use_session(await this.get("/api/session", signal));
      return this.#call(method, path, { body, key, signal, again: true });
    }
    const error = new ApiError(
      response.status,
      answer.code ?? "",
      answer.error ?? `The gateway answered ${response.status}.`,
      answer,
    );
    if (response.status === 401 && path !== "/api/login" && path !== "/api/session") this.on_logged_out(error);
    throw error;
  }
}

// For Idempotency-Key. crypto.randomUUID is not there on a page without TLS.
export function random_key() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// "?a=1&b=2" of what has a value.
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length === 0 ? "" : "?" + given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
}
