// What links and forms cannot do: the theme, copying, keys, live figures. Pages work without it.
(function () {
  "use strict";
  var status = document.getElementById("status");
  function say(text) { if (status) { status.textContent = text; } }

  // Theme
  var button = document.querySelector("button.theme");
  function label() { button.textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"; button.setAttribute("aria-label", "Switch to the " + button.textContent.toLowerCase() + " theme"); }
  if (button && window.r2medTheme) {
    button.hidden = false;
    label();
    button.addEventListener("click", function () { window.r2medTheme(); label(); });
  }

  // Copy
  function fallback(text, what) {
    var box = document.createElement("dialog");
    var area = document.createElement("textarea");
    var close = document.createElement("button");
    area.readOnly = true; area.value = text; area.setAttribute("aria-label", "The table as " + what);
    close.className = "button"; close.textContent = "Close"; close.addEventListener("click", function () { box.close(); });
    box.addEventListener("close", function () { box.remove(); });
    box.append(area, close);
    document.body.append(box);
    box.showModal();
    area.select();
  }
  function copy(text, control) {
    var what = control.dataset.what;
    var done = function () {
      say("Copied as " + what);
      var before = control.textContent;
      control.textContent = "Copied";
      setTimeout(function () { control.textContent = before; }, 1500);
    };
    if (!navigator.clipboard) { fallback(text, what); return; }
    navigator.clipboard.writeText(text).then(done, function () { fallback(text, what); });
  }
  document.addEventListener("click", function (event) {
    var control = event.target.closest(".copy");
    if (!control || event.ctrlKey || event.metaKey) { return; }
    if (control.tagName === "BUTTON") { copy(control.parentNode.querySelector("textarea").value, control); return; }
    event.preventDefault();
    control.style.minWidth = control.offsetWidth + "px";
    fetch(control.href).then(function (answer) {
      if (!answer.ok) { throw new Error(String(answer.status)); }
      return answer.text();
    }).then(function (text) { copy(text, control); }, function () { say("This could not be copied"); location.href = control.href; });
  });

  // Sorting and filtering where there is no server to do it
  function value(row, column, by) {
    if (by) { return row.dataset[by]; }
    var number = row.cells[column].dataset.v;
    return number === undefined ? null : Number(number);
  }
  document.addEventListener("click", function (event) {
    var control = event.target.closest("button.sort");
    if (!control) { return; }
    var head = control.closest("th"), table = head.closest("table"), body = table.tBodies[0], by = control.dataset.by;
    var before = control.classList.contains("ascending") ? "ascending" : control.classList.contains("descending") ? "descending" : "";
    var rising = before ? before === "descending" : Boolean(by);
    Array.from(body.rows).map(function (row) { return [value(row, head.cellIndex, by), row]; }).sort(function (a, b) {
      if (a[0] === null || b[0] === null) { return (a[0] === null) - (b[0] === null); }
      return (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (rising ? 1 : -1);
    }).forEach(function (pair) { body.append(pair[1]); });
    table.querySelectorAll("th[aria-sort]").forEach(function (other) { other.removeAttribute("aria-sort"); });
    table.querySelectorAll("button.sort").forEach(function (other) { other.classList.remove("ascending", "descending"); });
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    control.classList.add(rising ? "ascending" : "descending");
    say("Sorted by " + control.textContent);
  });
  document.addEventListener("click", function (event) {
    var control = event.target.closest("[data-filter]");
    if (!control || event.ctrlKey || event.metaKey) { return; }
    event.preventDefault();  // a link leads to the same choice as a page of its own, for readers without script
    var page = document.getElementById("main");
    page.querySelectorAll('[data-filter="' + control.dataset.filter + '"]').forEach(function (other) {
      if (other.tagName === "BUTTON") { other.setAttribute("aria-pressed", String(other === control)); return; }
      if (other === control) { other.setAttribute("aria-current", "true"); } else { other.removeAttribute("aria-current"); }
    });
    var wanted = Array.from(page.querySelectorAll('[data-filter][aria-pressed="true"], [data-filter][aria-current]')).filter(function (chosen) { return chosen.dataset.value !== ""; });
    page.querySelectorAll("tr[data-kind]").forEach(function (row) {
      row.hidden = wanted.some(function (chosen) { var has = row.dataset[chosen.dataset.filter]; return has !== "" && has !== chosen.dataset.value; });
    });
  });

  // Keys through the queries
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) { return; }
    var rel = { j: "next", k: "prev" }[event.key];
    var link = rel && document.querySelector('a[rel="' + rel + '"]');
    if (link) { link.click(); }
  });

  // Statistics that are still being worked out
  function replaceWith(url, selector) {
    return fetch(url).then(function (answer) { return answer.text(); }).then(function (html) {
      var fresh = new DOMParser().parseFromString(html, "text/html").querySelector(selector);
      var old = document.querySelector(selector);
      if (fresh && old) { var left = old.scrollLeft; old.replaceWith(fresh); fresh.scrollLeft = left; }
    });
  }
  function again() {
    var waiting = document.querySelector("[data-waiting]");
    if (!waiting) { say("The statistics are ready"); return; }
    replaceWith(location.href, "#" + waiting.id).then(function () { setTimeout(again, 1500); }, function () { setTimeout(again, 5000); });
  }
  if (document.querySelector("[data-waiting]")) { setTimeout(again, 800); }

  // A run that is going
  var live = document.querySelector("[data-live]"), section = document.getElementById("progress"), last = null;
  function look() {
    fetch(live.dataset.live).then(function (answer) { return answer.json(); }).then(function (state) {
      if (state && state.running) { live.removeAttribute("data-idle"); } else { live.setAttribute("data-idle", ""); }
      var now = state ? [state.done, state.running, state.version, state.current && state.current.system + state.current.task].join() : "";
      if (now !== last) {
        if (section && (last !== null || state)) { replaceWith(location.href, "#progress"); }
        // At the first look, too: a result may have come since the page was made.
        if (state && (last !== null || state.running) && document.getElementById("scores") && !document.querySelector("[data-waiting]")) { replaceWith(location.href, "#scores"); }
      }
      last = now;
      setTimeout(look, document.hidden ? 15000 : state && state.running ? 1500 : 5000);
    }, function () { setTimeout(look, 15000); });
  }
  if (live) { look(); }
})();
