// The table of owners: search, kinds, sort and pages by TanStack Table.
const PAGE_ROWS = 50;

qj.COLUMNS = [
  { id: 'text', title: 'statement or owner' },
  { id: 'nj', title: 'energy', number: true, show: (row) => row.energy, hint: 'apportioned, with its 95 % interval' },
  { id: 'share', title: 'share', number: true, show: (row) => row.share_text, hint: 'of the energy of all owners, without idle and residual, with its 95 % interval' },
  { id: 'call_nj', title: 'J/call', number: true, show: (row) => row.per_call, hint: 'energy of one call, with its 95 % interval' },
  { id: 'calls', title: 'calls', number: true, show: (row) => (row.part === 'queries' ? qj.count(row.calls) : null) },
  { id: 'latency_ns_mean', title: 'latency', number: true, show: (row) => qj.duration(row.latency_ns_mean), hint: 'mean' },
  { id: 'latency_ns_p95', title: 'p95', number: true, show: (row) => qj.duration(row.latency_ns_p95), hint: 'of the latency' },
  { id: 'cpu_ns', title: 'CPU time', number: true, show: (row) => qj.duration(row.cpu_ns) },
  { id: 'server', title: 'server' },
  { id: 'flags', title: 'flags' },
];

/** Parts of the latency of queries: column, name and colour. */
qj.LATENCY_PARTS = [
  ['ran_ns', 'on CPU', 'shape-1'], ['wait_run_queue_ns', 'run queue', 'shape-7'], ['wait_lock_ns', 'lock', 'shape-6'],
  ['wait_io_ns', 'I/O', 'shape-3'], ['wait_network_ns', 'network', 'shape-2'], ['wait_sleep_ns', 'sleep', 'shape-4'],
  ['wait_other_ns', 'other', 'residual'],
];
const PARTS_COLUMN = { id: 'waits_latency_ns', title: 'latency went to', show: (row) => qj.latencyBar(row),
  hint: 'parts of the latency; sorted by its sum over all calls' };

/** Draws a bar of the parts, with their shares as text; null if they are not recorded. */
qj.latencyBar = (sums) => {
  if (!sums.waits_latency_ns) return null;
  const parts = qj.LATENCY_PARTS.map(([id, name, colour]) => ({ name, colour, share: sums[id] / sums.waits_latency_ns }))
    .filter(({ share }) => share > 0);
  const text = parts.map(({ name, share }) => `${name} ${qj.share(share)}`).join(', ');
  return qj.el('div', { class: 'bar latency', role: 'img', 'aria-label': text, title: text },
    ...parts.map(({ colour, share }) => qj.el('i', { style: { width: `${share * 100}%`, background: `var(--${colour})` } })));
};
qj.swatch = (colour) => qj.el('i', { class: 'swatch', style: { background: `var(--${colour})` } });

const classOf = ({ id, number }) => (number ? `number ${id}` : id.replace(/:.*/, ''));

/** The columns of a trace: one for each key beside the statement; waits, if they are recorded. */
const columnsOf = (trace) => {
  const columns = [qj.COLUMNS[0], ...trace.by.map((name) => ({ id: `key:${name}`, title: name })), ...qj.COLUMNS.slice(1)];
  if (trace.rows.waits_latency_ns) columns.splice(columns.findIndex(({ id }) => id === 'cpu_ns'), 0, PARTS_COLUMN);
  return columns;
};

/** Rows of a trace as objects, made once. */
qj.rowsOf = (trace) => {
  if (!trace.objects) {
    const names = Object.keys(trace.rows);
    trace.objects = trace.rows.text.map((_, number) => {
      const row = { number };
      names.forEach((name) => { row[name] = trace.rows[name][number]; });
      row.keys.forEach(([name, value]) => { row[`key:${name}`] = value; });
      row.part = qj.PARTS[row.kind];
      row.call_nj = row.calls && row.nj !== null ? row.nj / row.calls : undefined;
      row.found = [row.text, row.server, row.fingerprint, row.flags, row.attach_mode, row.part,
        ...row.keys.map(([name, value]) => `${name}=${value}`)].join('\n').toLowerCase();
      return row;
    });
  }
  return trace.objects;
};

