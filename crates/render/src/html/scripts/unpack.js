// The page's data, packed: `report` is what the same command prints with `--format json`, and `data` is what the page knows beside it.

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
