// Flame graphs, outermost function on top: where threads waited, who blocked them, where the chains end, who held.

const FLAME_ROW_PX = 18;
const FLAME_DEEPEST = 48;

const NO_STACK = '[no stack taken]';

function framesOr(stack, otherwise) {
  const functions = stackOf(stack).reverse();
  return functions.length > 0 ? functions : [otherwise];
}

// Name, heading, what the rows are of, view, and the functions of a row, outermost first.
const FLAMES = [
  ['waiters', 'Waiters', 'wait', CALLERS, 'lock,caller', (view, at) => framesOr(view.caller[at], NO_STACK)],
  ['blockers', 'Blockers', 'wait', BLOCKERS, 'lock,blocker', (view, at) => withTask(view, at, framesOr(view.blocker[at], `[${view.source[at]}]`))],
  ['roots', 'Roots', 'wait', ROOTS, 'lock,root', (view, at) => throughLock(view, at, framesOr(view.root[at], `[${view.root_source[at]}]`))],
  ['holders', 'Holds', 'hold', CALLERS, 'lock,caller', (view, at) => framesOr(view.caller[at], NO_STACK)],
  ['contended-holders', 'Contended holds', 'contended-hold', CALLERS, 'lock,caller', (view, at) => framesOr(view.caller[at], NO_STACK)],
];

const withTask = (view, at, frames) => (view.task && view.task[at] ? [view.task[at], ...frames] : frames);

function throughLock(view, at, frames) {
  const lock = view.root_lock ? view.root_lock[at] : null;
  return lock === null || lock === undefined ? frames : [...frames, `[through ${data.texts[lock]}]`];
}

// Rows of a view that are selected, with time in them.
function selectedRows(view, what) {
  return sums(view, selection.window).filter((row) => row.totalNs > 0 && isSelected(row, what));
}

const isRest = (view, at) => view.folded && view.folded[at] !== 1;

function tree(rowsOfView, view, frames) {
  const root = { name: 'all', ns: 0, children: new Map(), parent: null };
  for (const row of rowsOfView) {
    const path = isRest(view, row.at) ? ['[small ones, added up]'] : frames(view, row.at);
    let node = root;
    node.ns += row.totalNs;
    for (const name of [...path, `[${lockTitle(row.lock)}]`]) {
      let child = node.children.get(name);
      if (!child) {
        child = { name, ns: 0, children: new Map(), parent: node };
        node.children.set(name, child);
      }
      child.ns += row.totalNs;
      node = child;
    }
  }
  return root;
}

const flames = { zoom: null, search: '', path: [] };

function drawFlames() {
  const place = document.querySelector('#flames .contents');
  const present = FLAMES.filter(([, , what]) => data.locks.some((lock) => lock.happened === what));
  if (present.length === 0) {
    place.replaceChildren(quiet('No waits and no holds were recorded, so there are no stacks to draw.'));
    return;
  }
  const chosen = present.find(([name]) => name === selection.flames) || present[0];
  const [name, , what, number, by, frames] = chosen;
  if (!place.querySelector('#flame-search')) {
    const field = el('input', { type: 'search', id: 'flame-search', placeholder: 'function or lock', oninput: () => { flames.search = field.value; drawFlames(); } });
    place.replaceChildren(el('div', { class: 'tabs', role: 'group', 'aria-label': 'Whose stacks' }),
      el('div', { class: 'tools' }, el('label', { for: 'flame-search' }, 'Search '), field, el('span', { class: 'found', role: 'status' })), el('div', { class: 'result' }));
  }
  place.querySelector('.tabs').replaceChildren(...present.map(([other, label]) => el('button', { type: 'button', 'data-focus': `flames-${other}`, 'aria-pressed': String(other === name), onclick: () => { flames.path = []; select({ flames: other }); } }, label)));
  const result = place.querySelector('.result');
  const view = data.views[number];
  const root = tree(selectedRows(number, what), view, frames);
  const found = place.querySelector('.found');
  if (root.ns === 0) {
    found.textContent = '';
    result.replaceChildren(quiet(whyNoStacks(what)));
    return;
  }
  let top = root;
  for (const step of flames.path) {
    if (!top.children.has(step)) break;
    top = top.children.get(step);
  }
  const wanted = flames.search.toLowerCase();
  const matches = (node) => wanted !== '' && node.name.toLowerCase().includes(wanted);
  found.textContent = wanted === '' ? '' : `${share(matched(root, matches), root.ns)} of ${duration(root.ns)} matches`;
  const back = top === root ? null : el('button', { type: 'button', onclick: () => { flames.path = []; drawFlames(); } }, 'Zoom out');
  const held = isHeld(what) ? 'held' : 'waited';
  const summary = el('p', {}, top === root ? `${duration(root.ns)} ${held} ` : `${top.name}: ${duration(top.ns)}, ${share(top.ns, root.ns)} of ${duration(root.ns)} `, back);
  result.replaceChildren(summary, el('div', { class: 'scroll flame' }, flameDrawing(top, root, name, matches, widthOf(place), held)),
    el('p', { class: 'command' }, 'The same as text: ', el('code', {}, command(by))),
    selection.window && slices.length > 1 ? quiet('In a window, stacks are scaled to the exact totals interval by interval and added up; the command scales the window as one.') : '');
}

