'use strict';
// Polls /snapshot and shows it. All text from the agent is inserted as text.
const POLL_MS = 2000, MOST_POINTS = 300, MOST_ROWS = 50, MOST_LINES = 6, MOST_SHOWN = 4000, MOST_LABEL = 300;
// Okabe and Ito (2008), told apart by colour-blind people too.
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00'];
const at = (id) => document.getElementById(id);
let tag = '', chosen = null, last = null, plot = null;
const points = []; // { t, watts: Map of row keys }
const names = new Map();

const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const safe = (text, most) => String(text).slice(0, most).replace(UNSAFE, '\ufffd');
const known = (value) => typeof value === 'number' && Number.isFinite(value);
const number = (value, unit) => {
  if (!known(value)) return '–';
  const steps = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n']];
  const [by, prefix] = steps.find(([one]) => Math.abs(value) >= one) ?? [1, ''];
  return `${Number((value / by).toPrecision(3))} ${prefix}${unit}`.trim();
};
const joules = (nj) => number(nj / 1e9, 'J');
const key = (row) => JSON.stringify([row.server, row.attach_mode, row.keys]);
const label = (row) => safe(row.shape || row.keys.fingerprint || '(none)', MOST_LABEL);
const element = (name, text, most = MOST_LABEL) => {
  const made = document.createElement(name);
  made.textContent = safe(text, most);
  return made;
};

const say = (text, warns) => {
  at('about').textContent = text;
  at('about').classList.toggle('warn', Boolean(warns));
};

const remember = (interval, seconds) => {
  const watts = new Map(interval.rows.map((row) => [key(row), row.energy_nj / 1e9 / seconds]));
  for (const row of interval.rows) names.set(key(row), label(row));
  points.push({ t: Date.now() / 1000, watts });
  if (points.length > MOST_POINTS) points.shift();
  const kept = new Set(points.flatMap((one) => [...one.watts.keys()]));
  for (const one of names.keys()) if (!kept.has(one)) names.delete(one);
};

const draw = () => {
  const sums = new Map();
  for (const one of points) for (const [of, w] of one.watts) sums.set(of, (sums.get(of) ?? 0) + w);
  const first = [...sums].sort((a, b) => b[1] - a[1]).slice(0, MOST_LINES).map(([of]) => of);
  const data = [points.map((one) => one.t), ...first.map((of) => points.map((one) => one.watts.get(of) ?? 0))];
  const ink = getComputedStyle(document.body).color;
  const axis = { stroke: ink, grid: { stroke: '#8884', width: 1 }, ticks: { stroke: '#8884', width: 1 } };
  const series = [{}, ...first.map((_, i) => ({ stroke: COLOURS[i], width: 2, points: { show: points.length < 3 } }))];
  if (plot) plot.destroy();
  const size = { width: Math.max(at('chart').clientWidth, 200), height: 240 };
  plot = new uPlot({ ...size, legend: { show: false }, series, axes: [axis, { ...axis, size: 70, values: (_u, all) => all.map((w) => number(w, 'W')) }] }, data, at('chart'));
  at('legend').replaceChildren(...first.map((of, i) => {
    const item = element('li', names.get(of) ?? '');
    const swatch = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    for (const [name, value] of [['width', 14], ['height', 4], ['fill', COLOURS[i]]]) line.setAttribute(name, value);
    swatch.setAttribute('width', 14);
    swatch.setAttribute('height', 8);
    swatch.append(line);
    item.prepend(swatch);
    return item;
  }));
};

