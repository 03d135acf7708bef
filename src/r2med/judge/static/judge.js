// The judging page: queries one after the other, passages graded by key or button, everything saved as it is given.

import { enter, send } from "./requests.js";
import { Passage } from "./passage.js";
import { Slot, onSaving, unsaved } from "./saving.js";
import { appendText, element, plain } from "./text.js";
import { countTime } from "./time.js";

const RETRY = 5000;
const NEEDS_REASON = "This project asks for a reason.";
const NEEDS_SUPPORT = "This project asks for the sentence that supports a grade above 0.";
const $ = (id) => document.getElementById(id);
let project, page, passages = [], current = -1, stepping = false, loading = 0, answering = null;
const undone = []; // what to go back to, latest last
const tick = countTime(() => answering ?? passages[current]?.slot);
const near = new IntersectionObserver(drawNear, { rootMargin: "1200px" });

// Words and messages

const terms = () => [...project.terms, ...$("terms").value.split(",").map((term) => term.trim()).filter(Boolean)];
const say = (text) => { $("status").textContent = plain(text); };

function tell(text) {
  $("message").textContent = plain(text);
  $("message").hidden = !text;
}

function setText(id, text) {
  $(id).replaceChildren();
  appendText($(id), text);
}

// What the judge does with a passage

const act = {
  terms,
  grade(passage, grade) {
    if (project.closing || !(grade in project.grades)) return;
    focusOn(passage.place);
    const { draft } = passage.slot;
    const needsReason = project.reason === "required" && !draft.reason.trim();
    const needsSupport = project.support === "required" && grade > 0 && !draft.support;
    if (needsReason || needsSupport) {
      passage.slot.hold({ grade, skipped: false }, needsSupport ? NEEDS_SUPPORT : NEEDS_REASON);
      if (needsSupport) startStepping(passage, `${NEEDS_SUPPORT} `);
      else write(passage, "reason", NEEDS_REASON);
      return;
    }
    change(passage, { grade, skipped: false, support: grade > 0 ? draft.support : "" });
    say(`Grade ${grade}`);
    move(passage.place + 1);
  },
  skip(passage) {
    if (project.closing) return;
    change(passage, { grade: null, skipped: true });
    say("Skipped");
    move(passage.place + 1);
  },
  write(passage, name, text) {
    if (!project.closing && passage.slot.draft[name] !== text) change(passage, { [name]: text });
  },
};

function change(passage, changes) {
  tick();
  const { slot } = passage;
  undone.push({ number: page.number, docId: slot.docId, before: fieldsBefore(slot) });
  slot.set(changes);
  passage.redraw();
  count();
}

/** What the passage showed before, without a grade that waited for its reason or support. */
function fieldsBefore({ state, entry, draft }) {
  const { grade = null, skipped = false, reason = "", support = "", note = "" } = (state === "refused" ? entry : draft) ?? {};
  return { grade, skipped, reason, support, note };
}

async function undo() {
  const last = undone.pop();
  if (!last) return say("Nothing to undo");
  if (last.number !== page.number) await open(last.number);
  const passage = passages.find((p) => p.slot.docId === last.docId);
  if (!passage) return;
  passage.finish(terms());
  passage.slot.set(last.before);
  passage.redraw();
  count();
  move(passage.place);
  say("Undone");
}

function write(passage, name, why = "") {
  const { label, area } = passage[name];
  if (!label.isConnected) return;
  area.focus();
  if (why) say(why);
}

// Sentences as support

function startStepping(passage, why = "") {
  if (project.support === "no" || project.closing) return;
  const chosen = passage.selected();
  if (chosen) return support(passage, chosen);
  stepping = true;
  const sentence = passage.step(0);
  say(`${why}Left and right step through sentences, Enter marks. ${sentence}`);
  $("hint")?.remove();
  passage.element.append(element("p", { id: "hint", className: "hint", textContent: `${why}← → step through sentences, Enter marks, Del takes the mark away, Esc leaves.` }));
}

function stopStepping() {
  stepping = false;
  passages[current]?.leaveSentences();
  $("hint")?.remove();
}

