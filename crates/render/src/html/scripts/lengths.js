// How long waits and holds last.

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
