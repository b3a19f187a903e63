// The report by lock, and the numbers of each slice of time. All that is computed here are sums over slices, and quantiles of their
// histograms.

const LOCKS = 0;
const CALLERS = 1;
const BLOCKERS = 2;
const ROOTS = 3;
const CHAINS = 4;
const TASKS = 5;

const slices = data.slices;
const rows = report.rows;

// Whether a lock stands for several small ones.
const isOthers = (lock) => data.locks[lock].others !== undefined;

function lockName(lock) {
  return isOthers(lock) ? `${counted(data.locks[lock].others, 'other lock', 'other locks')}` : rows[lock].lock || '[no name]';
}

function lockTitle(lock, write = asItIs) {
  if (isOthers(lock)) return lockName(lock);
  const row = rows[lock];
  const mode = row.mode && row.mode !== 'exclusive' ? ` (${row.mode})` : '';
  return `${write(lockName(lock))}${mode}`;
}

const happened = (lock) => data.locks[lock].happened;
const isWait = (lock) => happened(lock) === 'wait' && !(rows[lock] && rows[lock].own);

const stackOf = (id) => (id === null || id === undefined ? [] : data.stacks[id].map((text) => data.texts[text]));

// A name without its long template arguments, as tables write it.
const shortNames = new Map(Object.entries(data.short).map(([id, short]) => [data.texts[id], short]));
const short = (name) => shortNames.get(name) || name;
const asItIs = (name) => name;

const lowerNs = (exponent) => (exponent === 0 ? 0 : 2 ** exponent);

// The rows of a view in a window of slices (`null`: the whole), by row: count, total, spinning, longest and, of locks, the histogram.
function sums(view, window) {
  const of = data.views[view];
  if (!window) {
    return of.lock.map((lock, at) => {
      const row = view === LOCKS && !isOthers(at) ? rows[at] : null;
      const from = row || { count: of.count[at], total_ns: of.total_ns[at], spin_ns: of.spin_ns[at], max_ns: of.max_ns[at] };
      const { count: number, total_ns: totalNs, spin_ns: spinNs, max_ns: maxNs } = from;
      return { at, lock, count: number || 0, totalNs, spinNs: spinNs || 0, maxNs: maxNs || 0, histogram: row ? row.histogram : [] };
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
