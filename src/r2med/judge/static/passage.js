// One passage: its text with marked words and sentences, the grades, and what the judge writes beside them.

import { send } from "./requests.js";
import { Slot } from "./saving.js";
import { appendMarked, appendSentences, appendText, element, marker } from "./text.js";

const SAID = { saved: "saved", saving: "saving …", unsaved: "not saved", refused: "not saved", conflict: "changed elsewhere" };

export class Passage {
  /** `project` is the overview, `page` the query's; `act` is told of what the judge does here. */
  constructor(project, page, place, act) {
    const given = page.passages[place];
    Object.assign(this, { project, place, act, title: given.title, length: given.length, judgments: given.judgments });
    this.number = page.number;
    this.text = given.piece.text;
    this.next = given.piece.next;
    this.words = new Set(given.piece.words);
    this.slot = new Slot(page.query_id, given.doc_id, given.entry);
    this.complete = false; // whether more than the bare text is drawn
    this.at = -1; // the sentence that is stepped on
    this.element = this.#begin(page.passages.length);
    this.adopt(this.slot);
  }

  /** Use a slot that was left unsaved when this query was last shown. */
  adopt(slot) {
    this.slot = slot;
    slot.redraw = () => this.redraw();
    this.redraw();
  }

  /** The bare passage: cheap, so that a thousand of them are there at once. */
  #begin(count) {
    const id = `passage-${this.place}`;
    this.state = element("span", { className: "state" });
    const heading = element("h2", { id, textContent: `Passage ${this.place + 1} of ${count}` });
    this.body = element("div", { className: "text" });
    appendText(this.body, this.text);
    const made = element("li", { className: "passage", tabIndex: -1 }, element("div", { className: "head" }, heading, this.state));
    made.dataset.doc = this.slot.docId;
    made.setAttribute("aria-labelledby", id);
    if (this.title) {
      const title = element("p", { className: "doctitle" });
      appendText(title, this.title);
      made.append(title);
    }
    made.append(this.body);
    return made;
  }

  /** Draw the rest, once, when the passage comes near. */
  finish(terms) {
    if (this.complete) return;
    this.complete = true;
    this.mark(terms);
    const lock = Boolean(this.project.closing);
    this.buttons = this.project.grades.map((meaning, grade) => {
      const button = element("button", { type: "button", className: "grade", disabled: lock }, element("kbd", { textContent: grade }), " ");
      appendText(button, meaning);
      button.dataset.grade = grade;
      button.addEventListener("click", () => this.act.grade(this, grade));
      return button;
    });
    this.skip = element("button", { type: "button", className: "grade skipping", disabled: lock }, element("kbd", { textContent: "s" }), " skip");
    this.skip.addEventListener("click", () => this.act.skip(this));
    const grades = element("div", { className: "grades" }, ...this.buttons, this.skip);
    grades.setAttribute("role", "group");
    grades.setAttribute("aria-label", `Grade of passage ${this.place + 1}`);
    this.more = element("button", { type: "button", className: "button more" });
    this.more.addEventListener("click", () => this.showMore());
    this.supported = element("p", { className: "supported", hidden: true });
    this.trouble = element("div", { className: "refused" });
    this.trouble.setAttribute("role", "alert");
    this.reason = this.#field("reason", "Reason", "r", this.project.reason, lock);
    this.note = this.#field("note", "Note", "n", "optional", lock);
    this.element.append(this.more, ...this.#others(), grades, this.supported);
    if (this.project.reason !== "no") this.element.append(this.reason.label);
    this.element.append(this.note.label, this.trouble);
    this.redraw();
  }

  #field(name, title, key, asked, lock) {
    const area = element("textarea", { rows: 1, maxLength: 20000, disabled: lock });
    area.addEventListener("change", () => this.act.write(this, name, area.value));
    const label = element("label", { className: `field ${name}` }, element("span", {}, `${title} `, element("kbd", { textContent: key })), area);
    if (asked === "required") label.firstChild.append(" (required)");
    return { label, area };
  }

  /** What the judges gave, for the adjudicator. */
  #others() {
    if (!this.judgments.length) return [];
    const list = element("ul", { className: "judgments" });
    for (const given of this.judgments) {
      const item = element("li", {}, element("strong", { textContent: `Judge ${given.judge}: ${given.grade} ` }));
      appendText(item, this.project.grades[given.grade] ?? "");
      for (const [name, title] of [["reason", "Reason"], ["support", "Support"], ["note", "Note"]]) {
        if (!given[name]) continue;
        const line = element("div", { className: "said" }, `${title}: `);
        appendText(line, given[name]);
        item.append(line);
      }
      list.append(item);
    }
    return [element("h3", { className: "small", textContent: "The judges differ" }), list];
  }

  /** Draw the text with its words marked. */
  mark(terms) {
    if (!this.complete) return;
    this.marking = marker(this.words, terms);
    this.body.replaceChildren();
    appendSentences(this.body, this.text, this.marking);
    this.#showSupport();
  }

  async showMore() {
    if (this.next === null) return;
    this.more.disabled = true;
    const answer = await send(`query/${this.number}/${this.place}?from=${this.next}`).catch(() => ({ status: 0 }));
    this.more.disabled = false;
    if (answer.status !== 200) return;
    const { text, next, words } = answer.data;
    const marking = marker([...this.words, ...words], this.act.terms());
    appendSentences(this.body, text, marking, this.text.length);
    this.text += text;
    this.next = next;
    words.forEach((word) => this.words.add(word));
    this.redraw();
  }

  redraw() {
    const { draft, state, error, elsewhere } = this.slot;
    this.element.dataset.grade = draft.grade ?? "";
    this.element.dataset.state = state;
    const given = draft.grade !== null ? `grade ${draft.grade}` : draft.skipped ? "skipped" : "";
    const said = given || state !== "saved" ? `${given}${given ? ", " : ""}${SAID[state]}` : "";
    this.state.textContent = this.slot.entry || state !== "saved" ? said : "";
    if (!this.complete) return;
    this.buttons.forEach((button, grade) => button.setAttribute("aria-pressed", String(draft.grade === grade)));
    this.skip.setAttribute("aria-pressed", String(draft.skipped));
    for (const [name, { area }] of [["reason", this.reason], ["note", this.note]]) {
      if (document.activeElement !== area) area.value = draft[name];
    }
    this.more.hidden = this.next === null;
    this.more.textContent = `Show more (${(this.length - this.text.length).toLocaleString("en")} characters are left)`;
    this.#showSupport();
    this.#showTrouble(state, error, elsewhere);
  }

  #showTrouble(state, error, elsewhere) {
    this.trouble.replaceChildren();
    if (["unsaved", "refused"].includes(state)) {
      this.trouble.append("Not saved: ");
      appendText(this.trouble, `${error} `);
      const again = element("button", { type: "button", className: "button", textContent: "Try again" });
      again.addEventListener("click", () => this.slot.save());
      this.trouble.append(again);
    }
    if (state !== "conflict") return;
    const described = (e) => `${e?.skipped ? "skipped" : e?.grade === undefined || e?.grade === null ? "no grade" : `grade ${e.grade}`}${e?.reason ? `, reason: ${e.reason}` : ""}${e?.note ? `, note: ${e.note}` : ""}`;
    const lines = element("ul");
    for (const [title, what] of [["Saved elsewhere", elsewhere], ["Here, not saved", this.slot.draft]]) {
      const line = element("li", {}, `${title}: `);
      appendText(line, described(what));
      lines.append(line);
    }
    const keep = element("button", { type: "button", className: "button keep-theirs", textContent: "Keep what is saved" });
    const mine = element("button", { type: "button", className: "button keep-mine", textContent: "Save mine instead" });
    keep.addEventListener("click", () => this.slot.resolve(false));
    mine.addEventListener("click", () => this.slot.resolve(true));
    this.trouble.append("Another window or machine changed this judgment since it was shown here.", lines, keep, " ", mine);
  }

  /** Sentences that are drawn. */
  get sentences() {
    return [...this.body.children].filter((child) => child.start !== undefined && this.text.slice(child.start, child.end).trim());
  }

  #showSupport() {
    if (!this.supported) return;
    const { support } = this.slot.draft;
    const begin = support ? this.text.indexOf(support) : -1;
    for (const child of this.body.children) {
      const inside = begin >= 0 && child.start < begin + support.length && child.end > begin;
      child.classList.toggle("support", inside);
    }
    this.supported.hidden = !support;
    this.supported.replaceChildren("Support: ");
    appendMarked(this.supported, support, null);
  }

  /** The sentences that the reader has selected, as they stand in the text. */
  selected() {
    const chosen = window.getSelection();
    if (!chosen || chosen.isCollapsed || !chosen.rangeCount) return "";
    const touched = this.sentences.filter((child) => chosen.getRangeAt(0).intersectsNode(child));
    return touched.length ? this.text.slice(touched[0].start, touched.at(-1).end).trim() : "";
  }

  /** Step on a sentence; gives its text. */
  step(to) {
    const all = this.sentences;
    this.leaveSentences();
    if (!all.length) return "";
    this.at = Math.max(0, Math.min(all.length - 1, to));
    all[this.at].classList.add("stepped");
    all[this.at].scrollIntoView({ block: "nearest" });
    return this.text.slice(all[this.at].start, all[this.at].end).trim();
  }

  leaveSentences() {
    this.body.querySelector(".stepped")?.classList.remove("stepped");
    this.at = -1;
  }
}
