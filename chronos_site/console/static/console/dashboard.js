// The first page, live: asks for everything every five seconds while somebody looks, and draws what is told.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const board = document.getElementById("dashboard");
  if (!board) return;

  const EVERY_MS = 5000;
  const LATE_MS = 15000;
  const byId = (id) => document.getElementById(id);
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
  const charts = {};
  let held = false;
  let told_at = null;
  let timer = null;

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const seconds = (value) => {
    if (value === null || value === undefined) return "–";
    if (value < 60) return `${whole.format(value)} s`;
    if (value < 3600) return `${whole.format(value / 60)} min`;
    return `${short.format(value / 3600)} h`;
  };

  // Cells are texts, numbers, or {text, href, bad}. A table without rows hides its section.
  const table = (id, heads, rows) => {
    const place = byId(id);
    const section = place.closest("section");
    if (section) section.hidden = !rows || rows.length === 0;
    if (!rows) return;
    const head = element("thead");
    const line = element("tr");
    heads.forEach((title, index) => {
      const cell = element("th", title, rows.length && typeof rows[0][index] === "number" ? "number" : "");
      cell.scope = "col";
      line.append(cell);
    });
    head.append(line);
    const body = element("tbody");
    for (const row of rows) {
      const drawn = element("tr");
      for (const cell of row) {
        if (cell !== null && typeof cell === "object") {
          const made = element("td", cell.href ? null : cell.text, cell.bad ? "bad" : "");
          if (cell.href) {
            const link = element("a", cell.text);
            link.href = cell.href;
            made.append(link);
          }
          drawn.append(made);
        } else if (typeof cell === "number") {
          drawn.append(element("td", short.format(cell), "number"));
        } else {
          drawn.append(element("td", cell ?? "–"));
        }
      }
      body.append(drawn);
    }
    place.replaceChildren(head, body);
  };

  const chart = (id, type, labels, sets, stacked) => {
    const colour = getComputedStyle(board).getPropertyValue("--soft").trim();
    const grid = getComputedStyle(board).getPropertyValue("--line").trim();
    const datasets = sets.map((set) => ({
      label: set.label, data: set.data, backgroundColor: set.colour, borderColor: set.colour,
      borderWidth: type === "line" ? 2 : 0, pointRadius: type === "line" ? 2 : 0, spanGaps: false, tension: 0.2,
    }));
    const axis = (extra) => ({ stacked, ticks: { color: colour, maxTicksLimit: 7 }, grid: { color: grid }, ...extra });
    const options = {
      animation: false, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
      plugins: { legend: { display: true, labels: { color: colour, boxWidth: 12 } }, tooltip: { enabled: true } },
      scales: { x: axis({ grid: { display: false } }), y: axis({ beginAtZero: true, ticks: { color: colour, precision: 0, maxTicksLimit: 6 } }) },
    };
    if (!charts[id]) {
      charts[id] = new window.Chart(byId(id), { type, data: { labels, datasets }, options });
      return;
    }
    charts[id].data.labels = labels;
    charts[id].data.datasets = datasets;
    charts[id].options = options;
    charts[id].update();
  };

  const capped = (count) => (count >= 100000 ? `${whole.format(count)}+` : whole.format(count));

  const tiles = (work) => {
    const all = [
      ["Oldest overdue", seconds(work.oldest_late_s), work.oldest_late_s !== null],
      ["Overdue", capped(work.overdue), work.overdue > 0],
      ["Running", capped(work.running), false],
      ["Queued", capped(work.queued), false],
      ["Waiting for a retry", capped(work.retrying), false],
      ["Delivered, last minute", capped(work.delivered_last_minute), false],
      ["Failed, last minute", capped(work.failed_last_minute), work.failed_last_minute > 0],
      ["Open dead letters", capped(work.dead_letters), work.dead_letters > 0],
    ];
    byId("tiles").replaceChildren(...all.map(([label, value, bad]) => {
      const tile = element("li", null, bad ? "bad" : "");
      tile.append(element("b", value), element("span", label));
      return tile;
    }));
  };

  const alarms = (told) => {
    const all = Object.entries(told.away).map(([name, why]) => `${name} cannot be asked: ${why}`);
    for (const leader of told.leaders ?? []) {
      if (!leader.held) all.push(`Nobody leads the loop "${leader.loop}": is a beat running?`);
    }
    const shown = [...byId("alarms").children].map((one) => one.textContent);
    if (shown.join("\n") === all.join("\n")) return;
    byId("alarms").replaceChildren(...all.map((text) => element("p", text, "board-alarm")));
  };

  const curves = (told) => {
    if (told.ahead) {
      const minutes = told.ahead.minutes;
      const labels = minutes.map((one) => clock.format(new Date(one.at)));
      chart("chart-ahead", "bar", labels, [
        { label: "waiting", data: minutes.map((one) => one.pending), colour: "#7c3aed" },
        { label: "expected of schedules", data: minutes.map((one) => one.expected), colour: "#c4b5fd" },
      ], true);
      table("table-ahead", ["Minute (UTC)", "Waiting", "Expected"],
        minutes.map((one, index) => [labels[index], one.pending, one.expected]));
    }
    if (told.minutes) {
      const known = told.minutes;
      const labels = known.map((one) => clock.format(new Date(one.at)));
      const of = (name) => known.map((one) => (one.counted ? one[name] : null));
      chart("chart-ended", "bar", labels, [
        { label: "delivered", data: of("delivered"), colour: "#16a34a" },
        { label: "failed", data: of("failed"), colour: "#dc2626" },
      ], true);
      chart("chart-late", "line", labels, [
        { label: "p50", data: of("late_p50_ms"), colour: "#2563eb" },
        { label: "p99", data: of("late_p99_ms"), colour: "#d97706" },
      ], false);
      const newest = known.map((one, index) => [labels[index], one]).reverse();
      table("table-ended", ["Minute (UTC)", "Delivered", "Failed"], newest.map(([at, one]) => [at, one.delivered, one.failed]));
      table("table-late", ["Minute (UTC)", "p50 ms", "p99 ms"], newest.map(([at, one]) => [at, one.late_p50_ms, one.late_p99_ms]));
    }
  };

  const parts = (told) => {
    table("table-switches", ["What", "Since", "By", "Why", "Waiting"], (told.switches ?? []).map((one) => [
      { text: one.scope === "global" ? "everything" : `${one.scope} ${one.name ?? one.value}`, bad: true }, one.at.slice(0, 19).replace("T", " "), one.by, one.reason, one.waiting]));
    table("table-worst", ["Job", "Workspace", "Failed", "Open", "Error"], (told.worst_jobs ?? []).map((one) => [
      one.job ?? "inline targets", one.workspace, one.failed, one.open, one.error]));
    table("table-bulk", ["File", "Workspace", "State", "Ended", "Of", "Per second"], (told.bulk_jobs ?? []).map((one) => [
      { text: one.file, href: one.page }, one.workspace, one.state, one.ended, one.total, one.rate_per_s]));
    table("table-breakers", ["Destination", "State", "Failures"], (told.breakers ?? []).map((one) => [
      one.origin, { text: one.state, bad: one.state === "open" }, one.failures]));
    table("table-workers", ["Worker", "Queue", "State", "In flight", "Per second", "Heard of"], (told.workers ?? []).map((one) => [
      one.name, one.queue, { text: one.state, bad: one.state === "stale" }, one.in_flight, one.rate_per_s, seconds(one.heartbeat_age_s)]));
    table("table-queues", ["Queue", "Messages"], (told.queues ?? []).map((one) => [one.queue, one.messages]));
    table("table-leaders", ["Loop", "Led", "Elections"], (told.leaders ?? []).map((one) => [
      one.loop, { text: one.held ? "yes" : "nobody", bad: !one.held }, one.epoch]));
  };

  const say = () => {
    const age = told_at === null ? null : Date.now() - told_at;
    if (age === null) return;
    const still = held ? "held still, " : "";
    byId("told").textContent = age > LATE_MS && !held ? `the site does not answer; shown is what it told ${seconds(age / 1000)} ago` : `${still}as of ${new Date(told_at).toISOString().slice(11, 19)} UTC`;
  };

  const ask = async () => {
    window.clearTimeout(timer);
    if (held || document.hidden) return;
    try {
      const answer = await fetch(board.dataset.source, { credentials: "same-origin", signal: AbortSignal.timeout(LATE_MS) });
      if (answer.redirected || answer.status === 403) { window.location.reload(); return; }
      if (answer.ok) {
        const told = await answer.json();
        told_at = Date.now();
        if (told.work) tiles(told.work);
        alarms(told);
        byId("flower").hidden = !told.flower;
        if (told.flower) byId("flower").href = told.flower;
        curves(told);
        parts(told);
      }
    } catch (error) {
      if (!(error instanceof TypeError || error.name === "TimeoutError" || error.name === "AbortError")) throw error;
    } finally {
      say();
      window.clearTimeout(timer);
      timer = window.setTimeout(ask, EVERY_MS);
    }
  };

  byId("hold").addEventListener("click", (event) => {
    held = !held;
    event.currentTarget.setAttribute("aria-pressed", String(held));
    say();
    ask();
  });
  document.addEventListener("visibilitychange", ask);
  ask();
});
