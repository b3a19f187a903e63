// The longest waits by their stacks, the longest contended holds with what their holders did, and where threads were blocked.

const LONGEST = 8;
const FRAMES_IN_LINE = 4;

function chainOf(functions) {
  if (functions.length === 0) return NO_STACK;
  return functions.slice(0, FRAMES_IN_LINE).map(short).join(' < ') + (functions.length > FRAMES_IN_LINE ? ' < …' : '');
}

function stackElement(words, functions) {
  if (functions.length <= FRAMES_IN_LINE) return el('p', { class: 'stack' }, el('span', { class: 'verb' }, `${words} `), chainOf(functions));
  return el('details', { class: 'stack' }, el('summary', {}, el('span', { class: 'verb' }, `${words} `), chainOf(functions)), el('ol', {}, functions.map((name) => el('li', {}, name))));
}

function longestWaits() {
  const view = data.views[CHAINS];
  const of = selectedRows(CHAINS, 'wait').filter((row) => row.maxNs > 0 && !isRest(view, row.at) && stackOf(view.caller[row.at]).length > 0);
  of.sort((one, other) => other.maxNs - one.maxNs);
  return of.slice(0, LONGEST).map(({ at, lock, maxNs }) => {
    const task = view.task && view.task[at] ? ` in ${view.task[at]}` : '';
    const state = view.state && view.state[at] ? ` (${view.state[at]})` : '';
    const hasRoot = view.root_lock && view.root_lock[at] !== null && view.root_lock[at] !== undefined;
    return el('li', {}, el('p', { class: 'what' }, el('b', {}, duration(maxNs)), ` for ${lockTitle(lock, short)}`),
      stackElement('waited in', stackOf(view.caller[at])),
      stackOf(view.blocker[at]).length > 0 ? stackElement(`${view.source[at]}${task}${state}`, stackOf(view.blocker[at])) : el('p', { class: 'stack' }, `blocked by: ${view.source[at]}`),
      hasRoot ? stackElement(`which waited for ${data.texts[view.root_lock[at]]}, had by`, stackOf(view.root[at])) : null);
  });
}

function holdElement(hold) {
  return el('li', {}, hold.chain.map((link, depth) => {
    const verb = depth === 0 ? 'held' : link.holder ? 'waiting meanwhile for what was held' : 'waiting meanwhile';
    const mode = link.mode === 'exclusive' ? '' : ` (${link.mode})`;
    const task = link.task ? ` by ${link.task} (${link.tgid})` : '';
    const did = link.holder ? data.holder_parts.map(([words, key]) => [words, link.holder[key]]).filter(([, ns]) => ns > 0).sort((one, other) => other[1] - one[1]) : [];
    const known = did.reduce((sum, [, ns]) => sum + ns, 0);
    if (link.holder && known < link.total_ns) did.push(['not known', link.total_ns - known]);
    return el('div', { class: 'link' }, el('p', { class: 'what' }, el('b', {}, duration(link.total_ns)), ` ${verb} ${short(link.lock)}${mode}${task}`),
      did.length > 0 ? el('p', {}, `the holder: ${did.map(([words, ns]) => `${words} ${duration(ns)}`).join(', ')}`) : null,
      link.stack.length > 0 ? stackElement('released by', link.stack) : null);
  }));
}

function drawLongest() {
  const place = document.querySelector('#longest .contents');
  const waits = longestWaits();
  const name = selection.lock === null ? null : rows[selection.lock].lock;
  const within = ({ end_unix_ns: end }) => !selection.window || (end >= data.begun_unix_ns + slices[selection.window.first].from_ns && end < data.begun_unix_ns + slices[selection.window.last].to_ns);
  const holds = report.slow_holds.filter((hold) => (name === null || hold.chain.some((link) => link.lock === name)) && within(hold));
  const waitsPart = waits.length > 0 ? [el('ol', { class: 'entries' }, waits), quiet('The longest wait of each pair of call sites of which a stack was taken; a longer one without a stack is in the table above.')] : [quiet(whyNoStacks('wait'))];
  const holdsPart = holds.length > 0 ? [el('ol', { class: 'entries' }, holds.slice(0, LONGEST).map(holdElement)), holds.length > LONGEST ? quiet(`${count(holds.length - LONGEST)} more are in the JSON.`) : null]
    : [quiet(report.slow_holds.length > 0 ? 'None of the longest contended holds is of this selection.' : data.locks.some((lock) => isHeld(lock.happened)) ? 'No hold was timed while somebody waited for it.' : 'No holds were timed; `lockmeter record --hold` times them.')];
  const sleeps = report.threads ? report.threads.sleeps.filter((row) => !row.at_rest && row.total_ns * 100 >= report.threads.total_ns).slice(0, LONGEST) : [];
  const sleepsPart = sleeps.length === 0 ? [] : [el('h3', {}, 'Where threads were blocked, in the whole recording'),
    el('ol', { class: 'entries' }, sleeps.map((row) => el('li', {}, el('p', { class: 'what' }, el('b', {}, share(row.total_ns, report.threads.total_ns)), row.error_ns > 0 ? ` (± ${share(row.error_ns, report.threads.total_ns)})` : '',
      ` of the threads' time: ${row.thread}, for ${row.lock || data.states[row.state] || row.state}`), stackElement('in', row.stack))))];
  place.replaceChildren(el('h3', {}, 'Waits'), ...waitsPart, el('h3', {}, 'Contended holds'), ...holdsPart.filter(Boolean), ...sleepsPart);
}

section('longest', 'The longest');
onSelection(drawLongest);
