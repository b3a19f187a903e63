// What ran: interrupts, softirqs, tasklets, timers and work items. The selected row has its own histograms.

const selection = { run: null, kind: 'all', filter: '', sort: null, page: 0 };

const KEY = ['kind', 'name'];

const rows = report.rows;

function readAddress() {
  const asked = new URLSearchParams(window.location.hash.slice(1));
  selection.run = rowInAddress(asked, KEY, rows);
  selection.kind = asked.get('show') || 'all';
  selection.filter = asked.get('filter') || '';
  selection.sort = asked.get('sort');
}

function address() {
  const asked = new URLSearchParams();
  if (selection.run !== null) putRow(asked, KEY, rows[selection.run]);
  if (selection.kind !== 'all') asked.set('show', selection.kind);
  if (selection.filter) asked.set('filter', selection.filter);
  if (selection.sort) asked.set('sort', selection.sort);
  return String(asked);
}

const KINDS = [
  ['irq', 'Interrupts'],
  ['softirq', 'Softirqs'],
  ['tasklet', 'Tasklets'],
  ['timer', 'Timers'],
  ['hrtimer', 'High-resolution timers'],
  ['work', 'Work items'],
];

const COLUMNS = [
  ['Max', 'max_ns', 'the longest run', (row) => row.max_ns, duration],
  ['P99', 'p99_ns', '99 of 100 are no longer', (row) => row.p99_ns, duration],
  ['P50', 'p50_ns', 'median', (row) => row.p50_ns, duration],
  ['Mean', 'mean_ns', 'mean', (row) => row.mean_ns, duration],
  ['Runs', 'count', 'how often it ran', (row) => row.count, count],
  ['Per s', 'per_second', 'runs a second', (row) => row.per_second, (value) => thousandths(Math.round(value * 1000))],
  ['Total', 'total_ns', 'all runs together', (row) => row.total_ns, duration],
  ['CPU %', 'cpu_ppm', 'share of the machine\'s CPU time, without what it called that has a row of its own', (row) => row.cpu_ppm, percent],
  ['Asleep', 'asleep_ns', 'time that work items slept', (row) => row.asleep_ns, duration],
  ['Delay', 'delay_mean_ns', 'mean time from being due to the run', (row) => row.delay_mean_ns, duration],
  ['Delay p99', 'delay_p99_ns', '99 of 100 delays are no longer', (row) => row.delay_p99_ns, duration],
  ['Delay max', 'delay_max_ns', 'the longest delay', (row) => row.delay_max_ns, duration],
];

const kindName = (kind) => (kind === 'work' ? 'work item' : kind);
const title = ({ kind, name, detail }) => `${kindName(kind)} ${name}${detail ? ` (${detail})` : ''}`;

function drawRuns() {
  const place = document.querySelector('#runs .contents');
  drawChips(selection.run === null ? [] : [[title(rows[selection.run]), 'Show everything', { run: null }]]);
  if (rows.length === 0) {
    place.replaceChildren(quiet('Nothing that was metered ran.'));
    return;
  }
  const present = KINDS.filter(([kind]) => rows.some((row) => row.kind === kind));
  const kind = present.some(([name]) => name === selection.kind) ? selection.kind : 'all';
  const isChosen = (row) => rows[selection.run] === row;
  const layout = {
    label: 'Runs',
    className: 'locks',
    heading: 'Name',
    columns: COLUMNS,
    usual: 'max_ns',
    name: (row) => row.name,
    text: title,
    attributes: (row) => ({ class: isChosen(row) ? 'chosen' : null, 'data-kind': row.kind, 'data-name': row.name }),
    nameCell: (row) => el('th', { scope: 'row', class: 'name' },
      el('button', { type: 'button', class: 'lock', 'data-focus': `run-${rows.indexOf(row)}`, 'aria-pressed': String(isChosen(row)), onclick: () => select({ run: isChosen(row) ? null : rows.indexOf(row) }) }, row.name),
      el('span', { class: 'kind' }, ` ${kindName(row.kind)} ${row.detail || ''}`)),
  };
  const table = rows.filter((row) => kind === 'all' || row.kind === kind);
  const found = sortedAndFiltered(table, layout);
  const shown = selection.page === kind ? found : found.slice(0, SHOWN_AT_FIRST);
  const more = found.length > shown.length
    ? el('button', { type: 'button', class: 'more', onclick: () => select({ page: kind }) }, `Show all ${count(found.length)}`) : null;
  drawFilter(place, 'name, kind or handler', ['row', 'rows'], found.length, table.length);
  place.querySelector('.kinds').replaceChildren(...(present.length < 2 ? [] : [choices('Show', [['all', 'All'], ...present], kind, (name) => select({ kind: name, page: 0 }))]));
  place.querySelector('.result').replaceChildren(grid(shown, layout), ...[more].filter(Boolean),
    el('p', { class: 'command' }, 'The same as text: ', el('code', {}, ['lockmeter report RECORDING', ...data.flags.map(quoted)].join(' '))));
}

