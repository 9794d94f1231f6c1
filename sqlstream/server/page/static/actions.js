// What can be done with a job: stop it, take a savepoint, drop it.

import { call, jobPath } from "./api.js";
import { ask, tell } from "./dialog.js";
import { fill, h } from "./dom.js";
import { isActive } from "./status.js";

const STOP = {
  drain: "Stop for good: close all windows first (drain)",
  savepoint: "Take a savepoint, too",
};

/** The buttons of a job: {element, draw(status)}; `changed` is called when something was done. */
export function actions(name, changed, signal) {
  const element = h("div", { class: "actions" });
  const button = (text, run, tone = "") =>
    h("button", { type: "button", class: tone, "aria-label": `${text} ${name}`, onclick: (event) => act(event.target, run) }, text);
  const act = async (pressed, run) => {
    pressed.disabled = true;
    try {
      const message = await run();
      if (message && !signal.aborted) tell(message);
    } catch (error) {
      if (!signal.aborted) tell(error);
    } finally {
      pressed.disabled = false;
      changed();
    }
  };
  let shown = null;
  return {
    element,
    draw(status) {
      const active = isActive(status);
      if (shown === active) return;
      shown = active;
      fill(
        element,
        active && button("Savepoint", () => savepoint(name)),
        active && button("Stop", () => stop(name)),
        !active && button("Savepoint", () => savepoint(name)),
        !active && button("Drop", () => drop(name), "danger"),
      );
    },
  };
}

async function stop(name) {
  const chosen = await ask(`Stop ${name}?`, "It ends after its batch. It goes on from there when its SQL is submitted again.", "Stop", {
    choices: STOP,
  });
  if (!chosen) return null;
  const body = { drain: chosen.drain, ...(chosen.savepoint ? { savepoint: "" } : {}) };
  return (await call(jobPath(name, "stop"), { body })).message;
}

async function savepoint(name) {
  const chosen = await ask(`Take a savepoint of ${name}?`, "It keeps the job's newest version under a name.", "Take it", {
    text: "Name (without one: the job's name and version)",
  });
  if (!chosen) return null;
  const taken = await call(jobPath(name, "savepoints"), { body: { name: chosen.text || null } });
  return `savepoint "${taken.savepoint}" of ${taken.job} at version ${taken.version}`;
}

async function drop(name) {
  const chosen = await ask(`Drop ${name}?`, "This deletes the job, its state, and the rows that it wrote. Savepoints stay.", "Drop", {
    tone: "danger",
  });
  return chosen ? (await call(jobPath(name), { method: "DELETE" })).message : null;
}
