// When: waited time, lock by slice of time. A window is chosen by dragging, or by the two fields.

const HEAT_ROWS = 14;
const HEAT_STEPS = 7;
const HEAT_ROW_PX = 20;

// The locks with the most waited time, and all others as one row.
function heatRows() {
  const waits = sums(LOCKS, null).filter((row) => isWait(row.lock));
  const columnsOf = new Map();
  slices.forEach((slice, at) => {
    const parts = slice.parts[LOCKS];
    for (let from = 0; from < parts.length; from += 6 + 3 * parts[from + 5]) {
      if (!isWait(data.views[LOCKS].lock[parts[from]])) continue;
      const column = columnsOf.get(parts[from]) || new Float64Array(slices.length);
      column[at] += parts[from + 2];
      columnsOf.set(parts[from], column);
    }
  });
  const empty = new Float64Array(slices.length);
  const total = (cells) => cells.reduce((sum, ns) => sum + ns, 0);
  const all = waits.filter((row) => columnsOf.has(row.at)).map((row) => ({ lock: row.lock, cells: columnsOf.get(row.at) || empty }));
  all.sort((one, other) => isOthers(one.lock) - isOthers(other.lock) || total(other.cells) - total(one.cells));
  const named = all.filter((row) => !isOthers(row.lock)).slice(0, HEAT_ROWS);
  const rest = all.filter((row) => !named.includes(row));
  if (rest.length > 0) {
    const number = rest.reduce((sum, row) => sum + (isOthers(row.lock) ? data.locks[row.lock].others : 1), 0);
    const cells = rest.reduce((sum, row) => sum.map((ns, at) => ns + row.cells[at]), empty);
    named.push({ lock: null, label: counted(number, 'other lock', 'other locks'), cells });
  }
  return named.map((row) => ({ label: row.lock === null ? row.label : lockTitle(row.lock), ...row }));
}

// A wait is counted when it ends, so a slice can hold more waited time than it lasts.
function drawHeatMap() {
  const place = document.querySelector('#when .contents');
  if (slices.length === 0) {
    place.replaceChildren(quiet('The recording has no intervals in this window.'));
    return;
  }
  const lines = heatRows();
  if (lines.length === 0) {
    place.replaceChildren(quiet('No wait for a lock ended in this recording, so there is nothing to show over time.'));
    return;
  }
  const width = widthOf(place);
  const left = Math.min(280, Math.floor(width * 0.34));
  const step = (width - left - 1) / slices.length;
  const most = Math.max(...lines.map((row) => Math.max(...row.cells)));
  const height = lines.length * HEAT_ROW_PX;
  const chart = drawing(width, height + 24, 'Waited time by lock and time');
  lines.forEach((row, line) => {
    const y = line * HEAT_ROW_PX;
    const isFaint = selection.lock !== null && row.lock !== selection.lock;
    const label = svg('text', { class: isFaint ? 'label faint' : 'label', x: left - 6, y: y + 14, 'text-anchor': 'end', tip: [row.label] }, fittingEnds(row.lock === null ? row.label : lockTitle(row.lock, short), left - 8));
    chart.append(label);
    row.cells.forEach((ns, at) => {
      const level = ns === 0 ? 0 : Math.max(1, Math.ceil(Math.sqrt(ns / most) * HEAT_STEPS));
      const slice = slices[at];
      const tipLines = () => [row.label, `${seconds(slice.from_ns)} to ${seconds(slice.to_ns)}`, `waited ${duration(ns)}`, `${thousandths(ratio(ns, 1000, slice.duration_ns))} tasks waiting on average`];
      chart.append(svg('rect', { class: `heat heat${level}${isFaint ? ' faint' : ''}`, x: left + at * step, y: y + 1, width: Math.max(0.6, step - (step > 3 ? 1 : 0)), height: HEAT_ROW_PX - 2, tip: tipLines }));
    });
  });
  const endNs = slices[slices.length - 1].to_ns;
  for (const at of timeTicks(slices.length, Math.floor((width - left) / 70))) {
    const x = left + at * step;
    chart.append(svg('text', { class: 'axis', x, y: height + 16, 'text-anchor': at === 0 ? 'start' : 'middle' }, seconds(slices[at].from_ns)),
      svg('line', { class: 'tick', x1: x, x2: x, y1: height, y2: height + 4 }));
  }
  if (selection.window) {
    const { first, last } = selection.window;
    const x = left + first * step;
    chart.append(svg('rect', { class: 'brushed', x, y: 0.5, width: (last + 1 - first) * step, height: height - 1 }));
  }
  brushes(chart, left, step, height);
  const scale = el('p', { class: 'scale' }, 'Waited in one slice: 0 ');
  for (let level = 0; level <= HEAT_STEPS; level += 1) scale.append(drawing(16, 12, '', svg('rect', { class: `heat heat${level}`, width: 15, height: 12 })));
  scale.append(` ${duration(most)}`);
  const each = slices[0].intervals === 1 ? 'interval' : `${count(slices[0].intervals)} intervals`;
  place.replaceChildren(chart, scale, windowFields(endNs),
    quiet(`One column for each ${each} of the recording. A wait is counted in the interval in which it ended.`));
}

