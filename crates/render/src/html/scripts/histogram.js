// Histograms on a logarithmic axis, with percentiles. Buckets are their lower bound, how many and how long together.

const HISTOGRAM_PX = 190;

function quantile(histogram, maxNs, millionths) {
  const all = histogram.reduce((sum, [, number]) => sum + number, 0);
  const rank = Math.min(Math.max(Math.ceil((all * millionths) / MILLION), 1), Math.max(all, 1));
  if (rank === all && maxNs > 0) return maxNs;
  let before = 0;
  for (const [lowerNs, number, totalNs] of histogram) {
    if (rank - before <= number) {
      const upperNs = Math.max(Math.min(Math.max(2 * lowerNs, 2) - 1, maxNs), lowerNs);
      const width = upperNs - lowerNs;
      if (width === 0) return lowerNs;
      const mean = Math.min(Math.max((totalNs / number - lowerNs) / width, 0), 1);
      const found = Math.round(lowerNs + linearDensity(mean, (rank - before - 0.5) / number) * width);
      return Math.min(Math.max(found, lowerNs), upperNs, maxNs || Infinity);
    }
    before += number;
  }
  return maxNs;
}

// The quantile of the linear density on [0, 1] with this mean (crates/profile/src/quantile.rs).
function linearDensity(mean, part) {
  if (mean < 1 / 3) return 3 * mean * (1 - Math.sqrt(1 - part));
  if (mean > 2 / 3) return 1 - 3 * (1 - mean) * (1 - Math.sqrt(part));
  const slope = 6 * (mean - 0.5);
  if (Math.abs(slope) < 1e-9) return part;
  const middle = 1 - slope;
  return (Math.sqrt(middle * middle + 4 * slope * part) - middle) / (2 * slope);
}

function added(histograms) {
  const all = new Map();
  for (const [lower, number, totalNs] of histograms.flat()) {
    const bucket = all.get(lower) || [lower, 0, 0];
    bucket[1] += number;
    bucket[2] += totalNs;
    all.set(lower, bucket);
  }
  return [...all.values()].sort((one, other) => one[0] - other[0]);
}

// Of rows with a histogram and their longest: a title, and the class of the bars.
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
    const words = duration(ns).replace(/\.0+ /, ' ');
    const wide = words.length * LETTER_PX;
    const from = Math.min(Math.max(at - wide / 2, 0), width - wide);
    if (ns < 2 ** first || from < free) continue;
    free = from + wide + LETTER_PX;
    chart.append(svg('text', { class: 'axis', x: from, y: HISTOGRAM_PX - 10 }, words));
    chart.append(svg('line', { class: 'tick', x1: at, x2: at, y1: HISTOGRAM_PX - bottom, y2: HISTOGRAM_PX - bottom + 4 }));
  }
  const points = [['p50', quantile(histogram, maxNs, 500000)], ['p90', quantile(histogram, maxNs, 900000)], ['p99', quantile(histogram, maxNs, 990000)], ['max', maxNs]];
  // Those at about one place have one label.
  const labels = [];
  points.forEach(([name, ns]) => {
    const place = x(ns);
    const last = labels[labels.length - 1];
    if (last && place - last.place < 12) last.names.push(name);
    else labels.push({ place, names: [name] });
  });
  labels.forEach(({ place, names }, at) => {
    const words = names.join(', ');
    const half = (words.length * LETTER_PX) / 2;
    chart.append(svg('text', { class: 'axis', x: Math.min(Math.max(place, half), width - half), y: 11 + (at % 2) * 12, 'text-anchor': 'middle' }, words));
  });
  for (const [name, ns] of points) {
    const line = labels.findIndex(({ names }) => names.includes(name)) % 2;
    chart.append(svg('line', { class: 'quantile', x1: x(ns), x2: x(ns), y1: 14 + line * 12, y2: HISTOGRAM_PX - bottom, tip: [`${name}: ${duration(ns)}`] }));
  }
  const words = points.map(([name, ns]) => el('div', {}, el('dt', {}, name), el('dd', {}, duration(ns))));
  return el('figure', {}, el('figcaption', {}, `${title}: ${count(all)}`), chart, el('dl', { class: 'quantiles' }, words));
}