qj.showTable = (trace) => {
  const host = document.getElementById('table');
  host.replaceChildren();
  const rows = qj.rowsOf(trace);
  const columns = columnsOf(trace);
  let state = {};
  const column = ({ id }) => ({
    id,
    accessorFn: (row) => (row[id] === null ? undefined : row[id]),
    sortUndefined: 'last',
    sortDescFirst: !/^(text|server|flags|key:.*)$/.test(id),
  });
  const table = TableCore.createTable({
    data: rows,
    columns: [...columns.map(column),
      { id: 'found', accessorFn: (row) => row.found, enableGlobalFilter: true },
      { id: 'part', accessorFn: (row) => row.part, filterFn: (row, id, value) => !value || row.getValue(id) === value }],
    getColumnCanGlobalFilter: ({ id }) => id === 'found',
    globalFilterFn: (row, id, words) => words.every((word) => row.getValue(id).includes(word)),
    getCoreRowModel: TableCore.getCoreRowModel(),
    getFilteredRowModel: TableCore.getFilteredRowModel(),
    getSortedRowModel: TableCore.getSortedRowModel(),
    getPaginationRowModel: TableCore.getPaginationRowModel(),
    autoResetPageIndex: false,
    renderFallbackValue: null,
    state: {},
    onStateChange: () => {},
  });
  state = { ...table.initialState, pagination: { pageIndex: 0, pageSize: PAGE_ROWS }, globalFilter: [] };
  const update = (change, say) => {
    state = typeof change === 'function' ? change(state) : change;
    table.setOptions((old) => ({ ...old, state }));
    render(say);
  };
  table.setOptions((old) => ({ ...old, state, onStateChange: update }));

  const search = qj.el('input', { type: 'search', id: 'search', placeholder: 'Search (/)', autocomplete: 'off',
    spellcheck: 'false', 'aria-label': 'Search statements, servers, fingerprints, flags', maxlength: '500',
    input: () => {
      const globalFilter = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      update({ ...state, globalFilter, pagination: { ...state.pagination, pageIndex: 0 } }, true);
    } });
  const kinds = qj.el('select', { id: 'kind', 'aria-label': 'Which owners', change: () => {
    const columnFilters = kinds.value ? [{ id: 'part', value: kinds.value }] : [];
    update({ ...state, columnFilters, pagination: { ...state.pagination, pageIndex: 0 } }, true);
  } }, qj.el('option', { value: '' }, 'everything'),
  ...qj.PARTS.filter((part) => rows.some((row) => row.part === part))
    .map((part) => qj.el('option', { value: part }, qj.PART_NAMES[part])));

  const heads = columns.map(({ id, title, number, hint }) => qj.el('th', { scope: 'col', class: classOf({ id, number }), 'data-column': id },
    qj.el('button', { type: 'button', title: hint ? `${title}: ${hint}` : `Sort by ${title}`, click: () => {
      const one = state.sorting[0];
      const first = table.getColumn(id).columnDef.sortDescFirst;
      const desc = one && one.id === id ? !one.desc : first;
      update({ ...state, sorting: [{ id, desc }], pagination: { ...state.pagination, pageIndex: 0 } });
      qj.say(`sorted by ${title}, ${desc ? 'descending' : 'ascending'}`);
    } }, title)));
  const body = qj.el('tbody');
  const foot = qj.el('tfoot');
  const pages = qj.el('div', { class: 'pages' });
  const caption = qj.el('caption', { class: 'unseen' }, 'Energy, calls and latency by owner');
  host.append(
    qj.el('div', { class: 'controls' }, search, kinds),
    ...(trace.rows.waits_latency_ns ? [qj.el('ul', { class: 'parts', 'aria-label': 'Colours of the parts of the latency' },
      ...qj.LATENCY_PARTS.map(([, name, colour]) => qj.el('li', {}, qj.swatch(colour), name)))] : []),
    qj.el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table of owners' },
      qj.el('table', { class: 'owners' }, caption, qj.el('thead', {}, qj.el('tr', {}, ...heads)), body, foot)),
    pages,
  );

  function turn(step) {
    const last = Math.max(table.getPageCount() - 1, 0);
    const pageIndex = Math.min(Math.max(state.pagination.pageIndex + step, 0), last);
    update({ ...state, pagination: { ...state.pagination, pageIndex } });
    qj.say(`page ${pageIndex + 1} of ${last + 1}`);
  }
  qj.turnPage = turn;

  function render(say) {
    const sorting = state.sorting[0];
    heads.forEach((head) => {
      const mine = sorting && sorting.id === head.dataset.column;
      head.setAttribute('aria-sort', mine ? (sorting.desc ? 'descending' : 'ascending') : 'none');
    });
    body.replaceChildren(...table.getRowModel().rows.map(({ original }) => line(original)));
    const found = table.getFilteredRowModel().rows;
    const nj = found.reduce((sum, { original }) => sum + (original.nj || 0), 0);
    const calls = found.reduce((sum, { original }) => sum + original.calls, 0);
    const latency = Object.fromEntries(['waits_latency_ns', ...qj.LATENCY_PARTS.map(([id]) => id)]
      .map((id) => [id, found.reduce((sum, { original }) => sum + (original[id] || 0), 0)]));
    const all = found.length === rows.length;
    const energy = trace.known ? `${qj.joules(nj)}${all && nj === trace.measured_nj ? ` = ${qj.total(trace)}` : ''}` : qj.UNKNOWN;
    const cells = { text: all ? `all ${qj.count(rows.length)} rows` : `${qj.count(found.length)} of ${qj.count(rows.length)} rows`,
      calls: qj.count(calls), nj: energy, waits_latency_ns: qj.latencyBar(latency), share: trace.known ? qj.share(found.reduce((sum, { original }) => sum + (original.share || 0), 0)) : qj.UNKNOWN };
    foot.replaceChildren(qj.el('tr', {}, ...columns.map(({ id, number }) => qj.el('td', { class: classOf({ id, number }) }, cells[id] || ''))));
    const { pageIndex } = state.pagination;
    const last = table.getPageCount();
    pages.replaceChildren(...(last < 2 ? [] : [
      qj.el('button', { type: 'button', disabled: pageIndex === 0, click: () => turn(-1) }, '‹ previous'),
      qj.el('span', {}, `page ${pageIndex + 1} of ${last}`),
      qj.el('button', { type: 'button', disabled: pageIndex + 1 >= last, click: () => turn(1) }, 'next ›'),
    ]));
    if (say) qj.say(`${found.length} rows found`);
  }

  function line(row) {
    const is = qj.row === row.number;
    const cells = columns.map((one) => {
      const text = one.show ? one.show(row) : row[one.id];
      const value = typeof text === 'number' ? qj.count(text) : text;
      if (one.id !== 'text') return qj.el('td', { class: classOf(one) }, value ?? (one.id.startsWith('key:') ? '' : qj.UNKNOWN));
      const keys = row.keys.filter(([name]) => name !== 'fingerprint' && !trace.by.includes(name)).map(([name, of]) => `${name}=${of}`).join('  ');
      const open = row.part === 'queries'
        ? qj.el('button', { type: 'button', class: 'link statement', title: 'Show this statement',
          'aria-current': is ? 'true' : null, click: () => qj.showDetail(row.number, true) }, row.text || '(empty)')
        : qj.el('span', { class: 'statement' }, row.text);
      return qj.el('th', { scope: 'row', class: 'text' }, open, keys && keys !== row.text ? qj.el('small', {}, keys) : null);
    });
    return qj.el('tr', { class: `is-${row.part}`, 'data-row': row.number }, ...cells);
  }
  update({ ...state, sorting: [{ id: trace.known ? 'nj' : 'cpu_ns', desc: true }] });
};
