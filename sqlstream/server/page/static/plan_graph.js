// The plan of a job as a graph: its sources, fragments, operators and sinks in layers, with numbers that change.

import { fill, h, say, svg } from "./dom.js";

const WIDE = { width: 208, height: 92, between: 118, beside: 22 };
const [NARROWEST_BOX, SHORTEST_EDGE] = [150, 84];
const NARROW = { width: 0, height: 88, between: 44, beside: 12 };
const NARROW_BELOW = 700;

/**
 * Return {element, draw(numbers)} for a graph {nodes: [{id, kind, ..}], edges: [{from, to}]}.
 *
 * `title(node)` and `target(node)` give the name of a node and where a click on it leads (null: nowhere). `draw` takes functions:
 * `lines(node)` gives texts to say in a node, `tone(node)` how it stands out, and `flow(edge)` {label, isFlowing}.
 */
export function planGraph(graph, title, target) {
  const layers = layered(graph);
  const wires = svg("svg", { class: "wires", "aria-hidden": "true" });
  const boxes = new Map(graph.nodes.map((node) => [node.id, box(node, title(node), target(node))]));
  const paths = graph.edges.map((edge) => ({
    edge,
    path: svg("path", { class: "wire" }),
    label: h("span", { class: "wire-label" }),
  }));
  const board = h("div", { class: "graph-board" }, wires, [...boxes.values()].map((b) => b.element), paths.map((p) => p.label));
  const element = h("div", { class: "graph", role: "group", "aria-label": "Plan" }, board);
  fill(wires, paths.map((p) => p.path));
  new ResizeObserver(() => place(layers, element, board, wires, boxes, paths)).observe(element);
  return {
    element,
    draw({ lines, tone, flow }) {
      for (const node of graph.nodes) boxes.get(node.id).draw(lines(node), tone(node));
      for (const { edge, path, label } of paths) {
        const { label: text, isFlowing } = flow(edge);
        say(label, text ?? "");
        path.classList.toggle("flowing", isFlowing);
      }
    },
  };
}

function box(node, title, href) {
  const says = h("div", { class: "node-lines" });
  const kind = { source: "source", sink: "sink", fragment: "fragment" }[node.kind] ?? "operator";
  const element = h(
    href === null ? "div" : "a",
    { class: `node of-${kind}`, href },
    h("div", { class: "node-title", title }, title),
    h("div", { class: "node-kind" }, described(node)),
    says,
  );
  let shown = null;
  return {
    element,
    draw(lines, tone) {
      element.dataset.tone = tone ?? "";
      if (lines.join("\n") === shown) return;
      shown = lines.join("\n");
      fill(says, lines.map((line) => h("div", { title: line }, line)));
    },
  };
}

function described(node) {
  if (node.kind === "source") return "source";
  // Its title says all.
  if (node.kind === "fragment") return "";
  if (node.kind === "sink") return node.connector ? `sink · ${node.connector}` : "table";
  return node.kind.replaceAll("_", " ");
}

/** Return the nodes by layers: sources first, each operator behind all that it reads, and sinks last. */
function layered({ nodes, edges }) {
  const depth = new Map(nodes.map((node) => [node.id, 0]));
  // As many rounds as there are nodes settle all, and a circle, which there is none of, ends.
  nodes.forEach(() => {
    for (const { from, to } of edges) {
      if (depth.has(from) && depth.has(to)) depth.set(to, Math.min(Math.max(depth.get(to), depth.get(from) + 1), nodes.length));
    }
  });
  const deepest = Math.max(0, ...depth.values());
  for (const node of nodes) if (node.kind === "sink") depth.set(node.id, Math.max(deepest, 1));
  const layers = [];
  for (const node of nodes) (layers[depth.get(node.id)] ??= []).push(node.id);
  const found = layers.filter(Boolean);
  found.slice(1).forEach((layer, i) => sorted(layer, found[i], edges));
  return found;
}

/** Put each node near those of the layer before that it reads, so that few edges cross. */
function sorted(layer, before, edges) {
  const middle = (id) => {
    const places = edges.filter((edge) => edge.to === id && before.includes(edge.from)).map((edge) => before.indexOf(edge.from));
    return places.length ? places.reduce((a, b) => a + b) / places.length : before.length;
  };
  const order = new Map(layer.map((id) => [id, middle(id)]));
  layer.sort((a, b) => order.get(a) - order.get(b));
}

function place(layers, element, board, wires, boxes, paths) {
  const width = element.clientWidth - 8;
  const isWide = width >= NARROW_BELOW;
  const most = Math.max(...layers.map((layer) => layer.length));
  const size = isWide ? { ...WIDE } : { ...NARROW, width: Math.min(240, Math.max(120, (width - 4 - (most - 1) * NARROW.beside) / most)) };
  if (isWide) {
    // Boxes are made narrower before some of them have to be scrolled to.
    const edges = layers.length - 1;
    size.width = Math.min(Math.max((width - edges * SHORTEST_EDGE) / layers.length, NARROWEST_BOX), WIDE.width);
    const room = edges > 0 ? (width - layers.length * size.width) / edges : 0;
    size.between = Math.min(Math.max(room, SHORTEST_EDGE), 170);
  }
  const along = (isWide ? size.width : size.height) + size.between;
  const across = (isWide ? size.height : size.width) + size.beside;
  const places = new Map();
  layers.forEach((layer, i) => layer.forEach((id, j) => {
    const [a, b] = [i * along, ((most - layer.length) / 2 + j) * across];
    places.set(id, isWide ? { x: a, y: b } : { x: b, y: a });
  }));
  const total = { along: layers.length * along - size.between, across: most * across - size.beside };
  const [full, high] = isWide ? [total.along, total.across] : [total.across, total.along];
  Object.assign(board.style, { width: `${full}px`, height: `${high}px` });
  wires.setAttribute("viewBox", `0 0 ${full} ${high}`);
  for (const [id, { element: node }] of boxes) {
    const { x, y } = places.get(id);
    Object.assign(node.style, { left: `${x}px`, top: `${y}px`, width: `${size.width}px`, height: `${size.height}px` });
  }
  for (const wire of paths) draw(wire, places, size, isWide);
}

function draw({ edge, path, label }, places, size, isWide) {
  const [from, to] = [places.get(edge.from), places.get(edge.to)];
  if (!from || !to) return;
  const start = isWide ? [from.x + size.width, from.y + size.height / 2] : [from.x + size.width / 2, from.y + size.height];
  const end = isWide ? [to.x, to.y + size.height / 2] : [to.x + size.width / 2, to.y];
  const bend = (isWide ? end[0] - start[0] : end[1] - start[1]) / 2;
  const [first, second] = isWide
    ? [[start[0] + bend, start[1]], [end[0] - bend, end[1]]]
    : [[start[0], start[1] + bend], [end[0], end[1] - bend]];
  path.setAttribute("d", `M${start} C${first} ${second} ${end}`);
  Object.assign(label.style, { left: `${(start[0] + end[0]) / 2}px`, top: `${(start[1] + end[1]) / 2}px` });
}
