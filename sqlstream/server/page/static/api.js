// Asks the server. With tokens the page asks for one, and keeps it as long as the browser's tab is open.

import { fill, h } from "./dom.js";

const TOKEN = "sqlstream-token";
const AGAIN_MILLISECONDS = 1000;
const NO_ROOM_MILLISECONDS = 400;
// The server says something every 15 seconds: a connection that is silent for longer is dead, as after a laptop slept.
const SILENT_MILLISECONDS = 60_000;
// So is a request that has no answer for longer. What changes something may wait for a job.
const ANSWER_MILLISECONDS = 300_000;
let clockOffset = 0;
let asking = null;

/** What the server says is wrong: `text` as people read it, with carets, and `position` in the SQL. */
export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the server answered with ${status}`);
    this.status = status;
    this.text = problem.text ?? this.message;
    this.hint = problem.hint ?? null;
    this.position = problem.position ?? null;
  }
}

/** GET, or with a body POST, and return what the JSON says. Throws a Problem. */
export function call(path, { method, body, signal } = {}) {
  const isGet = method === undefined && body === undefined;
  return withToken(async () => {
    const ends = [signal, isGet && AbortSignal.timeout(ANSWER_MILLISECONDS)].filter(Boolean);
    const response = await asked(path, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(ends),
    });
    return response.json();
  });
}

/** Ask a state query; return {columns: [{name, type}], rows, truncated} with values as texts. Throws a Problem. */
export function query(sql, { limit, signal }) {
  return call("v1/query", { body: { sql, limit, text: true }, signal });
}

/** Ask something, and again as long as the server has no room for it, until `signal` ends that. */
export async function patiently(ask, signal) {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 429 || signal.aborted) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, NO_ROOM_MILLISECONDS));
  }
}

/** The path of a job, or of something below it: jobPath("a b", "stop") -> "v1/jobs/a%20b/stop". */
export function jobPath(name, ...parts) {
  return ["v1/jobs", name, ...parts].map((part, i) => (i ? encodeURIComponent(part) : part)).join("/");
}

/** The server's time, in microseconds since 1970: this machine's clock may be another. */
export function serverNow() {
  return (Date.now() + clockOffset) * 1000;
}

/**
 * Call `heard(kind, data)` for each event of a job (of all without a name) until `signal` ends it. A stream that breaks off is
 * opened again; each one begins with how the jobs are now, after `opened` was called.
 */
export function listen(job, signal, heard, opened = () => {}) {
  return stream(job === null ? "v1/events" : `v1/events?job=${encodeURIComponent(job)}`, signal, heard, opened);
}

/** Listen to the events of an address in the same way. */
export async function stream(path, signal, heard, opened = () => {}) {
  // The view that comes next may listen to nothing.
  signal.addEventListener("abort", () => connected(null));
  while (!signal.aborted) {
    try {
      const response = await withToken(() => asked(path, { signal }));
      connected(true);
      opened();
      await read(response.body, heard);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 429) throw error;
    }
    if (signal.aborted) return;
    connected(false);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MILLISECONDS));
  }
}

/** Read server-sent events. EventSource would do so, but it can send no token. */
async function read(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const leave = () => reader.cancel().catch(() => {});
  let text = "";
  for (;;) {
    const silent = setTimeout(leave, SILENT_MILLISECONDS);
    const { value, done } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const of = (field) => lines.find((line) => line.startsWith(`${field}: `))?.slice(field.length + 2);
      if (!of("event")) continue;
      const [kind, data] = [of("event"), JSON.parse(of("data"))];
      // A mistake of whoever hears must not look like one of the connection.
      queueMicrotask(() => heard(kind, data));
    }
  }
}

/** Say whether there is a connection; null where none is wanted. */
function connected(is) {
  document.dispatchEvent(new CustomEvent("connection", { detail: is }));
}

async function asked(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  // The header has whole seconds: less than two are no difference.
  const offset = Date.parse(response.headers.get("Date")) - Date.now();
  if (!Number.isNaN(offset)) clockOffset = Math.abs(offset) > 2000 ? offset : 0;
  if (response.ok) return response;
  throw new Problem(response.status, await response.json().catch(() => ({})));
}

/** Do what needs a token; where there is none, or a wrong one, ask for it and do it again. */
async function withToken(action) {
  for (;;) {
    const before = sessionStorage.getItem(TOKEN);
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 401) throw error;
    }
    // Several calls may have failed together: one dialog serves them all.
    if (sessionStorage.getItem(TOKEN) === before) {
      asking ??= askForToken(before !== null).finally(() => (asking = null));
      await asking;
    }
  }
}

function askForToken(wasWrong) {
  return new Promise((resolve) => {
    // A header takes no other characters: a request with them would not even be sent.
    const printable = { pattern: "\\s*[\\x21-\\x7e]+\\s*", title: "A token has ASCII letters, digits and signs alone" };
    const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true, ...printable });
    const dialog = h("dialog", {
      class: "dialog", "aria-label": "Token",
      oncancel: (event) => event.preventDefault(),
      // A browser closes it all the same when Escape is pressed twice.
      onclose: () => dialog.isConnected && dialog.showModal(),
    });
    const form = h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          sessionStorage.setItem(TOKEN, input.value.trim());
          dialog.remove();
          resolve();
        },
      },
      h("h2", {}, "Token"),
      h("p", {}, wasWrong ? "The server does not know this token." : "The server wants to know who asks."),
      h("label", { for: "token" }, "A token of the role read, submit or admin"),
      input,
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Go on")),
    );
    document.body.append(fill(dialog, form));
    dialog.showModal();
  });
}
