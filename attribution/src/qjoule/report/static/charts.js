// Charts by uPlot in the page's colours, that resize, are reached by keys, and are drawn again.

/**
 * Puts a chart into `host`. `make` gives uPlot's options and data from the colours of now.
 * `say` gives the text of the point under the cursor, for who cannot see it.
 */
qj.chart = (host, { label, height, make, say }) => {
  let plot = null;
  const box = qj.el('div', { class: 'chart', role: 'img', tabindex: '0', 'aria-label': label });
  host.append(box);

  const draw = () => {
    if (!box.isConnected) return;
    const zoom = plot && plot.scales.x ? [plot.scales.x.min, plot.scales.x.max] : null;
    if (plot) plot.destroy();
    const { options, data } = make();
    const width = Math.max(box.clientWidth, 200);
    plot = new uPlot({ width, height, legend: { show: false }, ...options }, data, box);
    if (zoom && draw.zoomed) plot.setScale('x', { min: zoom[0], max: zoom[1] });
  };
  draw.zoomed = false;
  box.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !plot) return;
    event.preventDefault();
    const last = plot.data[0].length - 1;
    const index = Math.min(Math.max((plot.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
    plot.setCursor({ left: plot.valToPos(plot.data[0][index], 'x'), top: 10 });
    if (say) qj.say(say(index));
  });
  draw();
  new ResizeObserver(() => {
    const width = Math.max(box.clientWidth, 200);
    if (plot && Math.abs(plot.width - width) > 1) plot.setSize({ width, height });
  }).observe(box);
  const again = () => draw();
  qj.redraw.push(again);
  return {
    remove: () => {
      qj.redraw.splice(qj.redraw.indexOf(again), 1);
      if (plot) plot.destroy();
      box.remove();
    },
  };
};

/** An axis in the page's colours. */
qj.axis = (extra) => ({
  stroke: qj.colour('ink-soft'),
  grid: { stroke: qj.colour('grid'), width: 1 },
  ticks: { stroke: qj.colour('grid'), width: 1 },
  font: '12px system-ui, sans-serif',
  ...extra,
});

/** Values of steps for uPlot: the last value holds until the end. */
qj.steps = (values) => [...values, values.length ? values[values.length - 1] : null];

/** The time axis of a chart from 0 to `span_s`. */
qj.timeAxis = (span_s) => qj.axis({ size: 34, values: (_u, ticks) => ticks.map((s) => qj.time(s, span_s)) });
