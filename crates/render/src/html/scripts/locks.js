// The table of locks: the selected row filters everything below.

const KINDS_OF_ROWS = [
  ['wait', 'Waits'],
  ['hold', 'Holds'],
  ['contended-hold', 'Contended parts of holds'],
  ['timed-out', 'Timed out'],
  ['failed', 'Failed tries'],
  ['idle', 'Idle'],
];

// Waits of which none was counted: samples of CPUs have met threads that spun.
const isOfSamplesOnly = (row) => row.count === 0 && !isOthers(row.lock) && (rows[row.lock].spin_samples !== null || rows[row.lock].sleep_looks !== null);

// What only samples have met is in no bucket.
const meanNs = ({ count: number, histogram }) => (number ? Math.floor(histogram.reduce((sum, [, , ns]) => sum + ns, 0) / number) : 0);

const isHeld = (what) => what === 'hold' || what === 'contended-hold';

// Heading, key, what it says, number to sort by, and text.
function lockColumns(what, all) {
  const held = isHeld(what);
  const ofCounted = (number) => (row) => (isOfSamplesOnly(row) ? null : number(row));
  const rate = (row) => (row.whole ? row.whole.per_second * 1000 : ratio(row.count, 1000 * SECOND_NS, all.durationNs));
  const columns = [
    [held ? 'Held' : 'Waited', 'total_ns', held ? 'time held, all holders together' : 'time waited, all waiters together', (row) => row.totalNs, duration],
    ['%', 'share_ppm', 'share of all waited time', (row) => ratio(row.totalNs, MILLION, all.waitsNs), percent],
    [held ? 'Acquired' : 'Contended', 'count', held ? 'holds' : 'acquisitions that had to wait', ofCounted((row) => row.count), count],
    ['Per s', 'per_second', 'a second', ofCounted(rate), (value) => thousandths(Math.round(value))],
    ['Spin', 'spin_ns', 'time that waiters burned CPUs', (row) => row.spinNs, duration],
    ['Sleep', 'sleep_ns', 'time that waiters slept', (row) => row.totalNs - row.spinNs, duration],
    ['Mean', 'mean_ns', 'mean', ofCounted((row) => (row.whole ? row.whole.mean_ns : meanNs(row))), duration],
    ['P50', 'p50_ns', 'median', ofCounted((row) => (row.whole ? row.whole.p50_ns : quantile(row.histogram, row.maxNs, 500000))), duration],
    ['P99', 'p99_ns', '99 of 100 are no longer', ofCounted((row) => (row.whole ? row.whole.p99_ns : quantile(row.histogram, row.maxNs, 990000))), duration],
    ['Max', 'max_ns', 'the longest', ofCounted((row) => row.maxNs), duration],
  ];
  const ofWaits = new Set(['share_ppm', 'spin_ns', 'sleep_ns']);
  return columns.filter(([, key]) => (!held || !ofWaits.has(key)) && (key !== 'share_ppm' || what === 'wait'));
}

function lockText(row, write = asItIs) {
  if (isOthers(row.lock)) return lockName(row.lock);
  const of = rows[row.lock];
  const inferred = of.naming === 'inferred-type' || of.naming === 'inferred-site' ? ' ~' : '';
  return `${write(lockName(row.lock))}${inferred}`;
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
  const of = (row) => (isOthers(row.lock) ? { kind: '', mode: '' } : rows[row.lock]);
  const isChosen = (row) => selection.lock !== null && isSameLock(row.lock, selection.lock);
  const kindOf = (row) => `${of(row).kind || ''} ${of(row).mode && of(row).mode !== 'exclusive' ? of(row).mode : ''}`;
  const layout = {
    label: 'Locks',
    className: 'locks',
    heading: 'Lock',
    columns: lockColumns(what, all),
    usual: 'total_ns',
    name: lockText,
    text: (row) => `${lockText(row)} ${of(row).kind} ${of(row).mode}`,
    attributes: (row) => ({ class: isChosen(row) ? 'chosen' : null, 'data-own': of(row).own, 'data-lock': of(row).lock, 'data-kind': of(row).kind, 'data-mode': of(row).mode }),
    nameCell: (row) => el('th', { scope: 'row', class: 'name' }, isOthers(row.lock) ? lockText(row)
      : el('button', { type: 'button', class: 'lock', 'data-focus': `lock-${row.lock}`, title: lockText(row), 'aria-pressed': String(isChosen(row)), onclick: () => select({ lock: isChosen(row) ? null : row.lock, happened: what }) }, lockText(row, short)),
    el('span', { class: 'kind' }, ` ${kindOf(row)}${of(row).own ? ' lockmeter itself' : ''}`)),
  };
  const table = sums(LOCKS, selection.window).filter((row) => happened(row.lock) === what)
    .filter((row) => (selection.window ? row.count > 0 || row.totalNs > 0 : !isOthers(row.lock)))
    .map((row) => ({ ...row, whole: !selection.window && !isOthers(row.lock) ? rows[row.lock] : null }));
  const found = sortedAndFiltered(table, layout);
  const shown = selection.page === what ? found : found.slice(0, SHOWN_AT_FIRST);
  const more = found.length > shown.length
    ? el('button', { type: 'button', class: 'more', onclick: () => select({ page: what }) }, `Show all ${count(found.length)}`) : null;
  const folded = data.locks.filter((lock) => lock.folded).length;
  const notes = [
    found.length === 0 ? (table.length === 0 ? 'Nothing of this happened in the window.' : `No lock's name, kind or mode contains “${selection.filter}”.`) : null,
    folded > 0 && selection.window ? `In a window, the ${count(folded)} smallest locks are added up.` : null,
    shown.some(isOfSamplesOnly) ? 'Empty cells: no wait was counted there; what is shown is known from samples of the CPUs, or from looks at goroutines.' : null,
    rows.some((row) => row.naming && row.naming.startsWith('inferred')) ? '~ marks a name that was inferred.' : null,
  ].filter(Boolean);
  drawFilter(place, 'name, kind or mode', ['lock', 'locks'], found.length, table.length);
  place.querySelector('.kinds').replaceChildren(...(present.length < 2 ? [] : [choices('Show', present, what, (name) => select({ happened: name }))]));
  place.querySelector('.result').replaceChildren(grid(shown, layout), ...[more].filter(Boolean), ...notes.map(quiet),
    el('p', { class: 'command' }, 'The same as text: ', el('code', {}, command('lock', null))));
}

section('locks', 'Locks', 'Select a lock to see only its callers, blockers, times and forecast below.');
onSelection(drawLocks);
