// What is selected: a lock, a window, what the table shows. It is in the address after `#`, so that it can be shared and gone back to.

const selection = { lock: null, window: null, happened: null, filter: '', sort: null, flames: 'waiters', page: 0 };
const redraws = [];

function onSelection(redraw) {
  redraws.push(redraw);
}

const KEY = ['happened', 'lock', 'kind', 'mode'];

function readAddress() {
  const asked = new URLSearchParams(window.location.hash.slice(1));
  const isAsked = (row) => KEY.every((key) => !asked.has(key) || String(row[key]) === asked.get(key));
  const lock = asked.has('lock') ? rows.findIndex(isAsked) : -1;
  selection.lock = lock < 0 ? null : lock;
  const [from, to] = (asked.get('window') || '').split('-').map(Number);
  const covers = (at) => at >= 0 && at < slices.length;
  selection.window = asked.has('window') && covers(from) && covers(to) && from <= to ? { first: from, last: to } : null;
  selection.happened = asked.get('show') || (lock < 0 ? null : rows[lock].happened);
  selection.filter = asked.get('filter') || '';
  selection.sort = asked.get('sort');
  selection.flames = asked.get('flames') || 'waiters';
}

function address() {
  const asked = new URLSearchParams();
  if (selection.lock !== null) {
    for (const key of KEY) if (rows[selection.lock][key] !== null) asked.set(key, rows[selection.lock][key]);
  }
  if (selection.window) asked.set('window', `${selection.window.first}-${selection.window.last}`);
  if (selection.happened) asked.set('show', selection.happened);
  if (selection.filter) asked.set('filter', selection.filter);
  if (selection.sort) asked.set('sort', selection.sort);
  if (selection.flames !== 'waiters') asked.set('flames', selection.flames);
  return String(asked);
}

// Changes what is selected, and draws again what depends on it.
function select(change) {
  Object.assign(selection, change);
  const hash = address();
  if (hash !== window.location.hash.slice(1)) window.history.replaceState(null, '', `#${hash}`);
  // What is drawn again has a new element at the same place in the hands of somebody who uses the keyboard.
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.focus : undefined;
  for (const redraw of redraws) redraw(change);
  if (focused && document.activeElement === document.body) {
    const same = [...document.querySelectorAll('[data-focus]')].find((element) => element.dataset.focus === focused);
    if (same) same.focus();
  }
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

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replace(/'/g, "'\\''")}'`;
}

function drawSelection() {
  const place = document.getElementById('selection');
  const chosen = [];
  if (selection.lock !== null) {
    const what = happened(selection.lock) === 'wait' ? '' : `, ${happened(selection.lock)}`;
    chosen.push(el('span', { class: 'chip' }, `lock ${lockTitle(selection.lock)}${what}`,
      el('button', { type: 'button', 'aria-label': 'Show all locks', onclick: () => select({ lock: null }) }, '✕')));
  }
  if (selection.window) {
    const { first, last } = selection.window;
    chosen.push(el('span', { class: 'chip' }, `window ${seconds(slices[first].from_ns)} to ${seconds(slices[last].to_ns)}`,
      el('button', { type: 'button', 'aria-label': 'Show the whole recording', onclick: () => select({ window: null }) }, '✕')));
  }
  place.hidden = chosen.length === 0;
  place.replaceChildren('Shown below: ', ...chosen);
}

onSelection(drawSelection);
window.addEventListener('hashchange', () => {
  readAddress();
  select({});
});
