// What is selected: a lock, a window, what the table shows.

const selection = { lock: null, window: null, happened: null, filter: '', sort: null, flames: 'waiters', graph: 'sites', nodes: 10, page: 0 };

const KEY = ['happened', 'lock', 'kind', 'mode', 'own'];

function readAddress() {
  const asked = new URLSearchParams(window.location.hash.slice(1));
  selection.lock = rowInAddress(asked, KEY, rows);
  const [from, to] = (asked.get('window') || '').split('-').map(Number);
  const covers = (at) => at >= 0 && at < slices.length;
  selection.window = asked.has('window') && covers(from) && covers(to) && from <= to ? { first: from, last: to } : null;
  selection.happened = asked.get('show') || (selection.lock === null ? null : rows[selection.lock].happened);
  selection.filter = asked.get('filter') || '';
  selection.sort = asked.get('sort');
  selection.flames = asked.get('flames') || 'waiters';
  selection.graph = asked.get('graph') || 'sites';
  selection.nodes = (GRAPH_SIZES.find(([most]) => String(most) === asked.get('nodes')) || GRAPH_SIZES[0])[0];
}

function address() {
  const asked = new URLSearchParams();
  if (selection.lock !== null) putRow(asked, KEY, rows[selection.lock]);
  if (selection.window) asked.set('window', `${selection.window.first}-${selection.window.last}`);
  if (selection.happened) asked.set('show', selection.happened);
  if (selection.filter) asked.set('filter', selection.filter);
  if (selection.sort) asked.set('sort', selection.sort);
  if (selection.flames !== 'waiters') asked.set('flames', selection.flames);
  if (selection.graph !== 'sites') asked.set('graph', selection.graph);
  if (selection.nodes !== 10) asked.set('nodes', selection.nodes);
  return String(asked);
}

// Whether a row of a view belongs to the selected lock, or to any; of what happened, waits unless asked otherwise.
function isSelected(row, what) {
  const { lock } = row;
  if (selection.lock === null) return happened(lock) === what && !(rows[lock] && rows[lock].own);
  return happened(lock) === what && isSameLock(lock, selection.lock);
}

function isSameLock(one, other) {
  if (one === other) return true;
  if (isOthers(one) || isOthers(other)) return false;
  // Holds of a lock beside its waits.
  return rows[one].happened !== rows[other].happened && ['lock', 'kind', 'mode', 'own'].every((key) => rows[one][key] === rows[other][key]);
}

// Whether the selected lock is one of the small ones whose stacks and slices were added up.
const isFolded = () => selection.lock !== null && data.locks[selection.lock].folded;

function windowFlag(window) {
  return `${offset(slices[window.first].from_ns)}..${offset(slices[window.last].to_ns)}`;
}

// The command that shows the same as text; of the selected lock, or of all.
function command(by, chosenLock = selection.lock) {
  const { kind, mode, lock, window: asked, others } = data.flags;
  const chosen = chosenLock === null ? { lock, kind, mode } : rows[chosenLock];
  const flags = { lock: chosen.lock, kind: chosen.kind, mode: chosen.mode, window: selection.window ? windowFlag(selection.window) : asked };
  const words = ['lockmeter report RECORDING', '--by', by, ...others.map(quoted)];
  for (const [flag, value] of Object.entries(flags)) if (value) words.push(`--${flag}`, quoted(value));
  return words.join(' ');
}

function drawSelection() {
  const chosen = [];
  if (selection.lock !== null) {
    const what = happened(selection.lock) === 'wait' ? '' : `, ${happened(selection.lock)}`;
    chosen.push([`lock ${lockTitle(selection.lock)}${what}`, 'Show all locks', { lock: null }]);
  }
  if (selection.window) {
    const { first, last } = selection.window;
    chosen.push([`window ${seconds(slices[first].from_ns)} to ${seconds(slices[last].to_ns)}`, 'Show the whole recording', { window: null }]);
  }
  drawChips(chosen);
}

onSelection(drawSelection);
