// One statement: its figures, calls and power over time, and single calls from a sample.
qj.row = null; // number of the row that is shown
qj.detailCharts = [];

qj.showDetail = (number, go) => {
  const trace = qj.current();
  const row = qj.rowsOf(trace)[number];
  const host = document.getElementById('detail-body');
  qj.detailCharts.forEach((chart) => chart.remove());
  qj.detailCharts = [];
  qj.row = row ? number : null;
  host.replaceChildren();
  if (!row) {
    host.append(qj.el('p', { class: 'note' }, 'This trace has no queries.'));
    return;
  }
  document.querySelectorAll('.statement[aria-current]').forEach((one) => one.removeAttribute('aria-current'));
  const mark = document.querySelector(`tr[data-row="${number}"] .statement`);
  if (mark) mark.setAttribute('aria-current', 'true');

  host.append(qj.el('pre', { class: 'statement-text', tabindex: '0', 'aria-label': 'Statement without its literals' }, row.text || '(empty)'));
  host.append(facts(row));
  if (trace.rows.waits_latency_ns) latencyParts(host, row, !row.keys.some(([name]) => name === 'transaction'));
  const detail = trace.details[number];
  if (detail) overTime(host, trace, row, detail);
  else host.append(qj.el('p', { class: 'note' }, 'Figures over time are kept for the statements with the most energy only: this is none of them.'));
  if (detail) singleCalls(host, trace, row, detail);
  host.append(qj.el('h3', {}, 'Plan'), qj.el('p', { class: 'note' }, 'No plan was recorded with this trace.'));
  if (go) {
    const title = document.getElementById('detail-title');
    title.scrollIntoView({ block: 'start' });
    title.focus({ preventScroll: true });
  }
};

function facts(row) {
  const list = [
    ['energy', row.energy], ['J per call', row.per_call], ["share of the owners' energy", row.share_text],
    ['calls', qj.count(row.calls)], ['CPU time', qj.duration(row.cpu_ns)],
    ['latency', row.latency_ns_mean === null ? null
      : `mean ${qj.duration(row.latency_ns_mean)} · p50 ${qj.duration(row.latency_ns_p50)} · p95 ${qj.duration(row.latency_ns_p95)} · p99 ${qj.duration(row.latency_ns_p99)}`],
    ['helpers waited', row.helpers && `${row.helpers} per call`],
    ['instructions per cycle', row.cycles && row.instructions ? (row.instructions / row.cycles).toFixed(2) : null],
    ['LLC misses per call', row.llc_misses !== null && row.calls ? qj.si(row.llc_misses / row.calls, '') : null],
    ['power against its weight', row.factor], ['server', row.server], ['fingerprint', row.fingerprint],
    ...row.keys, ['attach_mode', row.attach_mode], ['flags', row.flags],
  ];
  return qj.el('dl', { class: 'facts' }, ...list.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .flatMap(([name, value]) => [qj.el('dt', {}, name), qj.el('dd', {}, value)]));
}

/** Shows the parts of the mean latency as a bar and a list. Not `timed`: shares only, for transactions, whose latency is longer than that of their queries. */
function latencyParts(host, row, timed) {
  const bar = qj.latencyBar(row);
  if (!bar) {
    host.append(qj.el('p', { class: 'note' }, 'What its calls waited for was not recorded.'));
    return;
  }
  const list = qj.el('ul', { class: 'parts', 'aria-label': 'Parts of the mean latency' },
    ...qj.LATENCY_PARTS.map(([id, name, colour]) => {
      const share = row[id] / row.waits_latency_ns;
      return qj.el('li', { class: share ? null : 'none' }, qj.swatch(colour), qj.el('span', {}, name), ' ',
        ...(timed ? [qj.el('b', {}, qj.duration(row.latency_ns_mean && share * row.latency_ns_mean)), ' '] : []), qj.share(share));
    }),
    timed ? qj.el('li', { class: 'sum' }, qj.el('span', {}, '= mean latency'), ' ', qj.el('b', {}, qj.duration(row.latency_ns_mean))) : null);
  host.append(qj.el('figure', {}, qj.el('figcaption', {}, timed ? 'Where the latency went' : 'Where the latency of its queries went'), bar, list));
}

function figure(host, title, options) {
  const box = qj.el('figure', {}, qj.el('figcaption', {}, title));
  host.append(box);
  qj.detailCharts.push(qj.chart(box, { height: 200, ...options }));
}

