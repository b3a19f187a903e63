// Numbers as the text report writes them (crates/render/src/units.rs).

const SECOND_NS = 1e9;
const MILLION = 1e6;

function ratio(value, times, of) {
  return of === 0 ? 0 : Math.floor((value * times) / of + 0.5);
}

function count(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}

function counted(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function threeDigits(value, unit) {
  const hundredths = ratio(value, 100, unit);
  if (hundredths < 1000) return (hundredths / 100).toFixed(2);
  const tenths = ratio(value, 10, unit);
  if (tenths < 1000) return (tenths / 10).toFixed(1);
  const ones = ratio(value, 1, unit);
  return ones < 1000 ? String(ones) : null;
}

function duration(ns) {
  if (ns < 1000) return `${Math.round(ns)} ns`;
  const units = [[1e3, 'µs'], [1e6, 'ms'], [SECOND_NS, 's'], [60 * SECOND_NS, 'min'], [3600 * SECOND_NS, 'h']];
  for (const [unitNs, unit] of units) {
    const digits = threeDigits(ns, unitNs);
    if (digits !== null) return `${digits} ${unit}`;
  }
  return `${count(ratio(ns, 1, 3600 * SECOND_NS))} h`;
}

function change(ns) {
  const sign = ns === 0 ? '' : ns > 0 ? '+' : '-';
  return `${sign}${duration(Math.abs(ns))}`;
}

// Thousandths with about two significant digits.
function thousandths(value) {
  if (value >= 9950) return count(ratio(value, 1, 1000));
  if (value >= 995) return (ratio(value, 1, 100) / 10).toFixed(1);
  if (value >= 95) return (ratio(value, 1, 10) / 100).toFixed(2);
  return value > 0 ? `0.${String(value).padStart(3, '0')}` : '0';
}

// A share as a sentence says it; never rounded up to all of it.
function share(part, whole) {
  const ppm = ratio(part, MILLION, whole);
  if (ppm >= MILLION) return `${count(ratio(ppm, 1, 10000))} %`;
  if (ppm >= 990000) return `${(Math.floor(ppm / 1000) / 10).toFixed(1)} %`;
  if (ppm >= 99500) return `${ratio(ppm, 1, 10000)} %`;
  if (ppm >= 1000) return `${(ratio(ppm, 1, 1000) / 10).toFixed(1)} %`;
  if (ppm >= 50) return `${(ratio(ppm, 1, 100) / 100).toFixed(2)} %`;
  return ppm > 0 ? 'under 0.01 %' : '0 %';
}

// A share as a column of percentages shows it.
function percent(ppm) {
  if (ppm > 0 && ppm < 1000) return '<0.1';
  const tenths = ratio(ppm, 1, 1000);
  return `${count(Math.floor(tenths / 10))}.${tenths % 10}`;
}

// A moment of the recording, as the flag --window takes it.
function offset(ns) {
  return ns % SECOND_NS === 0 ? `${ns / SECOND_NS}s` : `${Math.round(ns / 1000)}us`;
}

function seconds(ns) {
  return `${(ns / SECOND_NS).toFixed(ns < 100 * SECOND_NS ? 2 : 0)} s`;
}
