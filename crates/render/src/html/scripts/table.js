// Tables that one can sort and filter. A column is its heading, its key, what it says, the number of a row by which to sort (`null`: not
// known), and that number in words.

const SHOWN_AT_FIRST = window.innerWidth < 600 ? 10 : 25;

// By what to sort: a column, or (`null`) the name.
function sorting(columns, usual) {
  const [key, way] = (selection.sort || usual).split(':');
  const column = columns.find(([, of]) => of === key) || null;
  return { key, column, ascending: column ? way === 'up' : way !== 'down' };
}

// The rows that the filter leaves, in order.
function sortedAndFiltered(table, { columns, usual, name, text }) {
  const wanted = selection.filter.toLowerCase();
  const { column, ascending } = sorting(columns, usual);
  const value = column ? (row) => column[3](row) ?? -Infinity : (row) => name(row).toLowerCase();
  const compare = (one, other) => (value(one) < value(other) ? -1 : Number(value(one) > value(other)));
  const found = table.filter((row) => text(row).toLowerCase().includes(wanted));
  return found.sort((one, other) => (ascending ? compare(one, other) : compare(other, one)));
}

// A table of these rows: what it is called, the heading of the names, the cell with the name of a row, and attributes of a row.
function grid(rowsOfTable, { columns, usual, label, heading, nameCell, attributes, className }) {
  const sorted = sorting(columns, usual);
  const head = (words, key, title, isText) => {
    const isSorted = key === sorted.key;
    const next = isSorted && (isText ? sorted.ascending : !sorted.ascending) ? (isText ? 'down' : 'up') : (isText ? 'up' : 'down');
    const state = isSorted ? (sorted.ascending ? 'ascending' : 'descending') : 'none';
    return el('th', { scope: 'col', 'aria-sort': state, class: isText ? 'name' : 'number' },
      el('button', { type: 'button', title, 'data-focus': `sort-${key}`, onclick: () => select({ sort: `${key}:${next}` }) }, words));
  };
  const cell = (row) => ([, key, , number, words]) => el('td', { 'data-key': key }, number(row) === null ? '' : words(number(row), row));
  const body = el('tbody', {}, rowsOfTable.map((row) => el('tr', attributes(row), nameCell(row), columns.map(cell(row)))));
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label },
    el('table', { class: className }, el('thead', {}, el('tr', {}, head(heading, 'name', 'by name', true),
      columns.map(([words, key, title]) => head(words, key, title, false)))), body));
}

// Buttons of which one is pressed: name and label of each.
function choices(label, of, pressed, choose) {
  return el('div', { class: 'tabs', role: 'group', 'aria-label': label }, of.map(([name, words]) => el('button', {
    type: 'button', 'data-focus': `${label.toLowerCase().replace(/ /g, '-')}-${name}`, 'aria-pressed': String(name === pressed), onclick: () => choose(name),
  }, words)));
}

// What stands above a table. The field stays the same element while one types in it.
function drawFilter(place, placeholder, [one, many], found, all) {
  if (!place.querySelector('.tools')) {
    const field = el('input', { type: 'search', id: 'filter', placeholder, oninput: () => select({ filter: field.value, page: 0 }) });
    place.replaceChildren(el('div', { class: 'tools' }, el('label', { for: 'filter' }, 'Filter '), field, el('span', { class: 'found', role: 'status' })),
      el('div', { class: 'kinds' }), el('div', { class: 'result' }));
  }
  const field = place.querySelector('#filter');
  if (field.value !== selection.filter) field.value = selection.filter;
  place.querySelector('.found').textContent = found === all ? counted(all, one, many) : `${count(found)} of ${counted(all, one, many)}`;
}
