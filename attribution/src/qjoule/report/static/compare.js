// Traces compared: speedup, greenup and powerup of each over the first.
qj.showComparisons = () => {
  const host = document.getElementById('compare-body');
  if (!host) return;
  qj.data.comparisons.forEach((one) => {
    host.append(qj.el('h3', {}, `${one.new} against ${one.base}`));
    one.warnings.forEach((text) => host.append(qj.el('p', { class: 'warn-box', role: 'note' }, text)));
    if (!one.rows.length) {
      host.append(qj.el('p', { class: 'note' }, 'They have no statement in common.'));
      return;
    }
    const head = ['statement', 'speedup', 'greenup', 'powerup', 'category', `J/call in ${one.base}`, `J/call in ${one.new}`];
    const rows = one.rows.map((row) => qj.el('tr', { class: 'is-queries' },
      qj.el('th', { scope: 'row', class: 'text' }, qj.el('span', { class: 'statement' }, row.text)),
      ...['speedup', 'greenup', 'powerup'].map((name) => ratio(row[name], row[`${name}_ci95`])),
      qj.el('td', {}, row.category, row.latency ? qj.el('div', { class: 'note' }, `latency: mostly ${row.latency}`) : null),
      qj.el('td', { class: 'number' }, row.base_per_call ?? qj.UNKNOWN),
      qj.el('td', { class: 'number' }, row.new_per_call ?? qj.UNKNOWN)));
    host.append(qj.el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${one.new} against ${one.base}` },
      qj.el('table', { class: 'compared' },
        qj.el('thead', {}, qj.el('tr', {}, ...head.map((text, i) => qj.el('th', { scope: 'col', class: i && i !== 4 ? 'number' : null }, text)))),
        qj.el('tbody', {}, ...rows))));
    if (one.more) host.append(qj.el('p', { class: 'note' }, `${qj.count(one.more)} more statements are in both.`));
    host.append(qj.el('p', { class: 'hint' }, 'Above 1: faster (speedup), less energy per call (greenup), more power (powerup).'));
  });
};

/** Shows a ratio and its interval as a figure, and as a mark on a scale from 1/4 to 4. */
function ratio(value, interval) {
  if (value === null) return qj.el('td', { class: 'number' }, qj.UNKNOWN);
  const at = (x) => Math.min(Math.max((Math.log2(x || 1e-9) + 2) / 4, 0), 1) * 100;
  const [low, high] = interval || [null, null];
  const text = `${value.toFixed(2)}×${interval ? ` [${low.toFixed(2)}, ${high === null ? '∞' : high.toFixed(2)}]` : ''}`;
  const svg = qj.el('svg', { viewBox: '0 0 100 10', class: 'whisker', 'aria-hidden': 'true', preserveAspectRatio: 'none' },
    qj.el('line', { x1: 50, x2: 50, y1: 0, y2: 10, class: 'one' }),
    interval ? qj.el('line', { x1: at(low), x2: high === null ? 100 : at(high), y1: 5, y2: 5, class: 'range' }) : null,
    qj.el('rect', { x: at(value) - 1.2, y: 1.5, width: 2.4, height: 7, class: 'point' }));
  return qj.el('td', { class: 'number' }, text, svg);
}
// A study: the mean of each combination of levels, with its interval.
qj.showStudies = () => {
  const host = document.getElementById('study-body');
  if (!host) return;
  qj.data.studies.forEach((study) => {
    host.append(qj.el('h3', {}, study.name));
    study.warnings.forEach((text) => host.append(qj.el('p', { class: 'warn-box', role: 'note' }, text)));
    study.measures.forEach((measure) => host.append(measureFigure(study, measure)));
    if (study.problems.length) {
      host.append(qj.el('details', {}, qj.el('summary', {}, `${study.problems.length} runs with a remark`),
        qj.el('ul', {}, ...study.problems.map((text) => qj.el('li', {}, text)))));
    }
  });
};

function measureFigure(study, measure) {
  const ends = measure.rows.flatMap(({ mean, low, high }) => [mean, low, high]).filter((v) => v !== null && v !== undefined);
  const most = Math.max(...ends, 0) || 1;
  const at = (value) => `${Math.min(Math.max(value / most, 0), 1) * 100}`;
  const head = [...study.factors, 'runs', measure.title, ''];
  const rows = measure.rows.map((row) => qj.el('tr', {},
    ...row.levels.map((level, i) => qj.el(i ? 'td' : 'th', i ? {} : { scope: 'row' }, level)),
    qj.el('td', { class: 'number' }, String(row.runs)),
    qj.el('td', { class: 'number' }, row.text),
    qj.el('td', { class: 'plot' }, row.mean === null ? null : qj.el('svg', { viewBox: '0 0 100 10', class: 'whisker wide', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      qj.el('rect', { x: 0, y: 3.5, width: at(row.mean), height: 3, class: 'reach' }),
      row.low === null ? null : qj.el('line', { x1: at(row.low), x2: at(row.high), y1: 5, y2: 5, class: 'range' }),
      qj.el('rect', { x: Math.max(at(row.mean) - 0.5, 0), y: 1, width: 1, height: 8, class: 'point' })))));
  return qj.el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': measure.title },
    qj.el('table', { class: 'study' },
      qj.el('caption', {}, measure.title),
      qj.el('thead', {}, qj.el('tr', {}, ...head.map((text, i) => qj.el('th', { scope: 'col', class: i >= study.factors.length && text ? 'number' : null }, text)))),
      qj.el('tbody', {}, ...rows)));
}
