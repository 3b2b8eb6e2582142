// Shared by all parts of the page: the data, DOM elements, formatting of figures.
const qj = {};

qj.data = JSON.parse(document.getElementById('data').textContent);
qj.PARTS = qj.data.parts;
qj.PART_NAMES = {
  queries: 'queries', background: 'server background', other_processes: 'other processes',
  kernel: 'kernel', tracer: 'tracer', idle: 'idle', residual: 'residual',
};
qj.trace = 0; // index of the trace that is shown
qj.current = () => qj.data.traces[qj.trace];

/** Makes an element; attributes that are functions become listeners. Children: elements or text. */
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

/** Formats three significant digits with an SI prefix: 12.3 mJ. */
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
/** Formats time since the beginning, as precisely as `span_s` needs. */
qj.time = (s, span_s) => (span_s < 10 ? qj.si(s, 's') : qj.clock(s));

/** The name of the total: "measured" only if the source measures. */
qj.total = (trace) => (trace.grade === 'measured' ? 'measured' : `${trace.grade} total`);

qj.say = (text) => { document.getElementById('status').textContent = text; };

/** Converts joules of an interval to watts; null where nothing was read. */
qj.power = (nj, known_s) => nj.map((one, i) => (known_s[i] > 0 ? one / 1e9 / known_s[i] : null));
// Colour scheme: light, dark, or the system's. A change redraws charts on canvas.
qj.redraw = []; // functions to call when colours change

(() => {
  const root = document.documentElement;
  const button = document.getElementById('theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  const choices = ['system', 'light', 'dark'];
  let chosen = 0;

  const apply = (theme) => {
    const dark = theme === 'dark' || (theme === 'system' && system.matches);
    root.dataset.theme = dark ? 'dark' : 'light';
    qj.redraw.forEach((draw) => draw());
  };
  qj.nextTheme = () => {
    chosen = (chosen + 1) % choices.length;
    button.textContent = `Theme: ${choices[chosen]}`;
    apply(choices[chosen]);
  };
  button.addEventListener('click', qj.nextTheme);
  system.addEventListener('change', () => apply(choices[chosen]));
  addEventListener('beforeprint', () => apply('light'));
  addEventListener('afterprint', () => apply(choices[chosen]));
  apply('system');
})();

/** A colour of the style sheet, for canvases. */
qj.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Charts by uPlot in the page's colours. They resize, take the keyboard focus, and can be redrawn.

/**
 * Puts a chart into `host`. `make` returns uPlot's options and data in the current colours.
 * `say` returns the text of the point under the cursor, for screen readers.
 */
qj.chart = (host, { label, height, make, say }) => {
  let plot = null;
  const box = qj.el('div', { class: 'chart', role: 'img', tabindex: '0', 'aria-label': label });
  host.append(box);

  const draw = () => {
    if (!box.isConnected) return;
    const zoom = plot && plot.scales.x ? [plot.scales.x.min, plot.scales.x.max] : null;
    if (plot) plot.destroy();
    const { options, data } = make();
    const width = Math.max(box.clientWidth, 200);
    plot = new uPlot({ width, height, legend: { show: false }, ...options }, data, box);
    if (zoom && draw.zoomed) plot.setScale('x', { min: zoom[0], max: zoom[1] });
  };
  draw.zoomed = false;
  box.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !plot) return;
    event.preventDefault();
    const last = plot.data[0].length - 1;
    const index = Math.min(Math.max((plot.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
    plot.setCursor({ left: plot.valToPos(plot.data[0][index], 'x'), top: 10 });
    if (say) qj.say(say(index));
  });
  draw();
  new ResizeObserver(() => {
    const width = Math.max(box.clientWidth, 200);
    if (plot && Math.abs(plot.width - width) > 1) plot.setSize({ width, height });
  }).observe(box);
  const again = () => draw();
  qj.redraw.push(again);
  return {
    remove: () => {
      qj.redraw.splice(qj.redraw.indexOf(again), 1);
      if (plot) plot.destroy();
      box.remove();
    },
  };
};

/** An axis in the page's colours. */
qj.axis = (extra) => ({
  stroke: qj.colour('ink-soft'),
  grid: { stroke: qj.colour('grid'), width: 1 },
  ticks: { stroke: qj.colour('grid'), width: 1 },
  font: '12px system-ui, sans-serif',
  ...extra,
});

/** Step values for uPlot: repeats the last value at the end. */
qj.steps = (values) => [...values, values.length ? values[values.length - 1] : null];

/** The time axis of a chart from 0 to `span_s`. */
qj.timeAxis = (span_s) => qj.axis({ size: 34, values: (_u, ticks) => ticks.map((s) => qj.time(s, span_s)) });
