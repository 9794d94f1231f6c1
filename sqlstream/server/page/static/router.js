// Shows the view of the address behind the #. A view is a module with `show(root, params, signal)`: it fills the element `root`,
// and stops all that it has begun when `signal` is aborted, which is when another view is shown.

import { fill, h } from "./dom.js";
import { problem } from "./problem.js";

// The pattern of an address, where `:name` is a parameter, the name in the navigation (null: none), and the module.
const ROUTES = [
  ["/", "Jobs", () => import("./views/jobs.js")],
  ["/job/:name", null, () => import("./views/job.js")],
  ["/job/:job/state/:state", null, () => import("./views/state.js")],
  ["/sql", "SQL", () => import("./views/sql.js")],
  ["/results", "Results", () => import("./views/results.js")],
  ["/results/:table", null, () => import("./views/results.js")],
];

let current = null;

/** Show views from now on. */
export function start(root, nav) {
  const named = ROUTES.filter(([, name]) => name !== null);
  fill(nav, named.map(([path, name]) => h("a", { href: `#${path}` }, name)));
  window.addEventListener("hashchange", () => go(root, nav));
  go(root, nav);
}

function matched(path) {
  const parts = path.split("/");
  for (const [pattern, , load] of ROUTES) {
    const wanted = pattern.split("/");
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((part, i) => {
      if (!part.startsWith(":")) return part === parts[i];
      params[part.slice(1)] = decoded(parts[i]);
      return parts[i] !== "";
    });
    if (fits) return { params, load };
  }
  return null;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function go(root, nav) {
  const path = location.hash.slice(1) || "/";
  current?.abort();
  // Whoever goes from one view to another begins at its top, also with the keyboard and a screen reader.
  if (current) {
    window.scrollTo(0, 0);
    root.focus({ preventScroll: true });
  }
  const mine = (current = new AbortController());
  for (const a of nav.children) {
    if (a.getAttribute("href") === `#${path}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  const found = matched(path);
  document.title = [...Object.values(found?.params ?? {}), "sqlstream"].join(" · ");
  if (found === null) {
    fill(root, h("p", { class: "empty" }, "There is nothing here. ", h("a", { href: "#/" }, "Jobs")));
    return;
  }
  try {
    const view = await found.load();
    if (mine.signal.aborted) return;
    fill(root);
    await view.show(root, found.params, mine.signal);
  } catch (error) {
    if (!mine.signal.aborted) root.append(problem(error));
  }
}
