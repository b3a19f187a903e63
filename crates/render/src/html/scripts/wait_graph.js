// Who blocks whom: call sites that wait (or threads, or processes), those that made them wait, and the roots, joined by time.

const GRAPH_SIZES = [[10, '10 largest'], [40, '40 largest'], [500, 'up to 500']];
const NARROWEST_PX = 220;
const NODE_PX = 20;
const BETWEEN_NODES_PX = 6;
// How thick all waited time together is: more where there are many nodes, but no higher than a screen.
const LEAST_TIME_PX = 160;
const MOST_TIME_PX = 480;
const TIME_OF_NODE_PX = 8;
const THINNEST_PX = 0.8;
// Of those at the other ends of a node's edges.
const NAMED_ENDS = 5;

// Name, label, view, what it is grouped by, who waits, blocks and is the root in a row (no root where the blocker is it itself), and what
// several are called.
const GRAPHS = [
  ['sites', 'Call sites', CHAINS, 'caller,blocker,root', sitesOf, 'call sites'],
  ['threads', 'Threads', TASKS, 'task,blocker-task,root-task', (view, at) => tasksOf(view, at, threadEnd), 'threads'],
  ['processes', 'Processes', TASKS, 'task,blocker-task,root-task', (view, at) => tasksOf(view, at, processEnd), 'processes'],
];

const siteEnd = (stack, otherwise) => {
  const name = stackOf(stack)[0];
  return { key: name || otherwise, label: name || otherwise, isKnown: Boolean(name) && name !== SMALL };
};

const hasRoot = (view, at) => Boolean(view.root_lock) && view.root_lock[at] !== null;

function sitesOf(view, at) {
  const root = hasRoot(view, at) ? siteEnd(view.root[at], `[${view.root_source[at]}]`) : null;
  return { waiter: siteEnd(view.caller[at], NO_STACK), blocker: siteEnd(view.blocker[at], `[${view.source[at]}]`), root };
}

// A task, by its place in `data.tasks`; waits may have been counted without theirs.
const taskOf = (id) => (id === null || id === undefined || data.tasks[id][0] === null ? null : { tgid: data.tasks[id][0], comm: data.texts[data.tasks[id][1]] });

// Threads of one name in a process are one.
const threadEnd = ({ tgid, comm }) => ({ key: `${tgid} ${comm}`, label: `${comm} (${tgid})`, isKnown: true });

// A process is called after its threads, those that waited or blocked longest first.
const threadsOfProcess = new Map();
for (const end of ['waiter_task', 'blocker_task', 'root_task']) {
  for (const task of (data.views[TASKS][end] || []).map(taskOf)) {
    if (!task) continue;
    if (!threadsOfProcess.has(task.tgid)) threadsOfProcess.set(task.tgid, new Set());
    threadsOfProcess.get(task.tgid).add(task.comm);
  }
}

function processEnd({ tgid }) {
  const names = [...threadsOfProcess.get(tgid)];
  return { key: tgid, label: `${tgid}: ${names.slice(0, 6).join(', ')}${names.length > 6 ? ', …' : ''}`, isKnown: true };
}

function tasksOf(view, at, end) {
  const of = (column, otherwise) => {
    const task = taskOf(view[column] && view[column][at]);
    if (task && task.comm === SMALL) return { key: SMALL, label: SMALL, isKnown: false };
    return task ? end(task) : { key: otherwise, label: otherwise, isKnown: false };
  };
  const root = hasRoot(view, at) ? of('root_task', `[${view.root_source[at]}]`) : null;
  return { waiter: of('waiter_task', '[counted without its thread]'), blocker: of('blocker_task', `[${view.source[at]}]`), root };
}

// What the recording does not know of tasks.
function whatTasksLack(view) {
  const knows = (column) => Boolean(view[column]) && view[column].some((id) => taskOf(id));
  if (!knows('waiter_task')) return 'This recording does not say which threads waited; call sites it may know.';
  return knows('blocker_task') ? null : 'This recording does not say which threads made others wait; only why that is not known stands beside them.';
}