function support(passage, text) {
  stopStepping();
  window.getSelection()?.removeAllRanges();
  const { draft } = passage.slot;
  const waited = passage.slot.state === "refused" && draft.grade !== null;
  if (waited && project.reason === "required" && !draft.reason.trim()) {
    passage.slot.hold({ support: text }, NEEDS_REASON);
    return write(passage, "reason", NEEDS_REASON);
  }
  change(passage, { support: text });
  say(text ? "Marked as support" : "The mark is taken away");
  if (waited) move(passage.place + 1);
}

function stepKey(passage, key) {
  if (key === "ArrowRight" || key === "ArrowLeft") say(passage.step(passage.at + (key === "ArrowRight" ? 1 : -1)));
  else if (key === "Enter") {
    const sentence = passage.sentences[passage.at];
    support(passage, passage.text.slice(sentence.start, sentence.end).trim());
  } else if (key === "Delete" || key === "Backspace") support(passage, "");
  else if (key === "Escape" || key === "m") stopStepping();
  else return false;
  return true;
}

// Keys

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || !page) return;
  const on = event.target, passage = passages[current];
  if (on.matches("textarea, input, select")) {
    const single = on.closest(".field");
    if (event.key === "Escape" || (event.key === "Enter" && single && !event.shiftKey)) {
      event.preventDefault();
      leaveField(on, passage);
    }
    return;
  }
  if (event.key === "Enter" && on.matches("button, a, summary") && !stepping) return;
  const used = stepping && passage && stepKey(passage, event.key) ? true : command(event.key, passage);
  if (used) event.preventDefault();
}

function leaveField(area, passage) {
  const waited = area.closest(".field.reason") && passage?.slot.state === "refused" && passage.slot.draft.grade !== null;
  area.blur(); // which saves what was written
  passage?.element.focus({ preventScroll: true });
  if (waited && passage.slot.state === "saving") move(passage.place + 1);
}

function command(key, passage) {
  if (key === "?") $("keys").showModal();
  else if (key === "Enter") step(1);
  else if (key === "p") step(-1);
  else if (key === "u") undo();
  else if (key === "j" || key === "ArrowDown") move(current + 1);
  else if (key === "k" || key === "ArrowUp") move(current - 1);
  else if (!passage) return false;
  else if (/^[0-9]$/.test(key)) act.grade(passage, Number(key));
  else if (key === "s") act.skip(passage);
  else if (key === "r") write(passage, "reason");
  else if (key === "n") write(passage, "note");
  else if (key === "m") startStepping(passage);
  else if (key === "f") passage.showMore();
  else return false;
  return true;
}

// From passage to passage

function focusOn(place) {
  if (place === current) return;
  if (stepping) stopStepping();
  tick();
  passages[current]?.element.classList.remove("current");
  passages[current]?.element.removeAttribute("aria-current");
  current = place; // behind the last passage there is none, so that a key too many grades nothing
  if (place === passages.length) return;
  passages[place].finish(terms());
  passages[place].element.classList.add("current");
  passages[place].element.setAttribute("aria-current", "true");
}

function move(to) {
  if (!passages.length || to < 0) return;
  if (to >= passages.length) {
    const left = passages.filter((p) => !p.slot.judged).length;
    focusOn(passages.length);
    say(left ? `The last passage; ${left} of this query have no grade` : "All passages of this query are judged; Enter goes on");
    $("next-below").focus({ preventScroll: true });
    $("end").scrollIntoView({ block: "nearest" });
    return;
  }
  focusOn(to);
  const { element: shown } = passages[to];
  shown.focus({ preventScroll: true });
  shown.scrollIntoView({ block: shown.offsetHeight > window.innerHeight * 0.8 ? "start" : "nearest" });
}

function drawNear(seen) {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    target.passage.finish(terms());
  }
}

// Queries

function place(number) {
  return project.queries.findIndex((query) => query.number === number);
}

function step(by) {
  const at = place(page.number) + by;
  if (at >= 0 && at < project.queries.length) return open(project.queries[at].number);
  const left = project.queries.find((query) => query.graded + query.skipped < query.passages);
  say(by < 0 ? "This is the first query" : left ? "This is the last query; earlier ones have passages without a grade" : "This is the last query; all passages are judged");
  return undefined;
}