// The selected row's runs and delays; or all runs of each kind.
function drawLengths() {
  const place = document.querySelector('#lengths .contents');
  const of = (row, key, maxNs) => ({ histogram: row[key], maxNs: maxNs || 0 });
  const chosen = selection.run === null ? null : rows[selection.run];
  const figures = chosen
    ? [['Runs', [of(chosen, 'histogram', chosen.max_ns)], 'waiters'], ['Delays', [of(chosen, 'delay_histogram', chosen.delay_max_ns)], 'blockers']]
    : KINDS.map(([kind, label]) => [label, rows.filter((row) => row.kind === kind).map((row) => of(row, 'histogram', row.max_ns)), 'waiters']);
  const drawn = figures.map(([label, all, kind]) => [label, all.filter((row) => row.histogram.length > 0), kind]).filter(([, all]) => all.length > 0);
  const total = widthOf(place);
  const width = total > 780 && drawn.length > 1 ? Math.floor((total - 24) / 2) : total;
  place.replaceChildren(el('div', { class: 'figures' }, drawn.map(([label, all, kind]) => drawHistogram(label, all, width, kind))),
    ...(drawn.length === 0 ? [quiet('No run of this was timed.')] : []));
}

const LONGEST = 12;

function drawLongest() {
  const place = document.querySelector('#longest .contents');
  const chosen = selection.run === null ? null : rows[selection.run];
  const of = report.long_runs.filter((run) => !chosen || KEY.every((key) => run[key] === chosen[key])).sort((one, other) => other.run_ns - one.run_ns);
  if (of.length === 0) {
    place.replaceChildren(quiet(report.long_runs.length > 0 ? 'None of the long runs is of this.' : 'No single runs are listed; `lockmeter latency --threshold 1ms` lists those of at least that long.'));
    return;
  }
  const began = (run) => new Date(run.begin_unix_ns / 1e6).toISOString().slice(11, 23);
  const waits = (run) => run.waits.map((wait) => el('p', {}, `waited ${duration(wait.total_ns)} for ${wait.lock} (${wait.kind}${wait.mode === 'exclusive' ? '' : `, ${wait.mode}`})${wait.count === 1 ? '' : `, ${count(wait.count)} times`}${wait.caller.length > 0 ? `, in ${wait.caller.slice(0, 4).join(' < ')}` : ''}`));
  place.replaceChildren(el('ol', { class: 'entries' }, of.slice(0, LONGEST).map((run) => el('li', {}, el('p', { class: 'what' }, el('b', {}, duration(run.run_ns)), ` ${title(run)} on CPU ${run.cpu} at ${began(run)} UTC${run.task ? ` in ${run.task}` : ''}${run.delay_ns === null ? '' : `, ${duration(run.delay_ns)} late`}${run.asleep_ns ? `, asleep for ${duration(run.asleep_ns)} more` : ''}`), waits(run)))),
    ...(of.length > LONGEST ? [quiet(`${count(of.length - LONGEST)} more are in the JSON.`)] : []));
}

section('runs', 'What ran', 'Select a row to see only its runs below. The time of a run is without interrupts during it.');
section('lengths', 'How long', 'Each bar counts the timed runs (or delays) of at least that long, and less than twice that.');
section('longest', 'The longest');
onSelection(drawRuns);
onSelection(drawLengths);
onSelection(drawLongest);