function drawGraph() {
  const place = document.querySelector('#graph .contents');
  const [name, , number, by, endsOf, many] = GRAPHS.find(([of]) => of === selection.graph) || GRAPHS[0];
  const view = data.views[number];
  const of = selectedRows(number, 'wait');
  const allNs = of.reduce((sum, row) => sum + row.totalNs, 0);
  const size = el('select', { id: 'graph-size', 'data-focus': 'graph-size', onchange: () => select({ nodes: Number(size.value) }) },
    GRAPH_SIZES.map(([most, words]) => el('option', { value: most, selected: most === selection.nodes }, words)));
  const tools = [choices('Graph', GRAPHS, name, (graph) => select({ graph })), el('p', { class: 'tools' }, el('label', { for: 'graph-size' }, 'In a column '), size)];
  const lacks = number === TASKS ? whatTasksLack(view) : null;
  if (allNs === 0 || (lacks && !view.waiter_task)) {
    place.replaceChildren(...tools, quiet(allNs === 0 ? whyNoStacks('wait') : lacks));
    return;
  }
  const chains = of.map((row) => ({ ...endsOf(view, row.at), ns: row.totalNs }));
  const known = chains.flatMap(({ waiter, blocker, root }) => [[waiter, blocker], [blocker, root]]).filter((pair) => pair.every((end) => end && end.isKnown));
  const inCircle = circles(known.map(([one, other]) => [one.key, other.key]));
  const columns = graphColumns(chains, selection.nodes);
  const isOfCircle = (one, other) => inCircle.has(one.key) && inCircle.get(one.key) === inCircle.get(other.key);
  const marks = [inCircle.size > 0 ? `↻ ${many} that block each other in turn: a circle, which need not be a deadlock.` : null, `● roots: ${many} that held others up and were not seen to wait themselves.`,
    'Point at one, or reach it with Tab, to see only what it waits for and what waits for it.'];
  place.replaceChildren(...tools, ...(lacks ? [quiet(lacks)] : []), graphDrawing(columns, { allNs, inCircle, isOfCircle, width: widthOf(place) }), quiet(marks.filter(Boolean).join(' ')), wordsOfSmall(view, of, 'chains', `those ${many} that are among the largest`),
    el('p', { class: 'command' }, 'The same as text: ', el('code', {}, command(by))));
}

// Who waits, who blocks and the roots: each largest first, the small ones folded, with the edges that leave it and that come to it.
function graphColumns(chains, most) {
  const columns = ['waiter', 'blocker', 'root'].map((end) => graphColumn(chains, end, most)).filter((nodes) => nodes.size > 0);
  const edges = new Map();
  for (const { ns, ...ends } of chains) {
    ['waiter', 'blocker'].slice(0, columns.length - 1).forEach((end, at) => {
      const next = at === 0 ? ends.blocker : ends.root;
      if (!next) return;
      const [from, to] = [columns[at].get(ends[end].key), columns[at + 1].get(next.key)];
      if (!edges.has(from)) edges.set(from, new Map());
      const edge = edges.get(from).get(to) || { column: at, from, to, ns: 0 };
      edge.ns += ns;
      edges.get(from).set(to, edge);
    });
  }
  for (const edge of [...edges.values()].flatMap((of) => [...of.values()])) {
    edge.from.leaving.push(edge);
    edge.to.coming.push(edge);
  }
  return columns.map((nodes) => [...new Set(nodes.values())]);
}

function graphColumn(chains, end, most) {
  const all = new Map();
  const node = ({ key, label, isKnown }) => ({ key, label, isKnown, ns: 0, rootNs: 0, isLast: false, leaving: [], coming: [] });
  for (const chain of chains) {
    if (!chain[end]) continue;
    const of = all.get(chain[end].key) || node(chain[end]);
    of.ns += chain.ns;
    if (end === 'root' || (end === 'blocker' && !chain.root)) of.rootNs += of.isKnown ? chain.ns : 0;
    all.set(of.key, of);
  }
  const small = all.get(SMALL);
  const sorted = [...all.values()].filter((of) => of !== small).sort((one, other) => other.ns - one.ns);
  if (!small && sorted.length <= most + 1) return all;
  const rest = sorted.slice(most);
  const label = small ? `${rest.length === 0 ? 'small' : `${count(rest.length)} others, and smaller`} ones, added up` : counted(rest.length, 'other', 'others');
  const others = { ...node({ key: '[others]', label, isKnown: false }), isLast: true };
  if (small) rest.push(small);
  for (const { key, ns } of rest) {
    others.ns += ns;
    all.set(key, others);
  }
  return all;
}

// Places the nodes: those that wait longest first, the others near those they block, so that edges are short and few of them cross. How
// high all of it is.
function placeNodes(columns, thick) {
  const middle = (node) => node.y + node.height / 2;
  const heights = columns.map((nodes, at) => {
    const pull = (node) => node.coming.reduce((sum, edge) => sum + middle(edge.from) * edge.ns, 0) / node.coming.reduce((sum, edge) => sum + edge.ns, 0);
    const order = new Map(nodes.map((node) => [node, at === 0 ? -node.ns : pull(node)]));
    nodes.sort((one, other) => one.isLast - other.isLast || order.get(one) - order.get(other) || other.ns - one.ns);
    let y = 0;
    for (const node of nodes) {
      node.height = Math.max(NODE_PX, thick(node.ns));
      node.y = at === 0 || node.isLast ? y : Math.max(y, order.get(node) - node.height / 2);
      y = node.y + node.height + BETWEEN_NODES_PX;
    }
    return y;
  });
  return Math.max(...heights);
}

const COLUMN_WORDS = [['Waits', 'waits', 'waiters'], ['Blocks', 'blocks', 'blockers'], ['Root', 'is the root of', 'roots']];

