// The table of locks: sorted and filtered; the selected row filters everything below.

const SHOWN_AT_FIRST = window.innerWidth < 600 ? 10 : 25;

const KINDS_OF_ROWS = [
  ['wait', 'Waits'],
  ['hold', 'Holds'],
  ['contended-hold', 'Contended parts of holds'],
  ['timed-out', 'Timed out'],
  ['failed', 'Failed tries'],
  ['idle', 'Idle'],
];

const isHeld = (what) => what === 'hold' || what === 'contended-hold';

// Heading, key, what it says, number to sort by, and text.
function lockColumns(what, all) {
  const held = isHeld(what);
  const rate = (row) => (row.whole ? row.whole.per_second * 1000 : ratio(row.count, 1000 * SECOND_NS, all.durationNs));
  const columns = [
    [held ? 'Held' : 'Waited', 'total_ns', held ? 'time held, all holders together' : 'time waited, all waiters together', (row) => row.totalNs, duration],
    ['%', 'share_ppm', 'share of all waited time', (row) => ratio(row.totalNs, MILLION, all.waitsNs), percent],
    [held ? 'Acquired' : 'Contended', 'count', held ? 'holds' : 'acquisitions that had to wait', (row) => row.count, count],
    ['Per s', 'per_second', 'a second', rate, (value) => thousandths(Math.round(value))],
    ['Spin', 'spin_ns', 'time that waiters burned CPUs', (row) => row.spinNs, duration],
    ['Sleep', 'sleep_ns', 'time that waiters slept', (row) => row.totalNs - row.spinNs, duration],
    ['Mean', 'mean_ns', 'mean', (row) => (row.count ? Math.floor(row.totalNs / row.count) : 0), duration],
    ['P50', 'p50_ns', 'median', (row) => (row.whole ? row.whole.p50_ns : quantile(row.histogram, row.maxNs, 500000)), duration],
    ['P99', 'p99_ns', '99 of 100 are no longer', (row) => (row.whole ? row.whole.p99_ns : quantile(row.histogram, row.maxNs, 990000)), duration],
    ['Max', 'max_ns', 'the longest', (row) => row.maxNs, duration],
  ];
  const ofWaits = new Set(['share_ppm', 'spin_ns', 'sleep_ns']);
  return columns.filter(([, key]) => (!held || !ofWaits.has(key)) && (key !== 'share_ppm' || what === 'wait'));
}

function lockText(row) {
  if (isOthers(row.lock)) return lockName(row.lock);
  const of = rows[row.lock];
  const inferred = of.naming === 'inferred-type' || of.naming === 'inferred-site' ? ' ~' : '';
  return `${lockName(row.lock)}${inferred}`;
}

