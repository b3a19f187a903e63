// Elements, and the one tooltip. Text of the measured system enters the page here only, and as text.

const SVG = 'http://www.w3.org/2000/svg';
const tips = new WeakMap();

// Names may have any length; beyond this they would only take the room of others. The JSON has all of them.
const LONGEST_TEXT = 2000;
const cut = (text) => (typeof text === 'string' && text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text);
const OF_TEXT = ['title', 'aria-label'];

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'tip') tips.set(element, value);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, OF_TEXT.includes(name) ? cut(value) : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(cut));
  return element;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// A drawing as wide as its place; `label` is what a screen reader says of it.
function drawing(width, height, label, ...children) {
  return svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': label }, children);
}

// A section's heading and what stands under it; returns where its contents go.
function section(id, title, note) {
  const place = document.getElementById(id);
  const heading = el('h2', {}, title);
  const contents = el('div', { class: 'contents' });
  place.replaceChildren(heading, ...(note ? [el('p', { class: 'note' }, note)] : []), contents);
  return contents;
}

function widthOf(place) {
  return Math.max(280, Math.floor(place.clientWidth || place.parentElement.clientWidth));
}

// A note; what stands between backticks is code.
function quiet(text) {
  return el('p', { class: 'quiet' }, text.split('`').map((part, at) => (at % 2 === 1 ? el('code', {}, part) : part)));
}

const LETTER_PX = 7;

// Both ends of a text: what tells names of locks apart is at either.
function fittingEnds(text, width) {
  const letters = Math.floor(width / LETTER_PX);
  if (letters < 3 || text.length <= letters) return fitting(text, width);
  const end = Math.floor((letters - 1) / 2);
  return `${text.slice(0, letters - 1 - end)}…${text.slice(text.length - end)}`;
}

// As much of a text as fits, about.
function fitting(text, width) {
  const letters = Math.floor(width / LETTER_PX);
  if (letters < 3) return '';
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
}

const tip = document.getElementById('tip');

function showTip(element, x, y) {
  let of = element;
  while (of && !tips.has(of)) of = of.parentNode;
  if (!of) {
    tip.hidden = true;
    return;
  }
  const lines = tips.get(of);
  tip.replaceChildren(...(typeof lines === 'function' ? lines() : lines).map((line) => el('div', {}, line)));
  tip.hidden = false;
  const left = Math.min(x + 12, window.innerWidth - tip.offsetWidth - 8);
  const below = y + 16 + tip.offsetHeight < window.innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, below ? y + 16 : y - tip.offsetHeight - 10)}px`;
}

document.addEventListener('pointermove', (event) => showTip(event.target, event.clientX, event.clientY));
document.addEventListener('pointerleave', () => { tip.hidden = true; });
document.addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });
document.addEventListener('focusin', (event) => {
  if (!event.target.matches(':focus-visible')) return;
  const box = event.target.getBoundingClientRect();
  showTip(event.target, box.left, Math.min(box.bottom, window.innerHeight - 40));
});
document.addEventListener('keydown', (event) => { if (event.key === 'Escape') tip.hidden = true; });
