// Addresses of views.

/** A link to a view, "#/job/a%20b/state/c": link("job", "a b", "state", "c"). */
export function link(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}
