// What changed between two recordings, lock by lock: the selected row filters the stacks below.

const selection = { lock: null, happened: null, filter: '', sort: null, flames: 'waiters', width: 'after', page: 0 };

const KEY = ['happened', 'lock', 'kind', 'mode', 'own'];

const rows = report.rows;

function readAddress() {
  const asked = new URLSearchParams(window.location.hash.slice(1));
  selection.lock = rowInAddress(asked, KEY, rows);
  selection.happened = asked.get('show') || (selection.lock === null ? null : rows[selection.lock].happened);
  selection.filter = asked.get('filter') || '';
  selection.sort = asked.get('sort');
  selection.flames = asked.get('flames') || 'waiters';
  selection.width = asked.get('width') === 'before' ? 'before' : 'after';
}

function address() {
  const asked = new URLSearchParams();
  if (selection.lock !== null) putRow(asked, KEY, rows[selection.lock]);
  if (selection.happened) asked.set('show', selection.happened);
  if (selection.filter) asked.set('filter', selection.filter);
  if (selection.sort) asked.set('sort', selection.sort);
  if (selection.flames !== 'waiters') asked.set('flames', selection.flames);
  if (selection.width !== 'after') asked.set('width', selection.width);
  return String(asked);
}

const KINDS_OF_ROWS = [
  ['wait', 'Waits'],
  ['hold', 'Holds'],
  ['contended-hold', 'Contended parts of holds'],
  ['timed-out', 'Timed out'],
  ['failed', 'Failed tries'],
  ['idle', 'Idle'],
];

const perSecond = (ns) => `${duration(ns)}/s`;
const times = (ratioOfTwo) => thousandths(Math.round(ratioOfTwo * 1000));

// What holds the ratio with 95 % confidence; the change, where one of the two is nothing.
function interval(row) {
  if (row.ratio_low !== null) return `[${times(row.ratio_low)}, ${times(row.ratio_high)}]`;
  return `[${change(row.delta_low_ns_per_s)}, ${change(row.delta_high_ns_per_s)}]`;
}

const COLUMNS = [
  ['Change/s', 'delta_ns_per_s', 'change of the time waited (or held) a second; the largest first', (row) => Math.abs(row.delta_ns_per_s), (_, row) => change(row.delta_ns_per_s)],
  ['Times', 'ratio', 'time after ÷ time before', (row) => row.ratio, times],
  ['95 %', 'ratio_low', 'contains the true ratio, or the true change, with 95 % confidence', (row) => row.ratio_low ?? row.delta_low_ns_per_s, (_, row) => interval(row)],
  ['Verdict', 'verdict', 'whether it is more than chance', (row) => row.verdict, (verdict) => verdict],
  ['Each times', 'typical_ratio', 'how long one typically takes, after ÷ before', (row) => row.typical_ratio, times],
  ['Before/s', 'before_total_ns_per_s', 'time a second, before', (row) => row.before_total_ns_per_s, duration],
  ['After/s', 'after_total_ns_per_s', 'time a second, after', (row) => row.after_total_ns_per_s, duration],
  ['Per s before', 'before_per_second', 'how many a second, before', (row) => row.before_per_second, times],
  ['Per s after', 'after_per_second', 'how many a second, after', (row) => row.after_per_second, times],
  ['P99 before', 'before_p99_ns', '99 of 100 were no longer', (row) => row.before_p99_ns, duration],
  ['P99 after', 'after_p99_ns', '99 of 100 are no longer', (row) => row.after_p99_ns, duration],
];

const lockName = (row) => row.lock || '[no name]';
const lockTitle = (row) => (row.mode && row.mode !== 'exclusive' ? `${lockName(row)} (${row.mode})` : lockName(row));

// The command that shows the same as text.
function command(by) {
  return ['lockmeter diff BEFORE AFTER', '--by', by, ...data.flags.map(quoted)].join(' ');
}

// Whether a row of any view is of the selected lock, or of any; what lockmeter itself waited for is shown if it is selected only.
function isSelected(row) {
  return selection.lock === null ? !row.own : ['lock', 'kind', 'mode', 'own'].every((key) => row[key] === rows[selection.lock][key]);
}

function drawChanges() {
  const place = document.querySelector('#changes .contents');
  const present = KINDS_OF_ROWS.filter(([what]) => rows.some((row) => row.happened === what));
  drawChips(selection.lock === null ? [] : [[`lock ${lockTitle(rows[selection.lock])}`, 'Show all locks', { lock: null }]]);
  if (present.length === 0) {
    place.replaceChildren(quiet('Nothing waited for a lock, neither before nor after.'));
    return;
  }
  const what = present.some(([name]) => name === selection.happened) ? selection.happened : present[0][0];
  const isChosen = (row) => selection.lock !== null && isSelected(row);
  const layout = {
    label: 'Changes',
    className: 'locks',
    heading: 'Lock',
    columns: COLUMNS,
    usual: 'delta_ns_per_s',
    name: lockName,
    text: (row) => `${lockName(row)} ${row.kind} ${row.mode} ${row.verdict}`,
    attributes: (row) => ({ class: isChosen(row) ? 'chosen' : null, 'data-own': row.own, 'data-lock': row.lock, 'data-kind': row.kind, 'data-mode': row.mode }),
    nameCell: (row) => el('th', { scope: 'row', class: 'name' },
      el('button', { type: 'button', class: 'lock', 'data-focus': `lock-${rows.indexOf(row)}`, 'aria-pressed': String(isChosen(row)), onclick: () => select({ lock: isChosen(row) ? null : rows.indexOf(row), happened: what }) }, lockName(row)),
      el('span', { class: 'kind' }, ` ${row.kind || ''} ${row.mode && row.mode !== 'exclusive' ? row.mode : ''} ${row.change === 'changed' ? '' : row.change}${row.own ? ' lockmeter itself' : ''}`)),
  };
  const table = rows.filter((row) => row.happened === what);
  const found = sortedAndFiltered(table, layout);
  const shown = selection.page === what ? found : found.slice(0, SHOWN_AT_FIRST);
  const more = found.length > shown.length
    ? el('button', { type: 'button', class: 'more', onclick: () => select({ page: what }) }, `Show all ${count(found.length)}`) : null;
  drawFilter(place, 'name, kind or verdict', ['lock', 'locks'], found.length, table.length);
  place.querySelector('.kinds').replaceChildren(...(present.length < 2 ? [] : [choices('Show', present, what, (name) => select({ happened: name }))]));
  place.querySelector('.result').replaceChildren(grid(shown, layout), ...[more].filter(Boolean),
    el('p', { class: 'command' }, 'The same as text: ', el('code', {}, command('lock'))));
}

section('changes', 'Changes', 'Select a lock to see only its stacks below. The verdict says whether a change is more than chance.');
onSelection(drawChanges);
