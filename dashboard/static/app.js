// Keeps a page fresh: the light by events, regions marked data-live by loading the page
// again. Everything here works without it, only not by itself.
"use strict";

const stale = document.getElementById("stale");
const regions = () => document.querySelectorAll("[data-live]");
let loading = false;
let seen = 0; // ticks

// busy: somebody types, has something open or selects text in a region.
function busy(region) {
  if (region.contains(document.activeElement) && document.activeElement !== region) return true;
  if (region.querySelector("details[open]")) return true;
  const picked = window.getSelection();
  return Boolean(picked && !picked.isCollapsed && region.contains(picked.anchorNode));
}

async function refresh() {
  if (loading || document.hidden || !regions().length) return;
  loading = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Live": "1" }, cache: "no-store" });
    if (answer.redirected || !answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of regions()) {
      const now = old.id && page.getElementById(old.id);
      if (now && !busy(old) && now.innerHTML !== old.dataset.was) {
        const places = [...old.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
        old.dataset.was = now.innerHTML;
        old.replaceChildren(...now.childNodes);
        old.querySelectorAll(".scroll").forEach((e, i) => { if (places[i]) e.scrollLeft = places[i]; });
      }
    }
    count();
  } catch { /* the stream says when the proxy is gone */ } finally {
    loading = false;
  }
}

// count counts dates down. The words come from the server, the rest is numbers.
function count() {
  for (const t of document.querySelectorAll("time[data-until]")) {
    const left = Math.max(0, Math.round((new Date(t.dateTime) - Date.now()) / 1000));
    const h = Math.floor(left / 3600), m = Math.floor(left / 60) % 60, s = left % 60;
    t.textContent = h ? `${h}:${String(m).padStart(2, "0")}:${String(s).padStart(2, "0")}` : `${m}:${String(s).padStart(2, "0")}`;
  }
}

// slow regions say every how many ticks they are looked at: data-live="5".
function due() {
  let every = Infinity;
  for (const r of regions()) every = Math.min(every, Number(r.dataset.live) || 1);
  return every !== Infinity && seen % every === 0;
}

let events;
function listen() {
  events = new EventSource("/live");
  events.addEventListener("light", (e) => {
    document.getElementById("light").innerHTML = e.data;
    stale.hidden = true;
  });
  events.addEventListener("tick", () => {
    seen++;
    stale.hidden = true;
    if (due()) refresh();
  });
  events.addEventListener("gone", () => location.reload());
  events.onerror = () => { stale.hidden = false; };
}

if (stale) {
  listen();
  setInterval(count, 1000);
  count();
  // A page that nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) events.close();
    else { listen(); refresh(); }
  });
}

// Keys: / looks for an order, g and a digit opens a page of the menu.
let last = "";
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
  if (e.key === "/") {
    document.getElementById("q")?.focus();
    e.preventDefault();
  } else if (last === "g" && /^[1-9]$/.test(e.key)) {
    document.querySelectorAll("nav a")[e.key - 1]?.click();
  }
  last = e.key;
});
