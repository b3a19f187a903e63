// What is selected in a page is in its address after `#`, so that it can be shared and gone back to. Each page has its `selection`, and
// writes it by `address` and reads it by `readAddress`.

const redraws = [];

function onSelection(redraw) {
  redraws.push(redraw);
}

// The row that the address names by its values of these keys; `null` if none. What is true or not is named where it is true.
function rowInAddress(asked, keys, among) {
  const isAsked = (row) => keys.every((key) => (typeof row[key] === 'boolean' ? row[key] === asked.has(key) : !asked.has(key) || String(row[key]) === asked.get(key)));
  const at = keys.some((key) => asked.has(key)) ? among.findIndex(isAsked) : -1;
  return at < 0 ? null : at;
}

function putRow(asked, keys, row) {
  for (const key of keys) if (row[key] !== null && row[key] !== false) asked.set(key, row[key]);
}

// Changes what is selected, and draws again what depends on it.
function select(change) {
  Object.assign(selection, change);
  const hash = address();
  if (hash !== window.location.hash.slice(1)) window.history.replaceState(null, '', `#${hash}`);
  // What is drawn again has a new element at the same place in the hands of somebody who uses the keyboard.
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.focus : undefined;
  for (const redraw of redraws) redraw(change);
  if (focused && document.activeElement === document.body) {
    const same = [...document.querySelectorAll('[data-focus]')].find((element) => element.dataset.focus === focused);
    if (same) same.focus();
  }
}

window.addEventListener('hashchange', () => {
  readAddress();
  select({});
});

// A word of a command line.
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replace(/'/g, "'\\''")}'`;
}

// Shows what is selected: words, what the button that takes it back is called, and what that changes.
function drawChips(chosen) {
  const place = document.getElementById('selection');
  place.hidden = chosen.length === 0;
  place.replaceChildren('Shown below: ', ...chosen.map(([words, label, change]) => el('span', { class: 'chip' }, words,
    el('button', { type: 'button', 'aria-label': label, onclick: () => select(change) }, '✕'))));
}