async function open(number) {
  const mine = ++loading;
  const answer = await send(`query/${number}`).catch((error) => ({ status: 0, data: { error: error.message } }));
  if (mine !== loading) return;
  if (answer.status !== 200) {
    tell(answer.data.error);
    return;
  }
  tick();
  stopStepping();
  page = answer.data;
  const kept = new Map([...unsaved].filter((s) => s.queryId === page.query_id).map((s) => [s.docId, s]));
  near.disconnect();
  current = -1;
  passages = page.passages.map((_, at) => new Passage(project, page, at, act));
  for (const passage of passages) {
    if (kept.has(passage.slot.docId)) passage.adopt(kept.get(passage.slot.docId));
    passage.element.passage = passage;
    passage.element.addEventListener("focusin", () => focusOn(passage.place));
    passage.element.addEventListener("pointerdown", () => focusOn(passage.place));
  }
  drawQuery();
  $("passages").replaceChildren(...passages.map((passage) => passage.element));
  passages.forEach((passage) => near.observe(passage.element));
  window.scrollTo(0, 0);
  askForAnswer();
  if (!page.answer_needed) move(Math.max(0, passages.findIndex((passage) => !passage.slot.judged)));
  count();
  say(`Query ${place(page.number) + 1} of ${project.queries.length}`);
}

function drawQuery() {
  const at = place(page.number);
  $("judging").dataset.query = page.query_id;
  $("query-title").textContent = `Query ${at + 1} of ${project.queries.length}`;
  $("jump").value = String(page.number);
  setText("query-text", page.text);
  $("previous").disabled = at <= 0;
  $("next").disabled = at >= project.queries.length - 1;
  $("own-answer").hidden = !page.answer?.answer;
  setText("own-answer-text", page.answer?.answer ?? "");
  $("end").hidden = page.answer_needed || !passages.length;
}

function askForAnswer() {
  $("answer-form").hidden = !page.answer_needed;
  answering = page.answer_needed ? new Slot(page.query_id, "", page.answer ?? null) : null;
  if (!page.answer_needed) return;
  $("answer").value = "";
  $("answer-trouble").textContent = "";
  $("answer").focus();
}

async function saveAnswer(text) {
  if (!text.trim()) {
    $("answer-trouble").textContent = "Write an answer, or say that you do not know.";
    return;
  }
  tick();
  const slot = answering, number = page.number;
  await slot.set({ answer: text.trim() });
  if (slot.state === "saved") await open(number);
  else $("answer-trouble").textContent = plain(`Not saved: ${slot.error || "it was answered in another window; load the page again"}`);
}

function count() {
  const about = project.queries[place(page.number)];
  if (about && !page.answer_needed) {
    about.graded = passages.filter((p) => p.slot.draft.grade !== null).length;
    about.skipped = passages.filter((p) => p.slot.draft.skipped).length;
    const option = [...$("jump").options].find((o) => o.value === String(page.number));
    option.textContent = titleOf(about);
  }
  const done = about ? about.graded + about.skipped : 0;
  bar("query", done, about?.passages ?? 0);
  const sum = (name) => project.queries.reduce((total, query) => total + query[name], 0);
  bar("all", sum("graded") + sum("skipped"), sum("passages"));
}

function bar(name, done, all) {
  $(`${name}-bar`).max = Math.max(1, all);
  $(`${name}-bar`).value = done;
  $(`${name}-count`).textContent = `${done.toLocaleString("en")} of ${all.toLocaleString("en")}`;
}

function titleOf(query) {
  const id = query.query_id.length > 40 ? `${query.query_id.slice(0, 39)}…` : query.query_id;
  return plain(`${place(query.number) + 1}. ${id} (${query.graded + query.skipped}/${query.passages})`);
}

// What is not saved

function drawTrouble() {
  const open = [...unsaved].filter((slot) => slot.state === "unsaved");
  $("trouble").hidden = !open.length;
  if (open.length) setText("trouble-text", `${open.length === 1 ? "One judgment is" : `${open.length} judgments are`} not saved: ${open[0].error}`);
}

function retry() {
  for (const slot of unsaved) if (slot.state === "unsaved") slot.save();
}

onSaving(drawTrouble);
setInterval(retry, RETRY);
window.addEventListener("beforeunload", (event) => { if (unsaved.size) event.preventDefault(); });

// Finishing

