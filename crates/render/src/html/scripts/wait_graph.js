// Who blocks whom: waiting call sites, the call sites that made them wait, and the roots, joined by time.

const GRAPH_SIZES = [[10, '10 largest'], [40, '40 largest'], [500, 'up to 500']];
const NARROWEST_PX = 220;
let graphSize = 10;

const firstFunction = (stack) => stackOf(stack)[0];

// The call sites of a row: who waited, who is blamed, and the end of the chain where that is another.
function sitesOf(view, at) {
  if (isRest(view, at)) return { waiter: '[small ones, added up]', blocker: '[small ones, added up]', root: null, knows: false };
  const waiter = firstFunction(view.caller[at]) || NO_STACK;
  const known = firstFunction(view.blocker[at]);
  const blocker = known || `[${view.source[at]}]`;
  const lock = view.root_lock ? view.root_lock[at] : null;
  const hasRoot = lock !== null && lock !== undefined;
  const root = hasRoot ? firstFunction(view.root[at]) || `[${view.root_source[at]}]` : null;
  return { waiter, blocker, root, knows: Boolean(known) };
}

// Functions that wait for each other in a circle: strongly connected parts with more than one function (Tarjan, without recursion).
function circles(edges) {
  const to = new Map();
  for (const [from, into] of edges) {
    if (!to.has(from)) to.set(from, new Set());
    if (!to.has(into)) to.set(into, new Set());
    to.get(from).add(into);
  }
  const state = new Map();
  const stack = [];
  const found = new Map();
  let next = 0;
  for (const start of to.keys()) {
    if (state.has(start)) continue;
    const work = [{ node: start, children: null }];
    while (work.length > 0) {
      const frame = work[work.length - 1];
      if (!frame.children) {
        state.set(frame.node, { index: next, low: next, open: true });
        next += 1;
        stack.push(frame.node);
        frame.children = [...to.get(frame.node)];
      }
      const own = state.get(frame.node);
      const child = frame.children.pop();
      if (child === undefined) {
        work.pop();
        if (work.length > 0) {
          const parent = state.get(work[work.length - 1].node);
          parent.low = Math.min(parent.low, own.low);
        }
        if (own.low === own.index) {
          const part = [];
          let node;
          do {
            node = stack.pop();
            state.get(node).open = false;
            part.push(node);
          } while (node !== frame.node);
          if (part.length > 1) part.forEach((member) => found.set(member, part));
        }
      } else if (!state.has(child)) work.push({ node: child, children: null });
      else if (state.get(child).open) own.low = Math.min(own.low, state.get(child).index);
    }
  }
  return found;
}

