// Stacks as flame graphs: where threads waited, who blocked them, where the chains end, who held.

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

// The innermost ones name the lock.
const isLock = (node) => node.children.size === 0 && node.name.startsWith('[');

// Rows of a view that are selected, with time in them.
function selectedRows(view, what) {
  return sums(view, selection.window).filter((row) => row.totalNs > 0 && isSelected(row, what));
}

const isRest = (view, at) => Boolean(view.rest && view.rest[at]);

// What is said of small rows, of which not everything is told; nothing where there are none.
function wordsOfSmall(view, of, what, kept) {
  const ns = of.reduce((sum, row) => sum + (isRest(view, row.at) ? row.totalNs : 0), 0);
  if (ns === 0) return '';
  return quiet(`${share(ns, of.reduce((sum, row) => sum + row.totalNs, 0))} of this is in small ${what}: of ${count(view.small)} ${what} the page has only ${kept}.`);
}

function drawFlames() {
  const present = FLAMES.filter(([, , what]) => data.locks.some((lock) => lock.happened === what));
  if (present.length === 0) {
    document.querySelector('#flames .contents').replaceChildren(quiet('No waits and no holds were recorded, so there are no stacks to draw.'));
    return;
  }
  const [name, , what, number, by, frames] = present.find(([of]) => of === selection.flames) || present[0];
  const { kinds, found, result } = flamePlaces(drawFlames);
  kinds.replaceChildren(choices('Flames', present, name, (other) => { flames.path = []; select({ flames: other }); }));
  const view = data.views[number];
  const path = (row) => [...frames(view, row.at), `[${lockTitle(row.lock, short)}]`];
  const of = selectedRows(number, what);
  const root = tree(of.map((row) => ({ path: path(row), ns: row.totalNs })), ['ns']);
  if (root.ns === 0) {
    found.textContent = '';
    result.replaceChildren(quiet(whyNoStacks(what)));
    return;
  }
  const held = isHeld(what) ? 'held' : 'waited';
  const graph = flameGraph(root, {
    number: 'ns',
    kind: name,
    classOf: (node) => `${name} shade${shade(node.name)}${isLock(node) || node.name === SMALL ? ' of-lock' : ''}`,
    label: (node) => short(node.name),
    linesOf: (node, top) => [`${duration(node.ns)} ${held}`, `${share(node.ns, top.ns)} of what is shown, ${share(node.ns, root.ns)} of all`],
    words: (top) => (top === root ? `${duration(root.ns)} ${held}` : `${top.name}: ${duration(top.ns)}, ${share(top.ns, root.ns)} of ${duration(root.ns)}`),
    redraw: drawFlames,
    found,
  });
  result.replaceChildren(...graph, wordsOfSmall(view, of, 'stacks', 'the outermost functions'), el('p', { class: 'command' }, 'The same as text: ', el('code', {}, command(by))),
    selection.window && slices.length > 1 ? quiet('In a window, stacks are scaled to the exact totals interval by interval and added up; the command scales the window as one.') : '');
}

function whyNoStacks(what) {
  if (isFolded()) return `This is one of the small locks, whose stacks were added up; ${command('lock,caller')} shows them.`;
  if (what === 'hold' || what === 'contended-hold') return 'No holds of this were recorded; `lockmeter record --hold` times them.';
  return selection.window ? 'Nothing was waited for here in this window.' : 'Nothing was waited for here.';
}

section('flames', 'Stacks', 'Outermost function on top; as wide as its time. Click a frame to zoom, or use the arrow keys and Enter.');
onSelection(drawFlames);
