// The progress of a bulk job, live: by the socket, and by asking every two seconds where that does not come through.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const panel = document.getElementById("bulk-progress");
  if (!panel) return;

  const POLL_MS = 2000;
  const LONGEST_WAIT_MS = 15000;
  const ENDED = new Set(["COMPLETED", "PARTIAL_FAILURE", "FAILED", "CANCELLED"]);
  const initially = panel.querySelector('[data-show="state"]').dataset.state;
  const number = new Intl.NumberFormat("en");
  let polling = null;
  let wait = 500;

  const put = (name, text) => { panel.querySelector(`[data-show="${name}"]`).textContent = text; };

  const duration = (seconds) => {
    if (seconds === null || seconds === undefined) return "–";
    if (seconds < 60) return `${Math.ceil(seconds)} s`;
    if (seconds < 3600) return `${Math.ceil(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  };

  const note = (told) => {
    if (told.error_text) return told.error_text;
    if (told.cancel_requested && !ENDED.has(told.state)) return "It is being cancelled; sends under way end.";
    if (told.state === "INGESTING") return `The file is read: ${Math.floor(told.read_share * 100)} %.`;
    if (told.held && told.state !== "PAUSED") return "It waits for a start once its rows are read.";
    return "";
  };

  const show = (told) => {
    const state = panel.querySelector('[data-show="state"]');
    state.textContent = told.state;
    state.dataset.state = told.state;
    for (const name of ["total", "succeeded", "failed", "invalid", "cancelled"]) put(name, number.format(told[name]));
    put("rate", told.rate_per_s ? `${number.format(told.rate_per_s)} /s` : "–");
    put("left", told.left === 0 && told.total_known ? "none" : duration(told.seconds_left));
    put("note", note(told));
    const share = (count) => (told.total ? (100 * count) / told.total : 0);
    const other = told.invalid + told.cancelled;
    for (const [name, count] of [["succeeded", told.succeeded], ["failed", told.failed], ["other", other]]) {
      panel.querySelector(`[data-bar="${name}"]`).style.width = `${share(count)}%`;
    }
    const done = told.total_known ? share(told.succeeded + told.failed + other) : 0;
    panel.querySelector('[role="progressbar"]').setAttribute("aria-valuenow", String(Math.round(done)));
    panel.querySelector("[data-results]").hidden = !told.results;
    // What may be done changes with the end: the page as a whole tells it anew.
    if (ENDED.has(told.state) && !ENDED.has(initially)) {
      window.location.reload();
      return false;
    }
    return !ENDED.has(told.state);
  };

  const poll = async () => {
    try {
      const answer = await fetch(panel.dataset.poll, { credentials: "same-origin" });
      if (answer.ok && !show(await answer.json())) stopPolling();
    } catch { put("live", "the site does not answer; it is asked again"); }
  };
  const startPolling = () => {
    if (polling !== null) return;
    polling = window.setInterval(poll, POLL_MS);
    poll();
  };
  const stopPolling = () => {
    window.clearInterval(polling);
    polling = null;
  };

  const watch = () => {
    const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${window.location.host}${panel.dataset.socket}`);
    socket.addEventListener("open", () => { put("live", "live"); wait = 500; stopPolling(); });
    socket.addEventListener("message", (event) => { show(JSON.parse(event.data)); });
    socket.addEventListener("close", (event) => {
      if (event.code === 1000 || event.code >= 4400) {
        put("live", event.code === 1000 ? "" : "not live");
        return;
      }
      put("live", "asked every two seconds");
      startPolling();
      window.setTimeout(watch, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    });
  };

  if (ENDED.has(initially)) {
    poll();
    return;
  }
  watch();
});