function drawGraph() {
  const place = document.querySelector('#graph .contents');
  const view = data.views[CHAINS];
  const of = selectedRows(CHAINS, 'wait');
  const allNs = of.reduce((sum, row) => sum + row.totalNs, 0);
  if (allNs === 0) {
    place.replaceChildren(quiet(whyNoStacks('wait')));
    return;
  }
  const sites = of.map((row) => ({ ...sitesOf(view, row.at), ns: row.totalNs }));
  const inCircle = circles(sites.filter((site) => site.knows).flatMap((site) => [[site.waiter, site.blocker], ...(site.root ? [[site.blocker, site.root]] : [])]));
  const columns = [column(sites, 'waiter'), column(sites, 'blocker'), column(sites.filter((site) => site.root), 'root')].filter((nodes) => nodes.size > 0);
  // Narrower, no name would fit: then one scrolls.
  const width = Math.max(widthOf(place), columns.length * NARROWEST_PX);
  const most = Math.max(...columns.map((nodes) => distinct(nodes).length));
  const least = 20;
  const room = Math.max(220, most * (least + 8));
  const gap = width < 600 ? 24 : Math.min(130, width * 0.12);
  const wide = (width - gap * (columns.length - 1)) / columns.length;
  const chart = drawing(width, room + 22, 'Who blocks whom');
  ['Waits', 'Blocks', 'Root'].slice(0, columns.length).forEach((heading, at) => chart.append(svg('text', { class: 'axis', x: at * (wide + gap), y: 12 }, heading)));
  columns.forEach((nodes) => {
    const spare = room - distinct(nodes).length * (least + 6);
    const all = distinct(nodes).reduce((sum, node) => sum + node.ns, 0);
    let y = 20;
    for (const node of distinct(nodes).sort((one, other) => one.last - other.last || other.ns - one.ns)) {
      node.height = least + (node.ns / allNs) * Math.max(0, spare * (all / allNs));
      node.y = y;
      node.out = 0;
      node.in = 0;
      y += node.height + 6;
    }
  });
  const links = edgesBetween(sites, columns);
  for (const link of links) {
    const x1 = link.column * (wide + gap) + wide;
    const x2 = x1 + gap;
    const thick = (node) => Math.max(0.8, (link.ns / node.ns) * node.height);
    const [from, to] = [Math.min(thick(link.from), link.from.height), Math.min(thick(link.to), link.to.height)];
    const y1 = link.from.y + Math.min(link.from.out, link.from.height - from);
    const y2 = link.to.y + Math.min(link.to.in, link.to.height - to);
    link.from.out += (link.ns / link.from.ns) * link.from.height;
    link.to.in += (link.ns / link.to.ns) * link.to.height;
    const middle = (x1 + x2) / 2;
    const path = `M${x1},${y1}C${middle},${y1} ${middle},${y2} ${x2},${y2}V${y2 + to}C${middle},${y2 + to} ${middle},${y1 + from} ${x1},${y1 + from}Z`;
    const isCircle = inCircle.has(link.from.name) && inCircle.get(link.from.name) === inCircle.get(link.to.name);
    const verb = link.column === 0 ? 'is blocked by' : 'waits itself for';
    chart.append(svg('path', { class: isCircle ? 'edge circle' : 'edge', d: path, tip: [`${link.from.name} ${verb} ${link.to.name}`, `${duration(link.ns)}, ${share(link.ns, allNs)} of the waited time`] }));
  }
  columns.forEach((nodes, at) => {
    for (const node of distinct(nodes)) {
      const circle = inCircle.get(node.name);
      const isRoot = at === 2 || (at === 1 && node.rootNs * 2 >= node.ns);
      const mark = `${isRoot ? '● ' : ''}${circle ? '↻ ' : ''}`;
      const words = ['waits', 'blocks', 'is the root of'][at];
      const lines = [node.name, `${words} ${duration(node.ns)}, ${share(node.ns, allNs)} of the waited time`];
      if (isRoot) lines.push('● a root: it was not seen to wait for another lock');
      if (circle) lines.push(`↻ in a circle: ${circle.slice(0, 6).join(', ')} block each other`);
      const x = at * (wide + gap);
      chart.append(svg('g', { class: 'site', tabindex: 0, role: 'img', 'aria-label': lines.join(', '), tip: lines },
        svg('rect', { class: `${['waiters', 'blockers', 'roots'][at]} box`, x: x + 0.5, y: node.y, width: wide - 1, height: node.height, rx: 2 }),
        svg('text', { x: x + 6, y: node.y + 14 }, fitting(`${mark}${node.name}`, wide - 62)),
        svg('text', { class: 'value', x: x + wide - 6, y: node.y + 14, 'text-anchor': 'end' }, wide > 130 ? duration(node.ns) : '')));
    }
  });
  const size = el('select', { id: 'graph-size', 'data-focus': 'graph-size', onchange: () => { graphSize = Number(size.value); drawGraph(); } },
    GRAPH_SIZES.map(([number, words]) => el('option', { value: number, selected: number === graphSize }, words)));
  const marks = [inCircle.size > 0 ? '↻ call sites that block each other in turn: a circle of functions, which need not be a deadlock.' : null, '● roots: call sites that held others up and were not seen to wait themselves.'].filter(Boolean);
  place.replaceChildren(el('p', { class: 'tools' }, el('label', { for: 'graph-size' }, 'Call sites in a column '), size), el('div', { class: 'scroll graph' }, chart), quiet(marks.join(' ')));
}

// Small call sites share one node.
const distinct = (nodes) => [...new Set(nodes.values())];

// The call sites of a column, largest first, the small ones folded.
function column(sites, key) {
  const all = new Map();
  for (const site of sites) {
    const node = all.get(site[key]) || { name: site[key], ns: 0, last: 0, rootNs: 0 };
    node.ns += site.ns;
    if (key === 'blocker' && !site.root && site.knows) node.rootNs += site.ns;
    all.set(site[key], node);
  }
  const sorted = [...all.values()].sort((one, other) => other.ns - one.ns);
  if (sorted.length <= graphSize + 1) return new Map(sorted.map((node) => [node.name, node]));
  const rest = sorted.slice(graphSize);
  const others = { name: counted(rest.length, 'other', 'others'), ns: rest.reduce((sum, node) => sum + node.ns, 0), last: 1, rootNs: 0 };
  return new Map([...sorted.slice(0, graphSize).map((node) => [node.name, node]), ...rest.map((node) => [node.name, others])].map(([name, node]) => [name, node]));
}

function edgesBetween(sites, columns) {
  const keys = ['waiter', 'blocker', 'root'];
  const links = new Map();
  for (const site of sites) {
    for (let at = 0; at + 1 < columns.length; at += 1) {
      const [from, to] = [columns[at].get(site[keys[at]]), columns[at + 1].get(site[keys[at + 1]])];
      if (!from || !to) continue;
      const id = `${at} ${from.name} ${to.name}`;
      const link = links.get(id) || { column: at, from, to, ns: 0 };
      link.ns += site.ns;
      links.set(id, link);
    }
  }
  return [...links.values()].sort((one, other) => one.from.y - other.from.y || one.to.y - other.to.y);
}

section('graph', 'Who blocks whom', 'Call sites that wait on the left, those that made them wait beside them, and where the blocker waited itself, the end of the chain. As thick as the time.');
onSelection(drawGraph);
