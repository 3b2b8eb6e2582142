// Where the joules went: an icicle laid out by d3-hierarchy, walked through with the arrow keys.
const ICICLE_ROW = 30;

qj.showIcicle = (trace) => {
  const host = document.getElementById('icicle');
  host.replaceChildren();
  if (!trace.tree || !trace.tree.nj) {
    host.append(qj.el('p', { class: 'note' }, 'No joules to divide: energy is unknown.'));
    return;
  }
  const root = d3.partition()(d3.hierarchy(trace.tree, (node) => node.children)
    .sum((node) => (node.children ? 0 : node.nj)));
  const colours = new Map((trace.power ? trace.power.rows : []).map(({ row }, i) => [row, `shape-${i + 1}`]));
  const path = qj.el('div', { class: 'path', 'aria-live': 'polite' });
  const box = qj.el('div', { class: 'icicle', role: 'tree', 'aria-label': 'Joules by machine, server, database and statement',
    style: { height: `${(root.height + 1) * ICICLE_ROW}px` } });
  host.append(path, box);
  let focus = root;
  let current = root;
  const drawn = new Map();

  const colour = ({ data }) => {
    if (data.row !== undefined && colours.has(data.row)) return colours.get(data.row);
    return { queries: 'others', machine: 'panel', server: 'tree-1', database: 'tree-2', background: 'background',
      idle: 'idle', residual: 'residual' }[data.kind] || 'machine';
  };
  const about = ({ data, value }) => `${data.name}: ${qj.joules(value)}, ${qj.share(value / root.value)} of the machine's`;

  function draw(take) {
    const width = focus.x1 - focus.x0 || 1;
    drawn.clear();
    const nodes = focus.ancestors().reverse().concat(focus.descendants().slice(1))
      .filter((node) => Math.min(node.x1, focus.x1) - Math.max(node.x0, focus.x0) > width / 700);
    if (!nodes.includes(current)) current = focus;
    box.replaceChildren(...nodes.map((node) => {
      const x0 = Math.max((node.x0 - focus.x0) / width, 0);
      const x1 = Math.min((node.x1 - focus.x0) / width, 1);
      const made = qj.el('div', { role: 'treeitem', class: `node on-${colour(node)}${x1 - x0 > 0.006 ? ' parted' : ''}`, tabindex: node === current ? '0' : '-1',
        'aria-label': about(node), title: about(node), 'aria-level': node.depth + 1,
        'aria-expanded': node.children ? String(focus.ancestors().includes(node)) : null,
        'aria-selected': String(node === focus),
        style: { left: `${x0 * 100}%`, width: `${(x1 - x0) * 100}%`, top: `${node.depth * ICICLE_ROW}px`,
          height: `${ICICLE_ROW - 2}px`, background: `var(--${colour(node)})` },
        click: () => open(node) },
      x1 - x0 > 0.02 ? qj.el('span', {}, node.data.name) : null,
      x1 - x0 > 0.2 ? qj.el('b', {}, qj.joules(node.value)) : null);
      drawn.set(node, made);
      return made;
    }));
    box.append(...nodes.map(filler).filter(Boolean));
    path.textContent = focus.ancestors().reverse().map(({ data }) => data.name).join(' → ')
      + ` · ${qj.joules(focus.value)} · ${qj.share(focus.value / root.value)}`;
    if (take) drawn.get(current).focus();
  }
  /** Draws a node's last children, which are too thin, as one. */
  function filler(node) {
    const thin = (node.children || []).filter((child) => !drawn.has(child) && child.x0 >= focus.x0 && child.x1 <= focus.x1);
    if (!thin.length || focus.ancestors().slice(1).includes(node)) return null;
    const width = focus.x1 - focus.x0;
    return qj.el('div', { class: 'node filler', 'aria-hidden': 'true', title: `${thin.length} smaller`,
      style: { left: `${((thin[0].x0 - focus.x0) / width) * 100}%`, width: `${((node.x1 - thin[0].x0) / width) * 100}%`,
        top: `${(node.depth + 1) * ICICLE_ROW}px`, height: `${ICICLE_ROW - 2}px`, background: `var(--${colour(thin[0])})` } });
  }
  function open(node) {
    current = node;
    if (node.children) focus = node === focus && node.parent ? node.parent : node;
    else if (node.data.kind === 'queries' && node.data.row !== undefined) return qj.showDetail(node.data.row, true);
    draw(true);
    return undefined;
  }
  function go(node) {
    if (!node || !drawn.has(node)) return;
    current = node;
    drawn.forEach((made, one) => made.setAttribute('tabindex', one === node ? '0' : '-1'));
    drawn.get(node).focus();
  }
  const beside = (node, step) => {
    const level = [...drawn.keys()].filter(({ depth }) => depth === node.depth);
    return level[level.indexOf(node) + step];
  };
  box.addEventListener('keydown', (event) => {
    const to = {
      ArrowDown: () => go((current.children || []).find((node) => drawn.has(node))),
      ArrowUp: () => go(current.parent),
      ArrowLeft: () => go(beside(current, -1)),
      ArrowRight: () => go(beside(current, 1)),
      Home: () => go(root),
      Enter: () => open(current),
      ' ': () => open(current),
      Escape: () => { focus = focus.parent || root; current = focus; draw(true); },
    }[event.key];
    if (!to) return;
    event.preventDefault();
    to();
  });
  draw(false);
};