function drawLocks() {
  const place = document.querySelector('#locks .contents');
  const all = whole(selection.window);
  const present = KINDS_OF_ROWS.filter(([what]) => data.locks.some((lock) => lock.happened === what));
  if (present.length === 0) {
    place.replaceChildren(quiet('No lock was waited for, as far as was seen; the verdict above says what was looked at.'));
    return;
  }
  const what = present.some(([name]) => name === selection.happened) ? selection.happened : present[0][0];
  const table = sums(LOCKS, selection.window).filter((row) => happened(row.lock) === what)
    .filter((row) => (selection.window ? row.count > 0 || row.totalNs > 0 : !isOthers(row.lock)))
    .map((row) => ({ ...row, whole: !selection.window && !isOthers(row.lock) ? rows[row.lock] : null }));
  const columns = lockColumns(what, all);
  const wanted = selection.filter.toLowerCase();
  const text = (row) => `${lockText(row)} ${isOthers(row.lock) ? '' : `${rows[row.lock].kind} ${rows[row.lock].mode}`}`.toLowerCase();
  const found = table.filter((row) => text(row).includes(wanted));
  const [sortKey, way] = (selection.sort || 'total_ns').split(':');
  const sorted = columns.find(([, key]) => key === sortKey);
  const value = sorted ? sorted[3] : (row) => lockText(row).toLowerCase();
  const compare = (one, other) => (value(one) < value(other) ? -1 : Number(value(one) > value(other)));
  const ascending = sorted ? way === 'up' : way !== 'down';
  found.sort((one, other) => (ascending ? compare(one, other) : compare(other, one)));
  const isAll = selection.page === what;
  const shown = isAll ? found : found.slice(0, SHOWN_AT_FIRST);

  const heading = (label, key, title, isText) => {
    const isSorted = key === sortKey;
    const next = isSorted && (isText ? ascending : !ascending) ? (isText ? 'down' : 'up') : (isText ? 'up' : 'down');
    const state = isSorted ? (ascending ? 'ascending' : 'descending') : 'none';
    return el('th', { scope: 'col', 'aria-sort': state, class: isText ? 'name' : 'number' },
      el('button', { type: 'button', title, 'data-focus': `sort-${key}`, onclick: () => select({ sort: `${key}:${next}` }) }, label));
  };
  const line = (row) => {
    const isChosen = selection.lock !== null && isSameLock(row.lock, selection.lock);
    const choose = () => { if (!isOthers(row.lock)) select({ lock: isChosen ? null : row.lock, happened: what }); };
    const of = isOthers(row.lock) ? { kind: '', mode: '' } : rows[row.lock];
    const name = el('th', { scope: 'row', class: 'name' }, isOthers(row.lock) ? lockText(row)
      : el('button', { type: 'button', class: 'lock', 'data-focus': `lock-${row.lock}`, 'aria-pressed': String(isChosen), onclick: choose }, lockText(row)),
    el('span', { class: 'kind' }, ` ${of.kind || ''} ${of.mode && of.mode !== 'exclusive' ? of.mode : ''}`));
    const cells = columns.map(([, key, , number, words]) => el('td', { 'data-key': key }, words(number(row))));
    return el('tr', { class: isChosen ? 'chosen' : null, 'data-lock': of.lock, 'data-kind': of.kind, 'data-mode': of.mode }, name, cells);
  };
  const tabs = present.length < 2 ? null : el('div', { class: 'tabs', role: 'group', 'aria-label': 'What to list' },
    present.map(([name, label]) => el('button', { type: 'button', 'data-focus': `show-${name}`, 'aria-pressed': String(name === what), onclick: () => select({ happened: name }) }, label)));
  const more = found.length > shown.length
    ? el('button', { type: 'button', class: 'more', onclick: () => select({ page: what }) }, `Show all ${count(found.length)}`) : null;
  const body = el('tbody', {}, shown.map(line));
  const grid = el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Locks' },
    el('table', { class: 'locks' }, el('thead', {}, el('tr', {},
      heading('Lock', 'lock', 'by name', true), columns.map(([label, key, title]) => heading(label, key, title, false)))), body));
  const folded = data.locks.filter((lock) => lock.folded).length;
  const notes = [
    found.length === 0 ? (table.length === 0 ? 'Nothing of this happened in the window.' : `No lock's name, kind or mode contains “${selection.filter}”.`) : null,
    folded > 0 && selection.window ? `In a window, the ${count(folded)} smallest locks are added up.` : null,
    rows.some((row) => row.naming && row.naming.startsWith('inferred')) ? '~ marks a name that was inferred.' : null,
  ].filter(Boolean);
  drawTools(place, tabs, what, found.length, table.length);
  place.querySelector('.result').replaceChildren(grid, ...[more].filter(Boolean), ...notes.map(quiet),
    el('p', { class: 'command' }, 'The same as text: ', el('code', {}, command('lock', null))));
}

// The field stays the same element while one types in it.
function drawTools(place, tabs, what, found, all) {
  if (!place.querySelector('.tools')) {
    const field = el('input', { type: 'search', id: 'filter', placeholder: 'name, kind or mode', oninput: () => select({ filter: field.value, page: 0 }) });
    place.replaceChildren(el('div', { class: 'tools' }, el('label', { for: 'filter' }, 'Filter '), field, el('span', { class: 'found', role: 'status' })),
      el('div', { class: 'kinds' }), el('div', { class: 'result' }));
  }
  const field = place.querySelector('#filter');
  if (field.value !== selection.filter) field.value = selection.filter;
  place.querySelector('.found').textContent = found === all ? counted(all, 'lock', 'locks') : `${count(found)} of ${counted(all, 'lock', 'locks')}`;
  place.querySelector('.kinds').replaceChildren(...[tabs].filter(Boolean));
}

section('locks', 'Locks', 'Select a lock to see only its callers, blockers, times and forecast below.');
onSelection(drawLocks);
