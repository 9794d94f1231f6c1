// The status of a job, and how far its watermark is behind.

import { serverNow } from "./api.js";
import { h, say } from "./dom.js";
import { duration, isEnd, micros, NOTHING } from "./format.js";

const TONES = {
  RUNNING: "good",
  FINISHED: "done",
  STOPPED: "done",
  RESTARTING: "warning",
  FAILED: "bad",
  LOST: "bad",
  DAMAGED: "bad",
  INCOMPATIBLE: "bad",
};

/** The status as a word in its colour: {element, draw(status, supervised)}. */
export function statusPill() {
  const element = h("span", { class: "pill" });
  return {
    element,
    draw(status, supervised) {
      element.dataset.tone = TONES[status] ?? "done";
      element.title = supervised ?? "";
      say(element, (status ?? "unknown").toLowerCase());
    },
  };
}

export function isActive(status) {
  return status === "RUNNING" || status === "RESTARTING";
}

/** How far a watermark is behind the server's clock, of a job that runs. */
export function lagOf(watermark, isLive) {
  if (isEnd(watermark)) return "at the end";
  const time = micros(watermark);
  return time === null || !isLive ? NOTHING : duration(serverNow() - time);
}