function whyNoStacks(what) {
  if (isFolded()) return `This is one of the small locks, whose stacks were added up; ${command('lock,caller')} shows them.`;
  if (what === 'hold' || what === 'contended-hold') return 'No holds of this were recorded; `lockmeter record --hold` times them.';
  return selection.window ? 'Nothing was waited for here in this window.' : 'Nothing was waited for here.';
}

function matched(node, matches) {
  if (matches(node)) return node.ns;
  let sum = 0;
  for (const child of node.children.values()) sum += matched(child, matches);
  return sum;
}

function flameDrawing(top, root, kind, matches, width, held) {
  const nodes = [];
  let deepest = 0;
  const place = (node, x, depth) => {
    const wide = (node.ns / top.ns) * width;
    if (wide < 0.4 || depth > FLAME_DEEPEST) return;
    deepest = Math.max(deepest, depth);
    nodes.push({ node, x, depth, wide });
    let at = x;
    for (const child of [...node.children.values()].sort((one, other) => other.ns - one.ns)) {
      place(child, at, depth + 1);
      at += (child.ns / top.ns) * width;
    }
  };
  place(top, 0, 0);
  const chart = drawing(width, (deepest + 1) * FLAME_ROW_PX, `Flame graph: ${kind}`);
  const elements = new Map();
  for (const { node, x, depth, wide } of nodes) {
    const isLock = node.children.size === 0 && node.name.startsWith('[');
    const zoom = () => { flames.path = pathOf(node); drawFlames(); };
    const lines = [node.name, `${duration(node.ns)} ${held}`, `${share(node.ns, top.ns)} of what is shown, ${share(node.ns, root.ns)} of all`];
    const group = svg('g', { class: 'frame', tabindex: node === top ? 0 : -1, role: 'button', 'aria-label': lines.join(', '), tip: lines, onclick: zoom },
      svg('rect', { class: `${kind} shade${shade(node.name)}${isLock ? ' of-lock' : ''}${matches(node) ? ' match' : ''}`, x, y: depth * FLAME_ROW_PX, width: Math.max(0.4, wide - 0.6), height: FLAME_ROW_PX - 1 }),
      wide > 24 ? svg('text', { x: x + 4, y: depth * FLAME_ROW_PX + 13 }, fitting(node.name, wide - 8)) : null);
    group.addEventListener('keydown', (event) => moveInFlames(event, node, elements, zoom));
    elements.set(node, group);
    chart.append(group);
  }
  return chart;
}

function moveInFlames(event, node, elements, zoom) {
  const among = node.parent ? [...node.parent.children.values()].sort((one, other) => other.ns - one.ns) : [node];
  const largest = [...node.children.values()].sort((one, other) => other.ns - one.ns)[0];
  const to = { ArrowUp: node.parent, ArrowDown: largest, ArrowLeft: among[among.indexOf(node) - 1], ArrowRight: among[among.indexOf(node) + 1] };
  if (event.key === 'Enter' || event.key === ' ') zoom();
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

section('flames', 'Stacks', 'Outermost function on top; as wide as its time. Click a frame to zoom, or use the arrow keys and Enter.');
onSelection(drawFlames);
