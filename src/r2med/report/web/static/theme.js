// Before anything is drawn: the theme that was chosen here, else the reader's own.
(function () {
  "use strict";
  var chosen = null;
  try { chosen = localStorage.getItem("r2med-theme"); } catch (error) { /* storage may be off */ }
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function apply() {
    document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
  }
  dark.addEventListener("change", apply);
  window.r2medTheme = function () {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("r2med-theme", chosen); } catch (error) { /* it lasts until the page is left */ }
    apply();
  };
  apply();
})();
