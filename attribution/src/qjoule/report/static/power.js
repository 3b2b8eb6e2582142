// Power over time: shapes in colour, the rest in greys, the measured line above.

/** The layers from the bottom up; each takes part of the measured energy, and all take all of it. */
qj.layers = (trace) => {
  const { power } = trace;
  const zero = power.measured_nj.map(() => 0);
  const sum = (lists) => lists.reduce((sums, list) => sums.map((s, i) => s + list[i]), zero);
  const less = (from, lists) => sum([from, ...lists.map((list) => list.map((v) => -v))]);
  const part = power.parts_nj;
  const shapes = power.rows.map(({ row, nj }, i) => ({
    name: trace.rows.text[row], nj, row, colour: `shape-${i + 1}`,
  }));
  const rest = less(part.queries, power.rows.map(({ nj }) => nj));
  const found = [
    { name: 'idle', nj: part.idle, colour: 'idle' },
    { name: 'other processes, kernel, tracer', colour: 'machine',
      nj: sum([part.other_processes, part.kernel, part.tracer]) },
    { name: 'residual (no known owner)', nj: part.residual, colour: 'residual' },
    { name: 'server background', nj: part.background, colour: 'background' },
    { name: shapes.length ? 'other statements' : 'statements', nj: rest, colour: 'others' },
    ...shapes.reverse(),
  ];
  return found.filter(({ nj }) => nj.some((value) => value !== 0));
};

qj.showTotals = (trace) => {
  const host = document.getElementById('totals');
  host.replaceChildren();
  if (!trace.known) {
    host.append(qj.el('p', { class: 'note' }, 'No energy source: joules are unknown, not zero.'));
    return;
  }
  const total = trace.measured_nj;
  const bar = qj.el('div', { class: 'bar', 'aria-hidden': 'true' });
  const list = qj.el('ul', { class: 'parts', 'aria-label': 'Parts of the total' });
  const colours = { queries: 'shape-1', background: 'background', other_processes: 'machine',
    kernel: 'machine', tracer: 'machine', idle: 'idle', residual: 'residual' };
  qj.PARTS.forEach((part, i) => {
    const nj = trace.parts_nj[i];
    const share = total ? nj / total : 0;
    if (nj > 0) bar.append(qj.el('i', { style: { width: `${share * 100}%`, background: `var(--${colours[part]})` } }));
    list.append(qj.el('li', { class: nj ? null : 'none' },
      qj.el('span', {}, qj.PART_NAMES[part]), ' ', qj.el('b', {}, qj.joules(nj)), ' ', qj.share(share)));
  });
  const adds = trace.parts_nj.reduce((a, b) => a + b, 0) === total;
  list.append(qj.el('li', { class: adds ? 'sum' : 'sum warn' },
    qj.el('span', {}, adds ? `= ${qj.total(trace)}` : 'does not add up to'), ' ', qj.el('b', {}, qj.joules(total))));
  host.append(bar, list);
};

qj.showPower = (trace) => {
  const host = document.getElementById('power-chart');
  host.replaceChildren();
  if (qj.powerChart) qj.powerChart.remove();
  qj.powerChart = null;
  if (!trace.power || trace.power.t_s.length < 2) {
    host.append(qj.el('p', { class: 'note' }, 'No power over time: there are no energy readings.'));
    return;
  }
  const { power } = trace;
  const layers = qj.layers(trace);
  const known = power.known_s;
  const own = layers.map(({ nj }) => qj.power(nj, known));
  const stacked = [];
  own.forEach((watts, i) => {
    stacked.push(watts.map((w, t) => (w === null ? null : w + (i ? stacked[i - 1][t] : 0))));
  });
  const measured = qj.power(power.measured_nj, known);
  const span = power.t_s[power.t_s.length - 1];
  const legend = legendOf(layers, qj.total(trace));

  const values = (index) => {
    const at = Math.min(index, measured.length - 1);
    legend.show(own.map((watts) => watts[at]), measured[at], qj.time(power.t_s[at], span));
    return `${qj.time(power.t_s[at], span)}: ${qj.total(trace)} ${qj.watts(measured[at])}`;
  };
  qj.powerChart = qj.chart(host, {
    label: `Power over time, ${layers.length} layers; mean ${qj.watts(trace.measured_nj / 1e9 / trace.duration_s)}`,
    height: innerWidth < 600 ? 240 : 320,
    say: values,
    make: () => ({
      options: {
        cursor: { y: false, drag: { x: true, y: false } },
        scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, (high || 1) * 1.05] } },
        axes: [qj.timeAxis(span), qj.axis({ size: 62, values: (_u, ticks) => ticks.map((w) => qj.watts(w)) })],
        // Drawn from the top layer down, each over the one above it.
        series: [
          {},
          ...[...layers].reverse().map(({ name, colour }) => ({
            label: name, width: 0, points: { show: false },
            fill: qj.colour(colour), paths: uPlot.paths.stepped({ align: 1 }),
          })),
          { label: qj.total(trace), stroke: qj.colour('ink'), width: 1.2, points: { show: false },
            paths: uPlot.paths.stepped({ align: 1 }) },
        ],
        hooks: { setCursor: [(u) => (u.cursor.idx === null || u.cursor.idx === undefined
          ? legend.clear() : values(u.cursor.idx))] },
      },
      data: [power.t_s, ...[...stacked].reverse().map(qj.steps), qj.steps(measured)],
    }),
  });
  host.append(legend.element);
};

/** The legend: names and, under the cursor, watts. A statement's name leads to its detail. */
function legendOf(layers, totalName) {
  const cells = layers.map(() => qj.el('span', { class: 'watts' }));
  const total = qj.el('span', { class: 'watts' });
  const when = qj.el('span', { class: 'when' }, 'drag to zoom, double click for all');
  const items = layers.map(({ name, colour, row }, i) => {
    const swatch = qj.swatch(colour);
    const label = row === undefined
      ? qj.el('span', { class: 'name' }, name)
      : qj.el('button', { type: 'button', class: 'name link', title: 'Show this statement',
        click: () => qj.showDetail(row, true) }, name);
    return qj.el('li', {}, swatch, label, cells[i]);
  });
  const line = qj.el('i', { class: 'swatch line' });
  const first = qj.el('li', {}, line, qj.el('span', { class: 'name' }, totalName), total);
  const element = qj.el('div', { class: 'legend' }, when, qj.el('ul', {}, first, ...items.reverse()));
  return {
    element,
    show: (watts, measured, time) => {
      cells.forEach((cell, i) => { cell.textContent = qj.watts(watts[i]); });
      total.textContent = qj.watts(measured);
      when.textContent = `at ${time}`;
    },
    clear: () => {
      [...cells, total].forEach((cell) => { cell.textContent = ''; });
      when.textContent = 'drag to zoom, double click for all';
    },
  };
}
