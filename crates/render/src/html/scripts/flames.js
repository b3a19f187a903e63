// Flame graphs, outermost function on top, as wide as its time: a tree of functions, drawn from any of its nodes.

const FLAME_ROW_PX = 18;
const FLAME_DEEPEST = 48;

// The node that is looked at, by names from the root, and what is searched for.
const flames = { search: '', path: [] };

// Adds up rows by their functions, outermost first: `path`, and these numbers of each.
function tree(rowsOfTree, numbers) {
  const node = (name, parent) => ({ name, parent, children: new Map(), ...Object.fromEntries(numbers.map((number) => [number, 0])) });
  const add = (to, row) => numbers.forEach((number) => { to[number] += row[number]; });
  const root = node('all', null);
  for (const row of rowsOfTree) {
    let at = root;
    add(at, row);
    for (const name of row.path) {
      if (!at.children.has(name)) at.children.set(name, node(name, at));
      at = at.children.get(name);
      add(at, row);
    }
  }
  return root;
}

// Where the drawings go: buttons for each of them, and the field to search with, which stays the same while one types in it.
function flamePlaces(redraw) {
  const place = document.querySelector('#flames .contents');
  if (!place.querySelector('#flame-search')) {
    const field = el('input', { type: 'search', id: 'flame-search', placeholder: 'function or lock', oninput: () => { flames.search = field.value; redraw(); } });
    place.replaceChildren(el('div', { class: 'kinds' }),
      el('div', { class: 'tools' }, el('label', { for: 'flame-search' }, 'Search '), field, el('span', { class: 'found', role: 'status' })), el('div', { class: 'result' }));
  }
  return { kinds: place.querySelector('.kinds'), found: place.querySelector('.found'), result: place.querySelector('.result') };
}

// The graph of a tree, and a line that says of what: the number that is a node's width, the class of a node, what stands in it, what is said
// of it, and of all.
function flameGraph(root, { number, kind, classOf, label, linesOf, words, redraw, found }) {
  let top = root;
  for (const step of flames.path) {
    if (!top.children.has(step)) break;
    top = top.children.get(step);
  }
  if (top[number] === 0) top = root;
  const wanted = flames.search.toLowerCase();
  const matches = (node) => wanted !== '' && node.name.toLowerCase().includes(wanted);
  const matched = (node) => (matches(node) ? node[number] : [...node.children.values()].reduce((sum, child) => sum + matched(child), 0));
  found.textContent = wanted === '' ? '' : `${share(matched(root), root[number])} of ${duration(root[number])} matches`;
  const back = top === root ? null : el('button', { type: 'button', onclick: () => { flames.path = []; redraw(); } }, 'Zoom out');
  const zoom = (node) => { flames.path = pathOf(node); redraw(); };
  const look = { number, kind, classOf, label, linesOf: (node) => [node.name, ...linesOf(node, top)], matches, zoom };
  return [el('p', {}, `${words(top)} `, back), el('div', { class: 'scroll flame' }, flameDrawing(top, look, widthOf(document.querySelector('#flames .contents'))))];
}

// What small ones together are called: they have fewer functions than they had, or are threads of no process.
const SMALL = '[small ones, added up]';

// The largest first; what stands for small ones is no branch of its own, and comes last.
const isSmall = (node) => Number(node.name === SMALL);
const childrenOf = (node, number) => [...node.children.values()].sort((one, other) => isSmall(one) - isSmall(other) || other[number] - one[number]);

function flameDrawing(top, look, width) {
  const { number, kind, classOf, label, linesOf, matches, zoom } = look;
  const nodes = [];
  let deepest = 0;
  const place = (node, x, depth) => {
    const wide = (node[number] / top[number]) * width;
    if (wide < 0.4 || depth > FLAME_DEEPEST) return;
    deepest = Math.max(deepest, depth);
    nodes.push({ node, x, depth, wide });
    let at = x;
    for (const child of childrenOf(node, number)) {
      place(child, at, depth + 1);
      at += (child[number] / top[number]) * width;
    }
  };
  place(top, 0, 0);
  const chart = drawing(width, (deepest + 1) * FLAME_ROW_PX, `Flame graph: ${kind}`);
  const elements = new Map();
  for (const { node, x, depth, wide } of nodes) {
    const lines = linesOf(node);
    const group = svg('g', { class: 'frame', tabindex: node === top ? 0 : -1, role: 'button', 'aria-label': lines.join(', '), tip: lines, onclick: () => zoom(node) },
      svg('rect', { class: `${classOf(node)}${matches(node) ? ' match' : ''}`, x, y: depth * FLAME_ROW_PX, width: Math.max(0.4, wide - 0.6), height: FLAME_ROW_PX - 1 }),
      wide > 24 ? svg('text', { x: x + 4, y: depth * FLAME_ROW_PX + 13 }, fitting(label(node), wide - 8)) : null);
    group.addEventListener('keydown', (event) => moveInFlames(event, node, elements, look));
    elements.set(node, group);
    chart.append(group);
  }
  return chart;
}

function moveInFlames(event, node, elements, { number, zoom }) {
  const among = node.parent ? childrenOf(node.parent, number) : [node];
  const to = { ArrowUp: node.parent, ArrowDown: childrenOf(node, number)[0], ArrowLeft: among[among.indexOf(node) - 1], ArrowRight: among[among.indexOf(node) + 1] };
  if (event.key === 'Enter' || event.key === ' ') zoom(node);
  else if (to[event.key] && elements.has(to[event.key])) elements.get(to[event.key]).focus();
  else return;
  event.preventDefault();
}

function pathOf(node) {
  const path = [];
  for (let at = node; at.parent; at = at.parent) path.unshift(at.name);
  return path;
}

// One of four shades, the same for a function wherever it is.
function shade(name) {
  let sum = 0;
  for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) % 1009;
  return sum % 4;
}
