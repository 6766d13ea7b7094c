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
  // Times are those of who looks, and say of which zone; without this script they are UTC, and say that.
  const zone = (when) => new Intl.DateTimeFormat("en-GB", {timeZoneName: "short"}).formatToParts(when)
    .find((part) => part.type === "timeZoneName").value;
  const local = (part) => part.querySelectorAll("time[datetime]").forEach((place) => {
    const when = new Date(place.dateTime);
    place.title = place.textContent;
    place.textContent = `${when.toLocaleDateString("sv")} ${when.toTimeString().slice(0, 8)} ${zone(when)}`;
  });
  local(document);
  const put = (place, value) => { place.textContent = (place.dataset.as === "span" ? span : number)(value); };

  // The theme: the system's, unless somebody has chosen (theme.js).
  const flip = () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    charts.forEach((each) => each.again());
  };
  document.getElementById("theme").addEventListener("click", flip);

  const charts = window.holdfastCharts = [];  // tests look at what is drawn
  // A chart of some lines over time. `seconds`: it shows so many up to now, and grows from the right; without them all
  // there is. Where there is no value (null) there is a gap.
  const HEIGHT = 220, SPARSE = 30, DAY_S = 86400, LONE_S = 600, COMPACT = new Intl.NumberFormat("en", {notation: "compact"});
  class Lines {
    constructor(place, names, seconds) {
      this.place = place; this.names = names; this.seconds = seconds; this.data = [[], ...names.map(() => [])];
      this.again(); charts.push(this);
      new ResizeObserver(() => this.plot.setSize({width: place.clientWidth, height: HEIGHT})).observe(place);
    }
    again() {
      if (this.plot) this.plot.destroy();
      const latest = this.data[0].length ? new Date(this.data[0].at(-1) * 1000) : new Date();
      const colours = [css("--mark"), css("--warn"), css("--good")], withSeconds = this.seconds && this.seconds < DAY_S, isClose = this.seconds && this.seconds < HOUR_S;
      // 100,000 is as wide as the axis, and a million wider.
      const short = (_, ticks) => ticks.map(each => each === null ? null : COMPACT.format(each));
      const axis = {stroke: css("--soft"), grid: {stroke: css("--line"), width: 1}, ticks: {stroke: css("--line"), size: 4}};
      const clock = (u, splits) => splits.map((at) => {
        const when = new Date(at * 1000), text = when.toTimeString().slice(0, isClose ? 8 : 5);
        return text.startsWith("00:00") && !text.slice(5).replace(":00", "") ? when.toLocaleDateString("sv") : text;
      });
      const scales = {y: {range: (u, low, high) => [0, Math.max(1, high * 1.1)]}};
      scales.x = {range: (u, low, high) => (this.seconds ? [high - this.seconds, high]
        : low === null ? [Date.now() / 1000 - LONE_S, Date.now() / 1000] : high - low < LONE_S ? [low - LONE_S, high + LONE_S] : [low, high])};
      this.plot = new uPlot({
        width: this.place.clientWidth || 400, height: HEIGHT, scales, cursor: {points: {size: 6}},
        axes: [{...axis, values: clock, space: 90, size: 30}, {...axis, size: 52, values: short}],
        series: [{label: `Time, ${zone(latest)}`, value: withSeconds ? "{HH}:{mm}:{ss}" : "{YYYY}-{MM}-{DD} {HH}:{mm}"}, ...this.names.map((name, i) => (
          {label: name, stroke: colours[i], width: 2, fill: i === 0 ? colours[0] + "22" : undefined, points: {show: this.data[0].length < SPARSE, size: 6}}))],
      }, this.drawn(), this.place);
    }
    // A single point has nothing around it: uPlot would show the years before and after.
    drawn() {
      if (this.data[0].length !== 1) return this.data;
      const at = this.data[0][0];
      return [[at - LONE_S, at, at + (this.seconds ? 0.001 : LONE_S)], ...this.data.slice(1).map(([value]) => [null, value, null])];
    }
    show(data, seconds = this.seconds) { this.data = data; this.seconds = seconds; this.again(); }
    push(time, values, most) {
      const before = this.data[0].at(-1);
      if (before && time - before > GAP_S) { this.data[0].push(before + 1); values.forEach((_, i) => this.data[i + 1].push(null)); }
      this.data[0].push(time); values.forEach((value, i) => this.data[i + 1].push(value || 0));
      while (this.data[0][0] < time - most) this.data.forEach((column) => column.shift());
      this.plot.setData(this.drawn());
    }
  }
  const chart = (name, labels, seconds) => {
    const place = document.querySelector(`[data-chart="${name}"]`);
    return place && window.uPlot ? new Lines(place, labels, seconds) : null;
  };

  // The last hour and the last day, as the nodes remember them; what comes after that is pushed (live, below).
  const GAP_S = 5, HOUR_S = 3600, MINUTE_MS = 60_000, CHARTS = [
    ["rates", ["added", "handed out"], ["added", "handed-out"], ["in-per-second", "out-per-second"]],
    ["backlog", ["queued", "with workers", "delayed"], ["len", "out", "delayed"], ["len", "out", "delayed"]],
    ["waits", ["longest"], ["oldest-age"], ["oldest-age"]],
  ];
  const remembered = document.querySelector("[data-past]");
  class Remembered {
    constructor(place) {
      this.place = place; this.range = HOUR_S; this.latest = 0; this.heardMs = 0; this.isLoading = false; this.waiting = [];
      this.charts = CHARTS.map(([name, labels, columns, fields]) => ({lines: chart(name, labels, this.range), columns, fields}));
      place.querySelectorAll("[data-range]").forEach((button) => button.addEventListener("click", () => {
        this.range = Number(button.dataset.range);
        place.querySelectorAll("[data-range]").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
        this.load();
      }));
      setInterval(() => { if (this.range === DAY_S && !document.hidden) this.load(); }, MINUTE_MS);
      this.load();
    }
    load() {
      const range = this.range;
      this.isLoading = true;
      fetch(`${this.place.dataset.past}&step=${range === DAY_S ? "minute" : "second"}`).then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status))).then((rows) => {
        if (range !== this.range) return;
        this.isLoading = false;
        this.latest = rows.time.at(-1) || 0;
        this.charts.forEach(({lines, columns}) => { if (lines) lines.show([[...rows.time], ...columns.map((name) => [...(rows[name] || [])])], range); });
        this.waiting.splice(0).forEach(([time, figures]) => this.push(time, figures));
        this.note(rows.notes || []);
        this.place.dataset.ready = String(range);
      }).catch(() => { this.isLoading = false; });
    }
    note(notes) {
      const at = (seconds) => { const when = new Date(seconds * 1000); return `${when.toTimeString().slice(0, 8)} ${zone(when)}`; };
      this.place.querySelector("[data-notes]").textContent = notes.map((each) => (each.until ? `Until ${at(each.until)}: ` : "") + each.words).join(" ");
    }
    push(time, figures) {
      // By our own clock: that of the gateway and those of the nodes may differ.
      const missed = this.heardMs && Date.now() - this.heardMs > GAP_S * 1000;
      this.heardMs = Date.now();
      if (this.range === DAY_S) return;
      if (missed) this.load();  // nobody looked, or the gateway was away: the nodes know
      if (this.isLoading) { this.waiting.push([time, figures]); return; }
      if (time < this.latest + 1) return;
      this.latest = time;
      this.charts.forEach(({lines, fields}) => { if (lines) lines.push(time, fields.map((name) => figures[name]), HOUR_S); });
    }
  }
  const memory = remembered && window.uPlot ? new Remembered(remembered) : null;

  // What is wrong now, every few seconds, but not under somebody's hand.
  const WRONG_MS = 5000;
  const wrong = () => document.querySelector("[data-problems]");
  if (wrong()) setInterval(() => {
    if (document.hidden) return;
    fetch(wrong().dataset.problems).then((answer) => (answer.ok ? answer.text() : Promise.reject(answer.status))).then((text) => {
      const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("[data-problems]"), old = wrong();
      if (!fresh || old.contains(document.activeElement)) return;
      local(fresh);
      if (fresh.innerHTML !== old.innerHTML) old.replaceWith(fresh);
    }).catch(() => {});
  }, WRONG_MS);

  // The list of queues: what came up since the page was made is added, what went is taken out. The order stays, so that
  // nothing jumps away under the hand.
  const key = (row) => row.key ?? row.name;  // as pages write a name (names.py)
  const ranking = (by) => {  // as data.py ranks
    const column = by.replace(/^-/, ""), turn = by === column ? 1 : -1, byName = (a, b) => (a.name < b.name ? -1 : 1);
    if (column === "name") return (a, b) => turn * byName(a, b);
    const of = (row, name) => Number(row[name] || 0);
    const figures = (row) => (column === "busy" ? [of(row, "in-per-second") + of(row, "out-per-second"), of(row, "len"), of(row, "oldest-age")] : [of(row, column)]);
    return (a, b) => {
      const [mine, others] = [figures(a), figures(b)], at = mine.findIndex((each, i) => each !== others[i]);
      return at < 0 ? byName(a, b) : turn * (others[at] - mine[at]);
    };
  };
  const list = (queues) => {
    const body = document.querySelector("[data-rows]"), blank = document.getElementById("new-row");
    if (!body) return;
    const {first, most, find, by} = body.dataset, from = Number(first);
    const fitting = queues.filter((row) => [row.name, row.shown || ""].some((each) => each.toLowerCase().includes(find.toLowerCase())));
    document.querySelectorAll("[data-count]").forEach((each) => put(each, fitting.length));
    fitting.sort(ranking(by));
    const wanted = new Map(fitting.slice(from, from + Number(most)).map((row) => [key(row), row]));
    if (!wanted.size) return;
    body.querySelectorAll("tr").forEach((line) => { if (!wanted.delete(line.dataset.queue)) line.remove(); });
    wanted.forEach((row, name) => {
      const line = blank.content.firstElementChild.cloneNode(true), link = line.querySelector("a");
      line.dataset.queue = name;
      link.href = `/console/queue?name=${encodeURIComponent(name)}`;
      link.title = link.firstElementChild.textContent = row.shown || name;
      link.firstElementChild.className = row.shown && row.shown !== row.name ? "odd" : "";
      body.append(line);
    });
  };

  let stripShown = "";
  const strip = (nodes) => {
    const place = document.querySelector("[data-nodes]"), now = JSON.stringify(nodes);
    if (!place || now === stripShown) return;
    stripShown = now;
    place.replaceChildren(...nodes.map((node) => {
      const item = document.createElement("li"), link = document.createElement("a"), pill = document.createElement("span");
      item.className = pill.textContent = node.state; pill.className = "pill";
      link.href = "/console/cluster"; link.textContent = node.name;
      item.append(link, ` ${node.where} `, pill);
      return item;
    }));
  };

  // Live figures, while the page is looked at.
  const STALE_MS = 5000;
  const live = document.querySelectorAll("[data-live]");
  if (live.length) {
    const away = document.getElementById("away"), NOTHING = "no figures: the gateway or its nodes do not answer";
    const say = (words) => { away.textContent = words; away.hidden = !words; };
    const without = (names) => (names.length ? `without ${names.length > 1 ? "nodes" : "node"} ${names.join(", ")} (away)` : "");
    let heard = Date.now();
    const show = (figures) => {
      heard = Date.now();
      say(figures.error ? NOTHING : without(figures.silent || []));
      if (figures.error) return;
      list(figures.queues); strip(figures.nodes || []);
      const rows = new Map(figures.queues.map((row) => [key(row), row])), sums = figures.totals;
      live.forEach((part) => {
        const source = part.dataset.only !== undefined ? rows.get(part.dataset.only) || {} : sums;
        part.querySelectorAll("[data-total]").forEach((each) => put(each, source[each.dataset.total]));
      });
      document.querySelectorAll("tr[data-queue]").forEach((line) => {
        const row = rows.get(line.dataset.queue);
        if (row) line.querySelectorAll("[data-field]").forEach((cell) => put(cell, row[cell.dataset.field]));
      });
      const only = [...live].find((part) => part.dataset.only !== undefined);
      if (memory) memory.push(Math.floor(figures.time), only ? rows.get(only.dataset.only) || {} : sums);
    };
    let source = null;
    const open = () => {
      if (source) return;
      heard = Date.now();
      source = new EventSource("/console/events");
      source.addEventListener("figures", (event) => show(JSON.parse(event.data)));
      source.addEventListener("error", () => say(NOTHING));
    };
    const close = () => { if (source) { source.close(); source = null; } };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    window.addEventListener("pagehide", close);
    setInterval(() => { if (source && Date.now() - heard > STALE_MS) say(NOTHING); }, 1000);
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
    if (!button) return;
    let question = button.dataset.ask;
    if (question.includes("{}")) {  // about the jobs that were ticked; the gateway asks about all that match, or says there are none
      const count = button.form.querySelectorAll('input[name="id"]:checked').length;
      if (!count || button.form.querySelector('input[name="all"]:checked')) return;
      question = question.replace("{}", `${number(count)} ${count === 1 ? "job" : "jobs"}`);
    }
    if (!confirm(question)) event.preventDefault();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-every]")) event.target.form.querySelectorAll('input[name="id"]').forEach((box) => { box.checked = event.target.checked; });
  });

  // Enter on a tick would press the first button of its form, whatever that does.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("form[method=post] input[type=checkbox]")) event.preventDefault();
  });

  // On a phone the menu is wider than the screen: where we are is in sight.
  const here = document.querySelector("header nav [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;

  // Keys.
  const keys = document.getElementById("keys");
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  const places = {d: "", q: "queues", j: "jobs", e: "ended", w: "workers", s: "scheduled", x: "dead", l: "limits", c: "cluster", h: "history", a: "add"};
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (Date.now() - going < 1000 && event.key in places) {  // a page that is in the menu: others are not for this user
      const link = document.querySelector(`header nav a[href="/console/${places[event.key]}"]`);
      if (link) link.click();
      return;
    }
    if (event.key === "g") going = Date.now();
    else if (event.key === "/") { const box = document.getElementById("filter"); if (box) { event.preventDefault(); box.focus(); } }
    else if (event.key === "t") flip();
    else if (event.key === "?") keys.showModal();
  });
})();
