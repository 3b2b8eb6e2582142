// Light, dark, or as the system says; charts on canvas are drawn again.
qj.redraw = []; // what to call when colours change

(() => {
  const root = document.documentElement;
  const button = document.getElementById('theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  const choices = ['system', 'light', 'dark'];
  let chosen = 0;

  const apply = (theme) => {
    const dark = theme === 'dark' || (theme === 'system' && system.matches);
    root.dataset.theme = dark ? 'dark' : 'light';
    qj.redraw.forEach((draw) => draw());
  };
  qj.nextTheme = () => {
    chosen = (chosen + 1) % choices.length;
    button.textContent = `Theme: ${choices[chosen]}`;
    apply(choices[chosen]);
  };
  button.addEventListener('click', qj.nextTheme);
  system.addEventListener('change', () => apply(choices[chosen]));
  addEventListener('beforeprint', () => apply('light'));
  addEventListener('afterprint', () => apply(choices[chosen]));
  apply('system');
})();

/** A colour of the style sheet, for canvases. */
qj.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
