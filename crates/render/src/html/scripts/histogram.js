// How long waits and holds last, on a logarithmic axis.

const HISTOGRAM_PX = 190;

function drawHistogram(title, ofRows, width, kind) {
  const histogram = added(ofRows.map((row) => row.histogram));
  const all = histogram.reduce((sum, [, number]) => sum + number, 0);
  const maxNs = Math.max(...ofRows.map((row) => row.maxNs));
  const first = Math.log2(Math.max(1, histogram[0][0]));
  const last = Math.log2(Math.max(1, histogram[histogram.length - 1][0])) + 1;
  const most = Math.max(...histogram.map(([, number]) => number));
  const [left, bottom, head] = [8, 26, 34];
  const step = (width - 2 * left) / (last - first);
  const x = (ns) => left + (Math.log2(Math.max(1, ns)) - first) * step;
  const y = (number) => head + (HISTOGRAM_PX - head - bottom) * (1 - number / most);
  const chart = drawing(width, HISTOGRAM_PX, title);
  for (const [lower, number, totalNs] of histogram) {
    const upper = Math.max(2, 2 * lower);
    const lines = [`${duration(lower)} to ${duration(upper)}`, `${counted(number, 'time', 'times')}, ${share(number, all)}`, `${duration(totalNs)} in all`];
    chart.append(svg('rect', { class: `bar ${kind}`, x: x(lower) + 0.5, y: Math.min(y(number), HISTOGRAM_PX - bottom - 1), width: Math.max(1, step - 1), height: Math.max(1, HISTOGRAM_PX - bottom - y(number)), tip: lines }));
  }
  chart.append(svg('line', { class: 'tick', x1: left, x2: width - left, y1: HISTOGRAM_PX - bottom, y2: HISTOGRAM_PX - bottom }));
  let free = -Infinity;
  for (let ns = 1; ns <= 2 ** last; ns *= 10) {
    const at = x(ns);
    if (ns < 2 ** first || at - free < 46) continue;
    free = at;
    chart.append(svg('text', { class: 'axis', x: at, y: HISTOGRAM_PX - 10, 'text-anchor': 'middle' }, duration(ns).replace(/\.0+ /, ' ')));
    chart.append(svg('line', { class: 'tick', x1: at, x2: at, y1: HISTOGRAM_PX - bottom, y2: HISTOGRAM_PX - bottom + 4 }));
  }
  const points = [['p50', quantile(histogram, maxNs, 500000)], ['p90', quantile(histogram, maxNs, 900000)], ['p99', quantile(histogram, maxNs, 990000)], ['max', maxNs]];
  points.forEach(([name, ns], at) => {
    const place = x(ns);
    chart.append(svg('line', { class: 'quantile', x1: place, x2: place, y1: 14 + (at % 2) * 12, y2: HISTOGRAM_PX - bottom, tip: [`${name}: ${duration(ns)}`] }),
      svg('text', { class: 'axis', x: Math.min(Math.max(place, 14), width - 14), y: 11 + (at % 2) * 12, 'text-anchor': 'middle' }, name));
  });
  const words = points.map(([name, ns]) => el('div', {}, el('dt', {}, name), el('dd', {}, duration(ns))));
  return el('figure', {}, el('figcaption', {}, `${title}: ${count(all)}`), chart, el('dl', { class: 'quantiles' }, words));
}

function drawLengths() {
  const place = document.querySelector('#lengths .contents');
  const kinds = [['wait', 'Waits', 'waiters'], ['hold', 'Holds', 'holders'], ['contended-hold', 'Contended parts of holds', 'contended-holders']];
  const all = sums(LOCKS, selection.window);
  const drawn = kinds.map(([what, title, kind]) => [title, all.filter((row) => row.count > 0 && row.histogram.length > 0 && isSelected(row, what)), kind]).filter(([, of]) => of.length > 0);
  const total = widthOf(place);
  const width = total > 780 && drawn.length > 1 ? Math.floor((total - 24) / 2) : total;
  const charts = drawn.map(([title, of, kind]) => drawHistogram(title, of, width, kind));
  const noHolds = data.locks.some((lock) => isHeld(lock.happened)) ? null : quiet('No holds were recorded; `lockmeter record --hold` times them.');
  const noRuns = quiet('Interrupts, softirqs and timers are not in a recording of locks; `lockmeter latency` times them.');
  const folded = isFolded() && selection.window ? quiet('This is one of the small locks, whose numbers in a window were added up.') : null;
  place.replaceChildren(el('div', { class: 'figures' }, charts), ...[charts.length === 0 && !folded ? quiet(whyNoStacks('wait')) : null, folded, noHolds, noRuns].filter(Boolean));
}

section('lengths', 'How long', 'Each bar counts the waits or holds of at least that long, and less than twice that.');
onSelection(drawLengths);
