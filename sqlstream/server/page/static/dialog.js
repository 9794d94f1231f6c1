// Questions, and short messages.

import { fill, h } from "./dom.js";
import { problem } from "./problem.js";

const SHOWN_MILLISECONDS = 6000;

/**
 * Ask something. Return null where the answer is no, otherwise which of `choices` ({name: label}) are ticked, and the `text` that
 * was written into a field of this label.
 */
export function ask(title, explanation, yes, { choices = {}, text = null, tone = "primary" } = {}) {
  return new Promise((resolve) => {
    const boxes = Object.fromEntries(Object.keys(choices).map((name) => [name, h("input", { type: "checkbox" })]));
    const field = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const dialog = h("dialog", { class: "dialog", "aria-label": title });
    const end = (answer) => {
      dialog.remove();
      resolve(answer);
    };
    const agreed = (event) => {
      event.preventDefault();
      const ticked = Object.entries(boxes).map(([name, box]) => [name, box.checked]);
      end({ ...Object.fromEntries(ticked), text: field.value.trim() });
    };
    dialog.addEventListener("cancel", () => end(null));
    fill(
      dialog,
      h(
        "form",
        { onsubmit: agreed },
        h("h2", {}, title),
        h("p", {}, explanation),
        Object.entries(choices).map(([name, label]) => h("label", { class: "choice" }, boxes[name], label)),
        text && h("label", {}, text, field),
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", onclick: () => end(null) }, "Cancel"),
          h("button", { class: tone }, yes),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Say for some seconds what was done, or what went wrong, which stays until it is closed. */
export function tell(message) {
  let shelf = document.getElementById("messages");
  if (!shelf) document.body.append((shelf = h("div", { id: "messages", "aria-live": "polite" })));
  const isError = message instanceof Error;
  const note = h("div", { class: "note" }, isError ? problem(message) : h("p", {}, message));
  note.append(h("button", { class: "quiet", type: "button", "aria-label": "Close", onclick: () => note.remove() }, "✕"));
  shelf.append(note);
  if (!isError) setTimeout(() => note.remove(), SHOWN_MILLISECONDS);
}
