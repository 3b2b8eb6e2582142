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
