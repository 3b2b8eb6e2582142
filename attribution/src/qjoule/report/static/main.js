// Keyboard shortcuts, which can be turned off, and the dialog that lists them.
(() => {
  const dialog = document.getElementById('help');
  const opener = document.getElementById('help-open');
  let enabled = true;
  const sections = () => [...document.querySelectorAll('#sections a')];
  const keys = [
    ['/', 'search', () => { const search = document.getElementById('search'); if (search) { search.scrollIntoView({ block: 'center' }); search.focus(); } }],
    ['t', 'light, dark, or as the system says', () => qj.nextTheme()],
    ['n', 'next page of the table', () => qj.turnPage && qj.turnPage(1)],
    ['p', 'previous page', () => qj.turnPage && qj.turnPage(-1)],
    ['1 … 9', 'a section of the page', null],
    ['?', 'this help', () => dialog.showModal()],
  ];
  const beside = [
    ['Tab', 'next control, chart or table'],
    ['← →', 'along a chart, or beside in the icicle'],
    ['↑ ↓', 'up and down the icicle'],
    ['Esc', 'out of the icicle, the search, or this help'],
  ];
  const box = qj.el('input', { type: 'checkbox', id: 'single-keys', checked: true, change: () => { enabled = box.checked; } });
  dialog.append(
    qj.el('h2', { id: 'help-title' }, 'Keys'),
    qj.el('dl', { class: 'facts' }, ...[...keys, ...beside].flatMap(([key, does]) => [qj.el('dt', {}, qj.el('kbd', {}, key)), qj.el('dd', {}, does)])),
    qj.el('p', {}, qj.el('label', {}, box, ' shortcuts of one key')),
    qj.el('form', { method: 'dialog' }, qj.el('button', {}, 'Close')),
  );
  opener.addEventListener('click', () => dialog.showModal());
  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest && event.target.closest('input, select, textarea');
    if (event.key === 'Escape' && event.target.id === 'search') {
      event.target.value = '';
      event.target.dispatchEvent(new Event('input'));
      event.target.blur();
      return;
    }
    if (!enabled || typing || dialog.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^[1-9]$/.test(event.key)) {
      const link = sections()[Number(event.key) - 1];
      if (link) link.click();
      return;
    }
    const found = keys.find(([key, , run]) => key === event.key && run);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
})();
// Builds the page, and records how long that took.
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
