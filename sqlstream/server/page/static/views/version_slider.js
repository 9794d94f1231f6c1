// The slider over the versions of a job: one mark, or two between which the difference is shown.

import { fill, h, say, svg } from "../dom.js";
import { count, moment } from "../format.js";

// A drag stops where it stays for so long: the server is asked there, and not on the way.
const STOP_MILLISECONDS = 140;
const [WIDTH, HEIGHT] = [1000, 56];

/**
 * Return {element, ..}. `moved` is called while a mark moves, `stopped` once where it comes to stand.
 *
 * `draw(versions)` takes the versions, oldest first, as the server lists them. `newer` is the version of the mark, `older` that of
 * the other mark, null without one.
 */
export function versionSlider({ moved, stopped, signal }) {
  let versions = [];
  let timer = null;
  const area = svg("polygon", { class: "slider-area" });
  const between = svg("rect", { class: "slider-between", y: 0, height: HEIGHT });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, between);
  const older = input("Older version", true);
  const newer = input("Version", false);
  const ends = [h("span", {}), h("span", {})];
  const element = h("div", { class: "slider" }, h("div", { class: "slider-track" }, picture, older, newer), h("div", { class: "slider-ends" }, ends));
  signal.addEventListener("abort", () => clearTimeout(timer));

  function input(label, isHidden) {
    return h("input", {
      type: "range", min: "0", max: "0", step: "1", value: "0", "aria-label": label, hidden: isHidden,
      oninput: (event) => {
        clearTimeout(timer);
        keepApart(event.target);
        paint();
        moved();
        timer = setTimeout(stopped, STOP_MILLISECONDS);
      },
    });
  }

  /** Two marks do not pass each other. */
  function keepApart(held) {
    if (older.hidden) return;
    if (held === older && Number(older.value) > Number(newer.value)) older.value = newer.value;
    if (held === newer && Number(newer.value) < Number(older.value)) newer.value = older.value;
  }

  const at = (mark) => versions[Number(mark.value)] ?? null;
  const x = (mark) => (versions.length > 1 ? (Number(mark.value) / (versions.length - 1)) * WIDTH : WIDTH);

  function paint() {
    const from = older.hidden ? 0 : x(older);
    between.setAttribute("x", from);
    between.setAttribute("width", Math.max(x(newer) - from, 1));
    for (const mark of [older, newer]) {
      const version = at(mark);
      if (version) mark.setAttribute("aria-valuetext", `version ${version.version}, ${moment(version.committed_at)}`);
    }
  }

  function shape() {
    const rows = versions.map((version) => version.state_rows ?? 0);
    // There may be more versions than a function takes arguments.
    const most = rows.reduce((a, b) => Math.max(a, b), 1);
    const step = WIDTH / Math.max(versions.length - 1, 1);
    // More points than the picture is wide are not seen, and it is drawn with each batch.
    const stride = Math.ceil(versions.length / WIDTH);
    const shown = rows.map((n, i) => [i, n]).filter(([i]) => i % stride === 0 || i === rows.length - 1);
    const points = shown.map(([i, n]) => `${(i * step).toFixed(1)},${(HEIGHT - 3 - (n / most) * (HEIGHT - 9)).toFixed(1)}`);
    area.setAttribute("points", [`0,${HEIGHT}`, ...points, `${WIDTH},${HEIGHT}`].join(" "));
    say(ends[0], versions.length ? `version ${versions[0].version} · ${moment(versions[0].committed_at).slice(11)}` : "");
    say(ends[1], versions.length ? `${count(most)} rows stored at most · version ${versions.at(-1).version} · ${moment(versions.at(-1).committed_at).slice(11)}` : "");
  }

  function place(mark, version) {
    const found = versions.findLastIndex((one) => one.version <= version);
    mark.value = String(Math.max(found, 0));
  }

  return {
    element,
    get newer() {
      return at(newer);
    },
    get older() {
      return older.hidden ? null : at(older);
    },
    /** Show these versions; marks stay where they are, unless `follows` has the newer one go to the newest. */
    draw(given, follows) {
      const [before, beforeOlder] = [at(newer), at(older)];
      versions = given;
      newer.max = older.max = String(Math.max(versions.length - 1, 0));
      place(newer, follows || !before ? Infinity : before.version);
      place(older, beforeOlder?.version ?? 0);
      keepApart(newer);
      shape();
      paint();
    },
    /** Put the mark, or the older of two, on a version. */
    put(version, isOlder = false) {
      place(isOlder ? older : newer, version);
      keepApart(isOlder ? older : newer);
      paint();
    },
    /** Have two marks, or one again. */
    compare(is) {
      older.hidden = !is;
      newer.setAttribute("aria-label", is ? "Newer version" : "Version");
      element.classList.toggle("two", is);
      if (is) place(older, versions[Math.max(Number(newer.value) - Math.max(Math.round(versions.length / 4), 1), 0)]?.version ?? 0);
      paint();
    },
  };
}

/** The head over a slider: which version is looked at, and its times. */
export function versionLabel() {
  const title = h("strong", { class: "version-title" });
  const detail = h("span", { class: "hint" });
  const element = h("div", { class: "version-label", role: "status" }, title, detail);
  return {
    element,
    draw(newer, older) {
      if (!newer) {
        fill(title, "No version yet");
        say(detail, "A job has one once it has committed a batch.");
        return;
      }
      fill(title, older ? `Version ${older.version} → ${newer.version}` : `Version ${newer.version}`);
      const times = older ? `${moment(older.committed_at)} → ${moment(newer.committed_at)}` : `committed ${moment(newer.committed_at)}`;
      const marks = older && older.watermark !== newer.watermark ? `${moment(older.watermark)} → ${moment(newer.watermark)}` : moment(newer.watermark);
      say(detail, `${times} UTC · watermark ${marks}`);
    },
  };
}
