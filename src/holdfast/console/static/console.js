/* What pages do beyond links and forms: live figures, charts, the theme, keys, a question before harm. */
"use strict";
(() => {
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const number = (value) => Number(value || 0).toLocaleString("en");

  // The theme: the system's, unless somebody has chosen.
  const chosen = localStorage.getItem("theme");
  if (chosen) root.dataset.theme = chosen;
  const flip = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    charts.forEach((each) => each.again());
  };
  document.getElementById("theme").addEventListener("click", flip);

  // A chart of some lines over time.
  const charts = [];
  class Lines {
    constructor(place, names) {
      this.place = place; this.names = names; this.data = [[], ...names.map(() => [])];
      this.again(); charts.push(this);
      new ResizeObserver(() => this.plot.setSize({width: place.clientWidth, height: 200})).observe(place);
    }
    again() {
      if (this.plot) this.plot.destroy();
      const colours = [css("--mark"), css("--good"), css("--warn")];
      const axis = {stroke: css("--soft"), grid: {stroke: css("--line"), width: 1}, ticks: {stroke: css("--line")}};
      this.plot = new uPlot({width: this.place.clientWidth || 400, height: 200, axes: [axis, {...axis, size: 60}],
        series: [{}, ...this.names.map((name, i) => ({label: name, stroke: colours[i], width: 2, points: {show: false}}))],
        scales: {y: {range: (u, low, high) => [0, Math.max(1, high * 1.05)]}}}, this.data, this.place);
    }
    show(data) { this.data = data; this.plot.setData(data); }
    push(time, values) {
      this.data[0].push(time); values.forEach((value, i) => this.data[i + 1].push(value));
      if (this.data[0].length > 300) this.data.forEach((column) => column.shift());
      this.plot.setData(this.data);
    }
  }

  const live = document.querySelectorAll("[data-live]");
  if (live.length) {
    const rates = document.querySelector('[data-chart="rates"]'), backlog = document.querySelector('[data-chart="backlog"]');
    const perSecond = rates && new Lines(rates, ["added", "handed out"]), held = backlog && new Lines(backlog, ["queued", "with workers"]);
    const show = (figures) => {
      if (figures.error) return;
      const rows = new Map(figures.queues.map((row) => [row.name, row]));
      live.forEach((part) => {
        const only = part.dataset.only, source = only !== undefined ? rows.get(only) || {} : figures.totals || {};
        part.querySelectorAll("[data-total]").forEach((each) => { each.textContent = number(source[each.dataset.total]); });
        part.querySelectorAll("tr[data-queue]").forEach((line) => {
          const row = rows.get(line.dataset.queue);
          if (row) line.querySelectorAll("[data-field]").forEach((cell) => { cell.textContent = number(row[cell.dataset.field]); });
        });
      });
      document.querySelectorAll("tr[data-queue]").forEach((line) => {
        const row = rows.get(line.dataset.queue);
        if (row) line.querySelectorAll("[data-field]").forEach((cell) => { cell.textContent = number(row[cell.dataset.field]); });
      });
      const sums = figures.totals || {};
      if (perSecond) perSecond.push(figures.time, [sums["in-per-second"], sums["out-per-second"]]);
      if (held) held.push(figures.time, [sums.len, sums.out]);
    };
    let source = null;
    const open = () => { if (!source) { source = new EventSource("/console/events"); source.addEventListener("figures", (event) => show(JSON.parse(event.data))); } };
    const close = () => { if (source) { source.close(); source = null; } };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    open();
  }

  const past = document.querySelector("[data-history]");
  if (past) fetch(past.dataset.history).then((answer) => answer.json()).then((rows) => {
    const draw = (name, labels, columns) => new Lines(document.querySelector(`[data-chart="${name}"]`), labels).show([rows.time, ...columns]);
    draw("past-rates", ["added", "done"], [rows.added || [], rows.done || []]);
    draw("past-waits", ["seconds"], [rows.wait || []]);
    draw("past-backlog", ["jobs"], [rows.backlog || []]);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-ask]");
    if (button && !confirm(button.dataset.ask)) event.preventDefault();
  });
  const every = document.getElementById("every");
  if (every) every.addEventListener("change", () => document.querySelectorAll('#rows input[name="id"]').forEach((box) => { box.checked = every.checked; }));

  // Keys.
  const places = {d: "", q: "queues", j: "jobs", w: "workers", c: "cluster", x: "dead", s: "scheduled", h: "history"};
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (Date.now() - going < 1000 && event.key in places) { location.href = "/console/" + places[event.key]; return; }
    if (event.key === "g") going = Date.now();
    else if (event.key === "/") { const box = document.getElementById("filter"); if (box) { event.preventDefault(); box.focus(); } }
    else if (event.key === "t") flip();
    else if (event.key === "?") document.getElementById("keys").showModal();
  });
})();
