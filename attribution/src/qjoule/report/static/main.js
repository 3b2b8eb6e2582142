// Puts the page together; says how long it took.
(() => {
  const sections = [...document.querySelectorAll('main > section')];
  document.getElementById('sections').append(...sections.map((section, i) => {
    const title = section.querySelector('h2');
    title.setAttribute('tabindex', '-1');
    return qj.el('a', { href: `#${section.id}`, title: `${title.textContent} (${i + 1})`,
      click: (event) => {
        event.preventDefault();
        section.scrollIntoView({ block: 'start' });
        title.focus({ preventScroll: true });
      } }, title.textContent);
  }));

  const show = () => {
    const trace = qj.current();
    qj.row = null;
    qj.showTotals(trace);
    qj.showPower(trace);
    qj.showIcicle(trace);
    qj.showTable(trace);
    const first = trace.rows.kind.indexOf(0);
    qj.showDetail(first, false);
  };
  if (qj.data.traces.length > 1) {
    const picker = document.getElementById('picker');
    picker.hidden = false;
    const select = qj.el('select', { id: 'trace', change: () => { qj.trace = select.selectedIndex; show(); qj.say(`showing ${qj.current().name}`); } },
      ...qj.data.traces.map(({ name }) => qj.el('option', {}, name)));
    picker.append(qj.el('label', { for: 'trace' }, 'trace '), select);
  }
  if (qj.data.traces.length) show();
  qj.showComparisons();
  qj.showStudies();
  document.documentElement.dataset.readyMs = String(Math.round(performance.now()));
})();
