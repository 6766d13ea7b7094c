/* What pages do beyond links and forms: live figures, charts, the theme, keys, a question before harm. */
"use strict";
(() => {
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const number = (value) => Number(value || 0).toLocaleString("en");
  const span = (seconds) => {
    let left = Math.floor(Number(seconds || 0));
    if (left < 60) return `${left} s`;
    for (const [unit, size, smaller, small] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
      if (left >= size) {
        const rest = Math.floor((left % size) / small);
        return `${Math.floor(left / size)} ${unit}` + (rest ? ` ${rest} ${smaller}` : "");
      }
    }
  };
  const put = (place, value) => { place.textContent = (place.dataset.as === "span" ? span : number)(value); };

  // The theme: the system's, unless somebody has chosen (theme.js).
  const flip = () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    charts.forEach((each) => each.again());
  };
  document.getElementById("theme").addEventListener("click", flip);

  // A chart of some lines over time. `seconds`: it shows so many up to now, and grows from the right.
  const charts = [];
  const HEIGHT = 220, POINTS = 300;
  class Lines {
    constructor(place, names, seconds) {
      this.place = place; this.names = names; this.seconds = seconds; this.data = [[], ...names.map(() => [])];
      this.again(); charts.push(this);
      new ResizeObserver(() => this.plot.setSize({width: place.clientWidth, height: HEIGHT})).observe(place);
    }
    again() {
      if (this.plot) this.plot.destroy();
      const colours = [css("--mark"), css("--warn"), css("--good")];
      const axis = {stroke: css("--soft"), grid: {stroke: css("--line"), width: 1}, ticks: {stroke: css("--line"), size: 4}};
      const clock = (u, splits) => splits.map((at) => new Date(at * 1000).toTimeString().slice(0, this.seconds ? 8 : 5));
      const scales = {y: {range: (u, low, high) => [0, Math.max(1, high * 1.1)]}};
      if (this.seconds) scales.x = {range: (u, low, high) => [high - this.seconds, high]};
      this.plot = new uPlot({
        width: this.place.clientWidth || 400, height: HEIGHT, scales, cursor: {points: {size: 6}},
        axes: [{...axis, ...(this.seconds ? {values: clock, space: 90, size: 30} : {size: 46})}, {...axis, size: 52}],
        series: [{value: "{HH}:{mm}:{ss}"}, ...this.names.map((name, i) => (
          {label: name, stroke: colours[i], width: 2, fill: i === 0 ? colours[0] + "22" : undefined, points: {show: false}}))],
      }, this.data, this.place);
    }
    show(data) { this.data = data; this.plot.setData(data); }
    push(time, values) {
      this.data[0].push(time); values.forEach((value, i) => this.data[i + 1].push(value || 0));
      if (this.data[0].length > POINTS) this.data.forEach((column) => column.shift());
      this.plot.setData(this.data);
    }
  }
  const chart = (name, labels, seconds) => {
    const place = document.querySelector(`[data-chart="${name}"]`);
    return place && window.uPlot ? new Lines(place, labels, seconds) : null;
  };

  // Live figures, while the page is looked at.
  const live = document.querySelectorAll("[data-live]");
  if (live.length) {
    const away = document.getElementById("away");
    const rates = chart("rates", ["added", "handed out"], 180), waits = chart("waits", ["longest"], 180);
    const backlog = chart("backlog", ["queued", "with workers", "delayed"], 180);
    const show = (figures) => {
      away.hidden = !figures.error;
      if (figures.error) return;
      const rows = new Map(figures.queues.map((row) => [row.name, row])), sums = figures.totals;
      live.forEach((part) => {
        const source = part.dataset.only !== undefined ? rows.get(part.dataset.only) || {} : sums;
        part.querySelectorAll("[data-total]").forEach((each) => put(each, source[each.dataset.total]));
      });
      document.querySelectorAll("tr[data-queue]").forEach((line) => {
        const row = rows.get(line.dataset.queue);
        if (row) line.querySelectorAll("[data-field]").forEach((cell) => put(cell, row[cell.dataset.field]));
      });
      if (rates) rates.push(figures.time, [sums["in-per-second"], sums["out-per-second"]]);
      if (backlog) backlog.push(figures.time, [sums.len, sums.out, sums.delayed]);
      if (waits) waits.push(figures.time, [sums["oldest-age"]]);
    };
    let source = null;
    const open = () => {
      if (source) return;
      source = new EventSource("/console/events");
      source.addEventListener("figures", (event) => show(JSON.parse(event.data)));
      source.addEventListener("error", () => { away.hidden = false; });
    };
    const close = () => { if (source) { source.close(); source = null; } };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    window.addEventListener("pagehide", close);
    open();
  }

  const past = document.querySelector("[data-history]");
  if (past) fetch(past.dataset.history).then((answer) => answer.json()).then((rows) => {
    const draw = (name, labels, columns) => { const made = chart(name, labels); if (made) made.show([rows.time, ...columns]); };
    draw("past-rates", ["added", "done"], [rows.added || [], rows.done || []]);
    draw("past-waits", ["seconds"], [rows.wait || []]);
    draw("past-backlog", ["jobs"], [rows.backlog || []]);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-ask]");
    if (button && !confirm(button.dataset.ask)) event.preventDefault();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-every]")) event.target.form.querySelectorAll('input[name="id"]').forEach((box) => { box.checked = event.target.checked; });
  });

  // Keys.
  const keys = document.getElementById("keys");
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  const places = {d: "", q: "queues", j: "jobs", w: "workers", s: "scheduled", x: "dead", l: "limits", c: "cluster", h: "history", a: "add"};
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (Date.now() - going < 1000 && event.key in places) { location.href = "/console/" + places[event.key]; return; }
    if (event.key === "g") going = Date.now();
    else if (event.key === "/") { const box = document.getElementById("filter"); if (box) { event.preventDefault(); box.focus(); } }
    else if (event.key === "t") flip();
    else if (event.key === "?") keys.showModal();
  });
})();
