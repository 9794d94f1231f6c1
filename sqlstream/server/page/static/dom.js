// Makes elements. Text is always a text node: names and rows come from users, and must never be read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an HTML element: h("a", {href: "#/", class: "x", onclick: f, dataset: {..}}, "text", child, [children]). */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an SVG element in the same way. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Put children in place of those that an element has. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Say a text in an element; an element that says it already is left alone, so that a selection in it stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/**
 * Run a function at most once in so many milliseconds, and once more at the end; `signal` ends it. One that returns a promise is
 * not run again before that is settled: a slow server is not asked more and more, and no older answer comes after a newer one.
 */
export function throttled(milliseconds, signal, run) {
  let timer = null;
  let last = -Infinity;
  let isRunning = false;
  let again = false;
  signal?.addEventListener("abort", () => clearTimeout(timer));
  const start = async () => {
    timer = null;
    last = performance.now();
    isRunning = true;
    try {
      await run();
    } finally {
      isRunning = false;
      if (again) plan();
    }
  };
  const plan = () => {
    again = isRunning;
    if (isRunning || timer !== null || signal?.aborted) return;
    timer = setTimeout(start, Math.max(0, last + milliseconds - performance.now()));
  };
  return plan;
}

/** Run a function again and again until `signal` ends it. */
export function every(milliseconds, signal, run) {
  const timer = setInterval(run, milliseconds);
  signal.addEventListener("abort", () => clearInterval(timer));
}
