// What if: the forecast of each lock's throughput, with how far the model is from the recording as its band.

const FORECAST_PX = 240;

const CURVES = [
  ['removed', 'without the lock', 'removed'],
  ['sharded', 'split into 16', 'sharded'],
  ['simulated', 'as it is', 'as-is'],
];

function perSecond(value) {
  for (const [unit, letters] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) if (value >= unit) return `${(value / unit).toPrecision(3)} ${letters}/s`;
  return `${value.toPrecision(3)} /s`;
}

// The largest error of the model against the recording it was made from.
const errorOf = (forecast) => Math.abs(forecast.check.simulated);

function forecastChart(forecast, width) {
  const points = forecast.points;
  const [left, right, bottom, head] = [66, 12, 30, 10];
  const cpus = points.map((point) => point.cpus);
  const values = points.flatMap((point) => CURVES.map(([key]) => point[key]).filter((value) => value > 0));
  const [low, high] = [Math.log10(Math.min(...values, forecast.recorded_per_second) / 1.3), Math.log10(Math.max(...values) * 1.3)];
  const x = (number) => left + (Math.log2(number / cpus[0]) / Math.max(1, Math.log2(cpus[cpus.length - 1] / cpus[0]))) * (width - left - right);
  const y = (value) => head + (1 - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (FORECAST_PX - head - bottom);
  const chart = drawing(width, FORECAST_PX, `Forecast for ${forecast.lock}`);
  for (let power = Math.ceil(low); power <= high; power += 1) {
    chart.append(svg('line', { class: 'grid', x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power) }), svg('text', { class: 'axis', x: left - 6, y: y(10 ** power) + 4, 'text-anchor': 'end' }, perSecond(10 ** power).replace(/\.00|\.0/, '')));
  }
  for (const number of cpus) chart.append(svg('text', { class: 'axis', x: x(number), y: FORECAST_PX - 12, 'text-anchor': 'middle' }, count(number)));
  const off = errorOf(forecast);
  const present = points.filter((point) => point.simulated !== null);
  if (present.length > 1) {
    const edge = (sign) => present.map((point) => `${x(point.cpus)},${y(point.simulated * Math.max(0.01, 1 + sign * off))}`);
    chart.append(svg('polygon', { class: 'band', points: [...edge(1), ...edge(-1).reverse()].join(' '), tip: [`± ${share(off, 1)}: as far as the model is from the recording`] }));
  }
  for (const [key, words, name] of CURVES) {
    const of = points.filter((point) => point[key] !== null && point[key] !== undefined);
    if (of.length === 0) continue;
    chart.append(svg('polyline', { class: `curve ${name}`, points: of.map((point) => `${x(point.cpus)},${y(point[key])}`).join(' ') }));
    for (const point of of) chart.append(svg('circle', { class: `dot ${name}`, tabindex: 0, role: 'img', 'aria-label': `${point.cpus} CPUs, ${words}: ${perSecond(point[key])}`, cx: x(point.cpus), cy: y(point[key]), r: 4, tip: [`${counted(point.cpus, 'CPU', 'CPUs')}, ${words}`, perSecond(point[key])] }));
  }
  return chart;
}

function forecastElement(forecast, width) {
  const mode = forecast.mode === 'exclusive' ? '' : ` (${forecast.mode})`;
  const title = el('figcaption', {}, `${forecast.lock}${mode}`);
  const facts = `Recorded: ${perSecond(forecast.recorded_per_second)} on ${counted(forecast.cpus, 'CPU', 'CPUs')} with ${counted(forecast.threads, 'thread', 'threads')}, held ${share(forecast.utilization, 1)} of the time. The model is off by ${share(errorOf(forecast), 1)} of what was recorded: the band.`;
  if (forecast.points.length === 0) return el('figure', {}, title, quiet(`It cannot be told: ${forecast.refused}.`));
  const legend = el('ul', { class: 'legend' }, CURVES.filter(([key]) => forecast.points.some((point) => point[key] !== null)).map(([, words, name]) => el('li', {}, drawing(22, 10, '', svg('line', { class: `curve ${name}`, x1: 0, x2: 22, y1: 5, y2: 5 })), ` ${words}`)));
  return el('figure', {}, title, forecastChart(forecast, width), legend, el('p', { class: 'quiet' }, facts), forecast.refused ? quiet(forecast.refused) : null);
}

function drawForecast() {
  const place = document.querySelector('#forecast .contents');
  const all = data.forecasts.locks || [];
  if (all.length === 0) {
    place.replaceChildren(quiet(data.forecasts.why || 'There is no forecast.'));
    return;
  }
  const chosen = selection.lock === null ? null : rows[selection.lock];
  const of = chosen ? all.filter((forecast) => forecast.lock === chosen.lock && forecast.mode === chosen.mode) : all;
  if (of.length === 0) {
    place.replaceChildren(quiet(`Only the locks that were held longest have a forecast here; \`lockmeter predict --lock ${quoted(chosen.lock)}\` makes this one's, if its holds were timed.`));
    return;
  }
  const total = widthOf(place);
  const width = total > 780 && of.length > 1 ? Math.floor((total - 24) / 2) : total;
  place.replaceChildren(...[el('div', { class: 'figures' }, of.map((forecast) => forecastElement(forecast, width))),
    quiet('Acquisitions a second by number of CPUs, one thread on each; of the whole recording, also in a window. `lockmeter predict` takes other numbers of threads.'),
    ...data.forecasts.doubts.map((doubt) => quiet(`${doubt[0].toUpperCase()}${doubt.slice(1)}.`))]);
}

section('forecast', 'What if', 'What removing or splitting a lock would gain on more CPUs.');
onSelection(drawForecast);
