// The page's data: the report by lock, exactly as `lockmeter report --format json` writes it, and the numbers of each slice of time.
// All that is computed here are sums over slices, and quantiles of their histograms.

async function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).text();
}

function fail(sentence) {
  const place = document.getElementById('failure');
  place.textContent = sentence;
  place.hidden = false;
}

if (typeof DecompressionStream === 'undefined') {
  fail('This browser cannot unpack the data of the page; open it with a newer one (Chromium 80, Firefox 113, Safari 16.4 or later).');
  return;
}

const reportText = await unpacked('report');
const dataText = await unpacked('data');
const report = JSON.parse(reportText);
const data = JSON.parse(dataText);

const LOCKS = 0;
const CALLERS = 1;
const BLOCKERS = 2;
const ROOTS = 3;
const CHAINS = 4;

const slices = data.slices;
const rows = report.rows;

// Whether a lock stands for several small ones.
const isOthers = (lock) => data.locks[lock].others !== undefined;

function lockName(lock) {
  return isOthers(lock) ? `${counted(data.locks[lock].others, 'other lock', 'other locks')}` : rows[lock].lock || '[no name]';
}

function lockTitle(lock) {
  if (isOthers(lock)) return lockName(lock);
  const row = rows[lock];
  const mode = row.mode && row.mode !== 'exclusive' ? ` (${row.mode})` : '';
  return `${lockName(lock)}${mode}`;
}

const happened = (lock) => data.locks[lock].happened;
const isWait = (lock) => happened(lock) === 'wait' && !(rows[lock] && rows[lock].own);

const stackOf = (id) => (id === null || id === undefined ? [] : data.stacks[id].map((text) => data.texts[text]));

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

const lowerNs = (exponent) => (exponent === 0 ? 0 : 2 ** exponent);

// The rows of a view in a window of slices (`null`: the whole), by row: count, total, spinning, longest and, of locks, the histogram.
function sums(view, window) {
  const of = data.views[view];
  if (!window) {
    return of.lock.map((lock, at) => {
      const row = view === LOCKS && !isOthers(at) ? rows[at] : null;
      const from = row || { count: of.count[at], total_ns: of.total_ns[at], spin_ns: of.spin_ns[at], max_ns: of.max_ns[at] };
      const { count: number, total_ns: totalNs, spin_ns: spinNs, max_ns: maxNs } = from;
      return { at, lock, count: number, totalNs, spinNs: spinNs || 0, maxNs, histogram: row ? row.histogram : [] };
    });
  }
  const all = of.lock.map((lock, at) => ({ at, lock, count: 0, totalNs: 0, spinNs: 0, maxNs: 0, buckets: new Map() }));
  for (let slice = window.first; slice <= window.last; slice += 1) {
    const parts = slices[slice].parts[view];
    for (let at = 0; at < parts.length;) {
      const sum = all[parts[at]];
      sum.count += parts[at + 1];
      sum.totalNs += parts[at + 2];
      sum.spinNs += parts[at + 3];
      sum.maxNs = Math.max(sum.maxNs, parts[at + 4]);
      at += 5;
      if (view === LOCKS) {
        const end = at + 1 + 3 * parts[at];
        for (at += 1; at < end; at += 3) {
          const bucket = sum.buckets.get(parts[at]) || [lowerNs(parts[at]), 0, 0];
          bucket[1] += parts[at + 1];
          bucket[2] += parts[at + 2];
          sum.buckets.set(parts[at], bucket);
        }
      }
    }
  }
  for (const sum of all) sum.histogram = [...sum.buckets.values()].sort((one, other) => one[0] - other[0]);
  return all;
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

// What the window has as a whole.
function whole(window) {
  if (!window) {
    const threads = report.threads;
    const states = threads ? Object.fromEntries(threads.states.map((time) => [time.state, time.total_ns])) : {};
    return {
      durationNs: report.duration_ns,
      waitsNs: report.head.waits.total_ns,
      threadsNs: threads ? threads.total_ns : 0,
      restNs: threads ? threads.rest_ns : 0,
      states,
    };
  }
  const all = { durationNs: 0, waitsNs: 0, threadsNs: 0, restNs: 0, states: {} };
  for (const slice of slices.slice(window.first, window.last + 1)) {
    all.durationNs += slice.duration_ns;
    all.waitsNs += slice.waits_ns;
    all.threadsNs += slice.threads_ns;
    all.restNs += slice.rest_ns;
    for (const [state, ns] of Object.entries(slice.states)) all.states[state] = (all.states[state] || 0) + ns;
  }
  return all;
}