function graphDrawing(columns, { allNs, inCircle, isOfCircle, width: given }) {
  // Narrower, no name would fit: then one scrolls.
  const width = Math.max(given, columns.length * NARROWEST_PX);
  const timePx = Math.min(Math.max(LEAST_TIME_PX, Math.max(...columns.map((nodes) => nodes.length)) * TIME_OF_NODE_PX), MOST_TIME_PX);
  const thick = (ns) => (ns / allNs) * timePx;
  const height = placeNodes(columns, thick);
  const gap = given < 600 ? 24 : Math.min(130, width * 0.12);
  const wide = (width - gap * (columns.length - 1)) / columns.length;
  const chart = drawing(width, height, 'Who blocks whom');
  const elements = new Map();
  const edges = columns.flatMap((nodes) => nodes.flatMap((node) => node.leaving));
  for (const edge of edges.sort((one, other) => one.from.y - other.from.y || one.to.y - other.to.y)) {
    const drawn = edgeElement(edge, edge.column * (wide + gap) + wide, gap, thick(edge.ns), isOfCircle(edge.from, edge.to), allNs);
    elements.set(edge, drawn);
    chart.append(drawn);
  }
  columns.forEach((nodes, at) => nodes.forEach((node) => {
    const drawn = nodeElement(node, at, at * (wide + gap), wide, inCircle.get(node.key), allNs);
    elements.set(node, drawn);
    for (const event of ['pointerenter', 'focus']) drawn.addEventListener(event, () => lookAt(chart, elements, node));
    for (const event of ['pointerleave', 'blur']) drawn.addEventListener(event, () => chart.classList.remove('looking'));
    chart.append(drawn);
  }));
  const heads = el('div', { class: 'heads' }, columns.map((_, at) => el('span', {}, COLUMN_WORDS[at][0])));
  heads.style.width = `${width}px`;
  heads.style.columnGap = `${gap}px`;
  return el('div', { class: 'scroll graph', tabindex: 0, role: 'region', 'aria-label': 'Who blocks whom' }, heads, chart);
}

// Fades all but a node, its edges and who is at their other ends.
function lookAt(chart, elements, node) {
  const edges = [...node.leaving, ...node.coming];
  const near = new Set([node, ...edges, ...edges.flatMap((edge) => [edge.from, edge.to])].map((of) => elements.get(of)));
  for (const element of elements.values()) element.classList.toggle('near', near.has(element));
  chart.classList.add('looking');
}

function edgeElement(edge, x1, gap, thickness, isCircle, allNs) {
  const { from, to, ns, column } = edge;
  const part = Math.max(THINNEST_PX, thickness);
  // Edges lie one below the other at a node, in its middle where they are thinner than it.
  const place = (node, side) => {
    const of = node[side] === undefined ? Math.max(0, (node.height - node.ns * (thickness / ns)) / 2) : node[side];
    node[side] = of + thickness;
    return node.y + Math.min(of, node.height - part);
  };
  const [y1, y2] = [place(from, 'out'), place(to, 'in')];
  const [x2, middle] = [x1 + gap, x1 + gap / 2];
  const lines = [`${from.label} ${column === 0 ? 'is blocked by' : 'waits itself for'} ${to.label}`, `${duration(ns)}, ${share(ns, allNs)} of the waited time`];
  return svg('path', { class: isCircle ? 'edge circle' : 'edge', role: 'img', 'aria-label': lines.join(', '), tip: lines,
    d: `M${x1},${y1}C${middle},${y1} ${middle},${y2} ${x2},${y2}V${y2 + part}C${middle},${y2 + part} ${middle},${y1 + part} ${x1},${y1 + part}Z` });
}

function nodeElement(node, at, x, wide, circle, allNs) {
  // A root for most of what it is blamed for.
  const isRoot = node.rootNs * 2 >= node.ns && at > 0;
  const mark = `${isRoot ? '● ' : ''}${circle ? '↻ ' : ''}`;
  const lines = [node.label, `${COLUMN_WORDS[at][1]} ${duration(node.ns)}, ${share(node.ns, allNs)} of the waited time`];
  if (isRoot) lines.push('● a root: it was not seen to wait for another lock');
  if (circle) lines.push(`↻ in a circle of ${count(circle.length)} that block each other in turn`);
  const ends = (edges, verb, end) => [...edges].sort((one, other) => other.ns - one.ns).slice(0, NAMED_ENDS).map((edge) => `${verb} ${edge[end].label}: ${duration(edge.ns)}`);
  const tipLines = () => [...lines, ...ends(node.leaving, at === 0 ? 'blocked by' : 'waits for', 'to'), ...ends(node.coming, 'blocks', 'from')];
  const time = wide > 130 ? duration(node.ns) : '';
  return svg('g', { class: 'site', tabindex: 0, role: 'img', 'aria-label': lines.join(', '), tip: tipLines },
    svg('rect', { class: `${COLUMN_WORDS[at][2]} box`, x: x + 0.5, y: node.y, width: wide - 1, height: node.height, rx: 2 }),
    svg('text', { x: x + 6, y: node.y + 14 }, fitting(`${mark}${short(node.label)}`, wide - 18 - time.length * LETTER_PX)),
    svg('text', { class: 'value', x: x + wide - 6, y: node.y + 14, 'text-anchor': 'end' }, time));
}

section('graph', 'Who blocks whom', 'Those that wait on the left, those that made them wait beside them, and where the blocker waited itself, the end of the chain. As thick as the time.');
onSelection(drawGraph);
