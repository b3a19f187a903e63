// Where the time of the threads went, as one bar.

const BUDGET = [
  ['running', ['running']],
  ['waiting for a CPU', ['runnable', 'woken']],
  ['kernel lock', ['kernel-lock']],
  ['user lock', ['user-lock']],
  ['file lock', ['file-lock']],
];

function drawBudget() {
  const place = document.getElementById('budget');
  const { states, threadsNs, restNs, durationNs } = whole(selection.window);
  if (!report.threads || threadsNs === 0) {
    place.replaceChildren(quiet('The time of the threads was not metered in this recording.'));
    return;
  }
  const taken = new Set(BUDGET.flatMap(([, of]) => of));
  const parts = BUDGET.map(([words, of]) => [words, of.reduce((sum, state) => sum + (states[state] || 0), 0), of[0]]);
  const others = Object.entries(states).filter(([state]) => !taken.has(state)).sort((one, other) => other[1] - one[1]);
  others.forEach(([state, ns], at) => parts.push([data.states[state] || state, ns, `other${Math.min(at, 3)}`]));
  parts.push(['at rest', restNs, 'rest']);
  const shown = parts.filter(([, ns]) => ns > 0);
  const width = widthOf(place);
  const height = 34;
  const bar = drawing(width, height, 'Time of the threads');
  let x = 0;
  for (const [words, ns, state] of shown) {
    const wide = (ns / threadsNs) * width;
    const lines = [words, `${duration(ns)}, ${share(ns, threadsNs)} of the threads' time`];
    bar.append(svg('g', { tip: lines },
      svg('rect', { class: `state ${state}`, x, y: 0, width: Math.max(0.5, wide - 1), height }),
      fitting(words, wide - 12) === words ? svg('text', { class: `on ${state}`, x: x + 6, y: 21 }, words) : null));
    x += wide;
  }
  // The small ones have one colour.
  const colours = [...new Set(shown.map(([, , state]) => state))];
  const legend = colours.map((colour) => el('li', {}, drawing(12, 12, '', svg('rect', { class: `state ${colour}`, width: 12, height: 12 })),
    shown.filter(([, , state]) => state === colour).map(([words, ns], at) => [at > 0 ? ', ' : ' ', `${words} `, el('b', {}, share(ns, threadsNs))])));
  const mean = thousandths(ratio(threadsNs, 1000, durationNs));
  const note = selection.window ? [quiet('In a window, the time is divided interval by interval and added up.')] : [];
  place.replaceChildren(el('h3', {}, `Time of ${mean} threads${selection.window ? ' in this window' : ''}`), bar, el('ul', { class: 'legend' }, legend), ...note);
}

onSelection(drawBudget);
