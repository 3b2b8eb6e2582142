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
      qj.el('td', {}, row.category),
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

/** A ratio and its interval as a figure, and as a mark on a line from a quarter to four times. */
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
