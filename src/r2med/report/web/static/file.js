// The single file: pages lie in it compressed, and the one behind the # of the address is unpacked and shown.
// Texts that pages share lie apart from them; a page says between two \x01 which one, how much of it and what is marked.
(function () {
  "use strict";
  var main = document.getElementById("main"), first = main.firstElementChild, status = document.getElementById("status");
  var blocks = document.querySelectorAll("template.block"), unpacked = new Map(), index = null, texts = null;
  var FOUND = 200, KEPT = 8, ENTITIES = { "&lt;": "<", "&gt;": ">", "&#34;": '"', "&#39;": "'", "&amp;": "&" };

  function unpack(template) {
    var bytes = Uint8Array.from(atob(template.content.textContent), function (c) { return c.charCodeAt(0); });
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  function parts(template) {
    return unpack(template).then(function (text) { return text.split("\0"); });
  }
  function allTexts() {
    texts = texts || Promise.all(Array.from(document.querySelectorAll("template.texts"), parts)).then(function (found) { return found.flat(); });
    return texts;
  }
  function whole(html, known) {
    return html.replace(/\x01(\d+) (\d+)((?: \d+,\d+)*)\x01/g, function (all, number, length, marks) {
      var text = known[number].slice(0, length), at = 0, out = "";
      marks.split(" ").slice(1).forEach(function (mark) {
        var gap = mark.split(","), start = at + Number(gap[0]), end = start + Number(gap[1]);
        out += text.slice(at, start) + "<mark>" + text.slice(start, end) + "</mark>";
        at = end;
      });
      return out + text.slice(at);
    });
  }
  function block(number) {
    var known = unpacked.get(number) || Promise.all([parts(blocks[number]), allTexts()]).then(function (read) {
      return read[0].map(function (html) { return whole(html, read[1]); });
    });
    unpacked.delete(number);
    unpacked.set(number, known);
    if (unpacked.size > KEPT) { unpacked.delete(unpacked.keys().next().value); }
    return known;
  }
  function notice(text) {
    var line = document.createElement("p");
    line.className = "notice";
    line.textContent = text;
    return line;
  }
  function place(section, title, kind) {
    section.className = "page";
    main.replaceChildren(section);
    document.title = title + " · r2med";
    document.querySelectorAll(".masthead nav a").forEach(function (link) {
      if (link.dataset.section === kind) { link.setAttribute("aria-current", "page"); } else { link.removeAttribute("aria-current"); }
    });
    window.scrollTo(0, 0);
  }

  // Search: every page in turn, its text without the markup
  function plain(html) {
    return html.replace(/<wbr>|<\/?mark[^>]*>/g, "").replace(/<[^>]*>/g, " ").replace(/&(lt|gt|amp|#34|#39);/g, function (entity) { return ENTITIES[entity]; }).replace(/\s+/g, " ");
  }
  function find(words) {
    var section = document.createElement("section"), head = document.createElement("h1"), list = document.createElement("ol");
    var wanted = words.toLowerCase().split(/\s+/).filter(Boolean), shown = 0, all = 0;
    head.textContent = "Pages with “" + words + "”";
    list.className = "moved";
    section.append(head, list);
    place(section, "Search", "");
    function look(number) {
      if (number === blocks.length || location.hash !== "#find/" + encodeURIComponent(words)) {
        head.after(notice(all + (all === 1 ? " page has" : " pages have") + " all of these words" + (all > shown ? "; the first " + shown + " are listed." : ".")));
        status.textContent = all + " pages found";
        return;
      }
      block(number).then(function (pages) {
        index.forEach(function (entry, anchor) {
          if (entry.block !== number) { return; }
          var text = plain(pages[entry.place]), low = text.toLowerCase();
          if (!wanted.every(function (word) { return low.includes(word); })) { return; }
          all += 1;
          if (shown === FOUND) { return; }
          shown += 1;
          var at = Math.max(0, low.indexOf(wanted[0]) - 60);
          var item = document.createElement("li"), link = document.createElement("a"), part = document.createElement("bdi"), body = document.createElement("span"), kind = document.createElement("span");
          kind.className = "delta muted";
          kind.textContent = anchor.split("/")[0];
          link.href = "#" + anchor;
          link.textContent = entry.title;
          part.className = "muted";
          part.textContent = "… " + text.slice(at, at + 220) + " …";
          body.append(link, document.createElement("br"), part);
          item.append(kind, body);
          list.append(item);
        });
        look(number + 1);
      });
    }
    look(0);
  }

  function show() {
    var wanted = location.hash.slice(1);
    if (wanted === "main") { return; }
    if (wanted.startsWith("find/")) { find(decodeURIComponent(wanted.slice(5))); return; }
    var entry = index.get(decodeURIComponent(wanted));
    if (!entry) { place(first, first.dataset.title, first.dataset.section); return; }
    block(entry.block).then(function (pages) {
      var section = document.createElement("section");
      section.innerHTML = pages[entry.place];
      section.id = decodeURIComponent(wanted);
      place(section, entry.title, entry.section);
    });
  }

  if (!("DecompressionStream" in window)) {
    main.prepend(notice("This browser cannot unpack the other pages of this file. Firefox 113, Safari 16.4, Chrome 80, Edge 80 and newer ones can."));
    return;
  }
  unpack(document.getElementById("index")).then(function (text) {
    index = new Map(JSON.parse(text).map(function (row) { return [row[0], { title: row[1], section: row[2], block: row[3], place: row[4] }]; }));
    var form = document.querySelector("form.find");
    form.hidden = false;
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      var words = form.elements.words.value.trim();
      if (words) { location.hash = "find/" + encodeURIComponent(words); }
    });
    window.addEventListener("hashchange", show);
    if (location.hash) { show(); }
  });
})();
