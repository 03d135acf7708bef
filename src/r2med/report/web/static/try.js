// The form is sent without leaving the page, and again while an index is being prepared. It works without this, too.
(function () {
  "use strict";
  var form = document.querySelector("form.try"), status = document.getElementById("status"), number = 0;

  function ask(mine) {
    var answer = document.getElementById("answer");
    answer.setAttribute("aria-busy", "true");
    fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), cache: "no-store" }).then(function (found) {
      return found.text();
    }).then(function (html) {
      if (mine !== number) { return; }
      var fresh = new DOMParser().parseFromString(html, "text/html").getElementById("answer");
      if (!fresh) { throw new Error("no answer"); }
      document.getElementById("answer").replaceWith(fresh);
      if (fresh.hasAttribute("data-again")) {
        status.textContent = "Not ready yet";
        setTimeout(function () { if (mine === number) { ask(mine); } }, 1000);
      } else {
        status.textContent = "Answered";
      }
    }).catch(function () {
      if (mine !== number) { return; }
      var line = document.createElement("p");
      line.className = "notice";
      line.textContent = "The app does not answer: is it still running?";
      document.getElementById("answer").replaceChildren(line);
      document.getElementById("answer").removeAttribute("aria-busy");
    });
  }
  form.addEventListener("submit", function (event) {
    event.preventDefault();
    number += 1;
    status.textContent = "Searching";
    ask(number);
  });
  form.addEventListener("keydown", function (event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { form.requestSubmit(); }
  });
  if (document.querySelector("#answer[data-again]")) { number += 1; ask(number); }
})();
