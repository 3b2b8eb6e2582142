// What all parts of the page share: the data, elements made of text, figures for people.
const qj = {};

qj.data = JSON.parse(document.getElementById('data').textContent);
qj.PARTS = qj.data.parts;
qj.PART_NAMES = {
  queries: 'queries', background: 'server background', other_processes: 'other processes',
  kernel: 'kernel', tracer: 'tracer', idle: 'idle', residual: 'residual',
};
qj.trace = 0; // which of the traces is shown
qj.current = () => qj.data.traces[qj.trace];

/** An element; attributes that are functions listen. Children are elements or text. */
qj.el = (tag, attributes = {}, ...children) => {
  const svg = ['svg', 'g', 'line', 'circle', 'rect', 'text', 'title', 'path'].includes(tag);
  const made = svg
    ? document.createElementNS('http://www.w3.org/2000/svg', tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') made.addEventListener(name, value);
    else if (name === 'style') Object.entries(value).forEach(([k, v]) => made.style.setProperty(k, v));
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
};

qj.UNKNOWN = '–';
const PREFIXES = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n']];

/** Three significant digits with an SI prefix: 12.3 mJ. */
qj.si = (value, unit, digits = 3) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return qj.UNKNOWN;
  if (value === 0) return `0 ${unit}`;
  const size = Math.abs(value) * (1 + 0.5 * 10 ** -digits);
  const [scale, prefix] = PREFIXES.find(([at]) => size >= at) || PREFIXES[PREFIXES.length - 1];
  const scaled = value / scale;
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(scaled) * (1 + 1e-12))));
  return `${scaled.toFixed(Math.min(decimals, 6))} ${prefix}${unit}`;
};
qj.joules = (nj) => (nj === null || nj === undefined ? qj.UNKNOWN : qj.si(nj / 1e9, 'J'));
qj.watts = (w) => qj.si(w, 'W');
qj.duration = (ns) => (ns === null || ns === undefined ? qj.UNKNOWN : qj.si(ns / 1e9, 's'));
qj.count = (n) => (n === null || n === undefined ? qj.UNKNOWN : n.toLocaleString('en'));
qj.share = (part) => {
  if (part === null || part === undefined) return qj.UNKNOWN;
  return part > 0 && part < 0.0005 ? '<0.1 %' : `${(part * 100).toFixed(1)} %`;
};
qj.clock = (s) => {
  const whole = Math.floor(s);
  const [h, m, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (n) => String(n).padStart(2, '0');
  return h ? `${h}:${two(m)}:${two(rest)}` : `${m}:${two(rest)}`;
};
/** Time since the beginning, as fine as `span_s` needs. */
qj.time = (s, span_s) => (span_s < 10 ? qj.si(s, 's') : qj.clock(s));

/** What the total is called: of a source that is no meter, it was not measured. */
qj.total = (trace) => (trace.grade === 'measured' ? 'measured' : `${trace.grade} total`);

qj.say = (text) => { document.getElementById('status').textContent = text; };

/** Joules of a stretch of time as watts; null where nothing was read. */
qj.power = (nj, known_s) => nj.map((one, i) => (known_s[i] > 0 ? one / 1e9 / known_s[i] : null));