const table = (interval, seconds) => {
  const had = at('rows').contains(document.activeElement);
  const rows = [...interval.rows].sort((a, b) => b.energy_nj - a.energy_nj);
  at('rows').replaceChildren(...rows.slice(0, MOST_ROWS).map((row) => {
    const line = document.createElement('tr');
    line.classList.toggle('chosen', key(row) === chosen);
    const perCall = row.calls ? row.energy_nj / row.calls : NaN;
    const cells = [number(row.energy_nj / 1e9 / seconds, 'W'), joules(row.energy_nj), joules(perCall), number(row.calls, ''), number(row.cpu_ns / 1e9, 's'), row.server];
    line.append(...cells.map((text) => element('td', text)));
    const cell = document.createElement('td');
    const button = element('button', label(row));
    button.addEventListener('click', () => { chosen = key(row); show(last); });
    cell.append(button);
    line.append(cell);
    return line;
  }));
  if (had) at('rows').querySelector('.chosen button')?.focus();
  const others = interval.fixed.map((row) => `${row.kind.replace('_', ' ')}${row.shape ? ` (${row.shape})` : ''} ${joules(row.energy_nj)}`);
  at('rest').textContent = safe(`${rows.length} statements. Others: ${others.slice(0, 30).join(', ')}`, MOST_SHOWN);
};

const detail = (interval, seconds) => {
  const row = interval.rows.find((one) => key(one) === chosen);
  at('detail').hidden = chosen === null;
  if (!row) return;
  at('shape').textContent = safe(row.shape || '(text not shown)', MOST_SHOWN);
  const ci = row.energy_nj_ci95.map((nj) => joules(nj));
  const figures = [
    ['server', row.server], ...Object.entries(row.keys), ['attach_mode', row.attach_mode ?? ''],
    ['power', number(row.energy_nj / 1e9 / seconds, 'W')],
    ['energy', `${joules(row.energy_nj)} (95 %: ${ci.join(' to ')})`],
    ['calls', row.calls], ['calls per second', number(row.calls / seconds, '')],
    ['CPU time', number(row.cpu_ns / 1e9, 's')], ...(row.stolen_ns ? [['of it stolen', number(row.stolen_ns / 1e9, 's')]] : []),
    ...['mean', 'p50', 'p95', 'p99'].map((of) => [`latency ${of}`, known(row[`latency_ns_${of}`]) ? number(row[`latency_ns_${of}`] / 1e9, 's') : '–']),
    ['flags', (row.flags ?? []).join(', ')],
  ];
  at('figures').replaceChildren(...figures.flatMap(([name, text]) => [element('dt', name), element('dd', text)]));
};

const show = (snapshot) => {
  const { interval } = snapshot;
  const seconds = interval.trace.duration_s || NaN;
  const source = interval.energy_source, main = interval.domains[0];
  at('host').textContent = safe(interval.trace.host, 100);
  const watts = main ? number(main.measured_nj / 1e9 / seconds, 'W') : 'no energy source';
  const error = source.total_error ? ` ±${Math.round(100 * source.total_error)} %` : '';
  const lost = Object.entries(interval.trace.loss).map(([cause, count]) => `${cause} ${count}`).join(', ') || 'nothing';
  const leftOut = Object.entries(source.left_out ?? {}).map(([name, why]) => `; ${name} left out: ${why}`).join('');
  const throttled = interval.trace.throttled ? `; ${interval.trace.throttled}` : '';
  say(safe(`${watts} ${source.main_domain}, ${source.grade}${error} (${source.name}); idle ${interval.policy.idle}; last ${number(seconds, 's')}; lost: ${lost}${leftOut}${throttled}; ${snapshot.name}`, 1000), source.grade !== 'measured');
  document.querySelector('main').hidden = false;
  table(interval, seconds);
  detail(interval, seconds);
  draw();
};

const poll = async () => {
  try {
    const headers = tag ? { 'If-None-Match': tag } : {};
    const answer = await fetch('/snapshot', { headers, cache: 'no-store', redirect: 'error' });
    if (answer.status === 200) {
      tag = answer.headers.get('ETag') ?? '';
      last = await answer.json();
      remember(last.interval, last.interval.trace.duration_s || NaN);
      show(last);
    } else if (answer.status !== 304) {
      tag = '';
      say(safe(await answer.text(), 200), true);
    }
  } catch (error) {
    say(`the agent does not answer: ${safe(error.message, 200)}`, true);
  }
  setTimeout(poll, POLL_MS);
};

addEventListener('resize', () => { if (plot) plot.setSize({ width: Math.max(at('chart').clientWidth, 200), height: 240 }); });
poll();