/** A stepped line over the detail's coarse buckets. */
function stepped(host, trace, title, values, unit, colour) {
  const t = trace.detail_t_s;
  const span = t[t.length - 1];
  figure(host, title, {
    label: `${title}, over ${qj.time(span, span)}`,
    say: (i) => `${qj.time(t[i], span)}: ${qj.si(values[Math.min(i, values.length - 1)], unit)}`,
    make: () => ({
      options: {
        scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, (high || 1) * 1.05] } },
        axes: [qj.timeAxis(span), qj.axis({ size: 62, values: (_u, ticks) => ticks.map((v) => qj.si(v, unit)) })],
        series: [{}, { stroke: qj.colour(colour), fill: qj.colour(`${colour}-soft`), width: 1.5, points: { show: false },
          paths: uPlot.paths.stepped({ align: 1 }) }],
      },
      data: [t, qj.steps(values)],
    }),
  });
}

function overTime(host, trace, row, detail) {
  const t = trace.detail_t_s;
  if (t.length < 2) return;
  const grid = qj.el('div', { class: 'figures' });
  host.append(grid);
  const rate = detail.calls.map((calls, i) => calls / (t[i + 1] - t[i]));
  stepped(grid, trace, 'Calls per second', rate, '/s', 'shape-2');
  if (detail.nj) stepped(grid, trace, 'Power', qj.power(detail.nj, trace.detail_known_s), 'W', 'shape-1');
}

function singleCalls(host, trace, row, detail) {
  const known = detail.call_nj.map((nj, i) => [detail.call_ns[i], nj]).filter(([ns, nj]) => ns > 0 && nj > 0);
  if (known.length < 2) {
    const why = row.flags.includes('statistical') ? 'its calls own no CPU time: their joules are a regression’s'
      : 'too few of its calls were sampled';
    host.append(qj.el('p', { class: 'note' }, `No single calls to show: ${why}.`));
    return;
  }
  const grid = qj.el('div', { class: 'figures' });
  host.append(grid);
  known.sort(([a], [b]) => a - b);
  figure(grid, `Latency against joules (${known.length} calls sampled of ${qj.count(row.calls)})`, {
    label: `Latency against joules of ${known.length} calls`,
    say: (i) => `${qj.duration(known[i][0])}: ${qj.joules(known[i][1])}`,
    make: () => ({
      options: {
        scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
        axes: [logAxis('s', { size: 34 }), logAxis('J', { size: 62 })],
        series: [{}, { stroke: qj.colour('shape-2'), paths: () => null,
          points: { show: true, size: 6, fill: qj.colour('shape-2-soft'), stroke: qj.colour('shape-2'), width: 1 } }],
      },
      data: [known.map(([ns]) => ns / 1e9), known.map(([, nj]) => nj / 1e9)],
    }),
  });
  histogram(grid, known.map(([, nj]) => nj / 1e9));
}

const logAxis = (unit, extra) => qj.axis({ ...extra, space: 40,
  values: (_u, ticks) => ticks.map((v) => (v === null || Math.abs(Math.log10(v) % 1) > 1e-6 ? null : qj.si(v, unit, 1))) });

/** A histogram of J/call in logarithmic classes. */
function histogram(host, joules) {
  const low = Math.min(...joules);
  const high = Math.max(...joules) * (1 + 1e-9);
  const classes = Math.max(Math.min(Math.ceil(Math.sqrt(joules.length)), 24), 4);
  const ratio = Math.max((high / low) ** (1 / classes), 1.0001);
  const counts = new Array(classes).fill(0);
  joules.forEach((j) => { counts[Math.min(Math.floor(Math.log(j / low) / Math.log(ratio)), classes - 1)] += 1; });
  const middle = counts.map((_, i) => low * ratio ** (i + 0.5));
  figure(host, 'Distribution of J/call', {
    label: `Distribution of joules per call, from ${qj.si(low, 'J')} to ${qj.si(high, 'J')}`,
    say: (i) => `about ${qj.si(middle[i], 'J')}: ${counts[i]} calls`,
    make: () => ({
      options: {
        scales: { x: { time: false, range: [-0.6, classes - 0.4] }, y: { range: (_u, _low, top) => [0, top * 1.05] } },
        axes: [qj.axis({ size: 34, values: (_u, ticks) => ticks.map((i) => (Number.isInteger(i) && middle[i] ? qj.si(middle[i], 'J', 2) : null)) }),
          qj.axis({ size: 50 })],
        series: [{}, { stroke: qj.colour('shape-1'), fill: qj.colour('shape-1-soft'), width: 1, points: { show: false },
          paths: uPlot.paths.bars({ size: [0.9, 60] }) }],
      },
      data: [counts.map((_, i) => i), counts],
    }),
  });
}