function askToFinish() {
  const all = project.queries.reduce((total, query) => total + query.passages, 0);
  const graded = project.queries.reduce((total, query) => total + query.graded, 0);
  const skipped = project.queries.reduce((total, query) => total + query.skipped, 0);
  $("finish-text").textContent = `You have graded ${graded} of ${all} passages and skipped ${skipped}.`;
  $("finish-trouble").textContent = "";
  $("finish").showModal();
}

async function finish() {
  if (unsaved.size) {
    $("finish-trouble").textContent = "Some judgments are not saved yet.";
    return;
  }
  const slot = new Slot("", "", null);
  await slot.set({ finished: true });
  if (slot.state !== "saved") {
    $("finish-trouble").textContent = plain(`Not saved: ${slot.error}`);
    unsaved.delete(slot);
    drawTrouble();
    return;
  }
  $("finish").close();
  await start();
}

// The beginning

async function start() {
  const answer = await send("project").catch((error) => ({ status: 0, data: { error: error.message } }));
  if (answer.status !== 200) {
    tell(answer.data.error);
    return;
  }
  project = answer.data;
  document.title = plain(`${project.project} · r2med judge`);
  setText("project", project.project);
  $("who").textContent = plain(`${project.judge}${project.kind === "adjudicator" ? ", adjudicator" : ""}`);
  setText("question", project.question);
  setText("description-text", project.description);
  $("description").hidden = !project.description;
  $("meanings").replaceChildren(...project.grades.flatMap((meaning, grade) => {
    const dd = element("dd");
    appendText(dd, meaning);
    return [element("dt", {}, element("kbd", { textContent: grade })), dd];
  }));
  $("jump").replaceChildren(...project.queries.map((query) => element("option", { value: query.number, textContent: titleOf(query) })));
  $("all-done").hidden = false;
  $("finish-button").hidden = Boolean(project.closing) || !project.queries.length;
  $("judging").hidden = !project.queries.length;
  tell(introduction());
  if (!project.queries.length) return;
  const left = project.queries.find((query) => query.graded + query.skipped < query.passages);
  await open((page ? project.queries.find((query) => query.number === page.number) : left ?? project.queries[0]).number);
}

function introduction() {
  if (project.closing) return `You finished on ${new Date(project.closing.at).toLocaleString("en-GB")}. Your judgments stand; this page only shows them.`;
  if (project.kind !== "adjudicator") return project.queries.length ? "" : "There is nothing to judge in this project.";
  const waiting = project.waiting.length ? ` Not finished yet: ${project.waiting.join(", ")}; queries they have begun are not shown.` : "";
  return (project.queries.length ? "These are the passages on which judges differ. Your grade is the final one." : "There is nothing that you have to decide.") + waiting;
}

function theme() {
  const dark = document.documentElement.dataset.theme === "dark";
  $("theme-button").textContent = dark ? "Light" : "Dark";
  $("theme-button").setAttribute("aria-label", `Switch to the ${dark ? "light" : "dark"} theme`);
}

document.addEventListener("keydown", onKey);
$("theme-button").addEventListener("click", () => { window.r2medTheme(); theme(); });
$("keys-button").addEventListener("click", () => $("keys").showModal());
$("finish-button").addEventListener("click", askToFinish);
$("finish-no").addEventListener("click", () => $("finish").close());
$("finish-yes").addEventListener("click", finish);
$("retry").addEventListener("click", retry);
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("next-below").addEventListener("click", () => step(1));
$("jump").addEventListener("change", () => open(Number($("jump").value)));
$("terms").addEventListener("change", () => {
  sessionStorage.setItem("r2med-terms", $("terms").value);
  passages.forEach((passage) => passage.mark(terms()));
});
$("answer-form").addEventListener("submit", (event) => { event.preventDefault(); saveAnswer($("answer").value); });
$("answer").addEventListener("keydown", (event) => { if (event.key === "Enter" && event.ctrlKey) saveAnswer($("answer").value); });
$("no-answer").addEventListener("click", () => saveAnswer("I do not know"));
window.addEventListener("hashchange", async () => {
  if (location.hash.includes("token=") && (await enter())) { retry(); await start(); }
});
theme();
$("terms").value = sessionStorage.getItem("r2med-terms") ?? "";
if (await enter().catch(() => false)) await start();
else tell("Open the address that the server printed: it holds the key that lets you in.");
