// Puts a page together: the first drawing, new widths, and the download.

const button = document.getElementById('download');
button.disabled = false;
button.addEventListener('click', () => {
  // What the same command prints with `--format json`, and what the page knows beside it.
  const blob = new Blob(['{"report": ', reportText, ', "page": ', dataText, '}\n'], { type: 'application/json' });
  const link = el('a', { href: URL.createObjectURL(blob), download: 'lockmeter-report.json' });
  link.click();
  URL.revokeObjectURL(link.href);
});

let drawnWidth = document.body.clientWidth;
window.addEventListener('resize', () => {
  if (document.body.clientWidth === drawnWidth) return;
  drawnWidth = document.body.clientWidth;
  select({});
});

readAddress();
select({});
document.documentElement.dataset.drawn = String(Math.round(performance.now()));
