// Red and blue flame graphs: as wide as the time after (or before), red where there is more time after, blue where there is less.

// Name, heading, what the rows are of, view, what it is grouped by, and the functions of a row, outermost first.
const FLAMES = [
  ['waiters', 'Waiters', 'wait', 0, 'lock,caller', (row) => framesOr(row.caller, '[no stack taken]')],
  ['blockers', 'Blockers', 'wait', 1, 'lock,blocker', (row) => framesOr(row.blocker, `[${row.blocker_source}]`)],
  ['roots', 'Roots', 'wait', 2, 'lock,root', (row) => throughLock(row, framesOr(row.root, '[not known]'))],
  ['holders', 'Holds', 'hold', 0, 'lock,caller', (row) => framesOr(row.caller, '[no stack taken]')],
  ['contended-holders', 'Contended holds', 'contended-hold', 0, 'lock,caller', (row) => framesOr(row.caller, '[no stack taken]')],
];

const WIDTHS = [['after', 'As wide as after'], ['before', 'As wide as before']];

// A change of less than this part of the largest one has no colour.
const SMALLEST_PART = 0.02;
const SHADES = 4;

function framesOr(stack, otherwise) {
  return stack && stack.length > 0 ? [...stack].reverse() : [otherwise];
}

function throughLock(row, frames) {
  return row.root_lock === null ? frames : [...frames, `[through ${row.root_lock}]`];
}

const delta = (node) => node.after - node.before;

function largestChange(node) {
  return Math.max(Math.abs(delta(node)), ...[...node.children.values()].map(largestChange));
}

// From -4, much less after, to 4, much more after.
function level(node, most) {
  const part = most === 0 ? 0 : Math.abs(delta(node)) / most;
  return part < SMALLEST_PART ? 0 : Math.sign(delta(node)) * Math.ceil(part * SHADES);
}

function drawFlames() {
  const present = FLAMES.filter(([, , what, view]) => data.views[view].rows.some((row) => row.happened === what));
  if (present.length === 0) {
    document.querySelector('#flames .contents').replaceChildren(quiet('No waits and no holds were recorded, so there are no stacks to draw.'));
    return;
  }
  const [name, , what, view, by, frames] = present.find(([of]) => of === selection.flames) || present[0];
  const { kinds, found, result } = flamePlaces(drawFlames);
  const again = (change) => { flames.path = []; select(change); };
  kinds.replaceChildren(choices('Flames', present, name, (other) => again({ flames: other })),
    choices('Width', WIDTHS, selection.width, (width) => again({ width })));
  const ofView = data.views[view].rows.filter((row) => row.happened === what && isSelected(row));
  const root = tree(ofView.map((row) => ({ path: [...frames(row), `[${lockTitle(row)}]`], before: row.before_total_ns_per_s, after: row.after_total_ns_per_s })), ['before', 'after']);
  const number = selection.width;
  if (root[number] === 0) {
    found.textContent = '';
    result.replaceChildren(quiet(root.before + root.after === 0 ? 'Nothing of this happened, neither before nor after.' : `Nothing of this happened ${number}.`));
    return;
  }
  const most = largestChange(root);
  const marks = { '-1': '− ', 0: '', 1: '+ ' };
  const both = (node) => `${perSecond(node.before)} before, ${perSecond(node.after)} after`;
  const graph = flameGraph(root, {
    number,
    kind: name,
    classOf: (node) => `change${level(node, most)}`,
    label: (node) => `${marks[Math.sign(level(node, most))]}${node.name}`,
    linesOf: (node) => [both(node), `${change(delta(node))}/s${node.before > 0 ? `, ${times(node.after / node.before)} times` : ', new'}`],
    words: (top) => `${top === root ? '' : `${top.name}: `}${both(top)}`,
    redraw: drawFlames,
    found,
  });
  const legend = el('p', { class: 'scale' }, `${change(-most)}/s `);
  for (let of = -SHADES; of <= SHADES; of += 1) legend.append(drawing(16, 12, '', svg('rect', { class: `change${of}`, width: 15, height: 12 })));
  legend.append(` ${change(most)}/s. Red and “+”: more time after; blue and “−”: less.`);
  result.replaceChildren(...graph, legend, el('p', { class: 'command' }, 'The same as text: ', el('code', {}, command(by))),
    quiet('What is gone after has no width there; choose “As wide as before” to see it. Colours show how much changed, not whether it is more than chance.'));
}

section('flames', 'Stacks', 'Outermost function on top. Click a frame to zoom, or use the arrow keys and Enter.');
onSelection(drawFlames);