function timeTicks(all, most) {
  const every = Math.max(1, Math.ceil(all / Math.max(1, most)));
  const ticks = [];
  for (let at = 0; at < all; at += every) ticks.push(at);
  return ticks;
}

function brushes(chart, left, step, height) {
  let begin = null;
  let band = null;
  const sliceAt = (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    return Math.min(Math.max(Math.floor((x - left) / step), 0), slices.length - 1);
  };
  chart.setAttribute('class', 'brushable');
  chart.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    const box = chart.getBoundingClientRect();
    if (event.clientX - box.left < left * (box.width / chart.viewBox.baseVal.width)) return;
    begin = sliceAt(event);
    band = svg('rect', { class: 'brushed', y: 0.5, height: height - 1 });
    chart.append(band);
    chart.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  chart.addEventListener('pointermove', (event) => {
    if (begin === null) return;
    const [first, last] = [begin, sliceAt(event)].sort((one, other) => one - other);
    band.setAttribute('x', left + first * step);
    band.setAttribute('width', (last + 1 - first) * step);
  });
  chart.addEventListener('pointerup', (event) => {
    if (begin === null) return;
    const [first, last] = [begin, sliceAt(event)].sort((one, other) => one - other);
    begin = null;
    select({ window: first === 0 && last === slices.length - 1 ? null : { first, last } });
  });
  chart.addEventListener('pointercancel', () => {
    begin = null;
    if (band) band.remove();
  });
}

// The same without a pointer.
function windowFields() {
  const at = selection.window || { first: 0, last: slices.length - 1 };
  const field = (id, label, chosen, ns, change) => {
    const choice = el('select', { id, 'data-focus': id, onchange: () => change(Number(choice.value)) },
      slices.map((slice, index) => el('option', { value: index, selected: index === chosen }, seconds(ns(slice)))));
    return [el('label', { for: id }, label), choice];
  };
  const set = (first, last) => select({ window: first === 0 && last === slices.length - 1 ? null : { first, last: Math.max(first, last) } });
  return el('p', { class: 'tools' },
    field('window-from', 'From ', at.first, (slice) => slice.from_ns, (first) => set(first, at.last)),
    field('window-to', ' to ', at.last, (slice) => slice.to_ns, (last) => set(Math.min(at.first, last), last)),
    selection.window ? el('button', { type: 'button', onclick: () => select({ window: null }) }, 'Whole recording') : null);
}

section('when', 'When', 'Drag over the map to see only that window: the verdict\'s bar, the table above and everything below.');
onSelection(drawHeatMap);
