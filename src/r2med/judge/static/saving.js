// One thing that a judge may write about: what is on the server's disk, what the page shows, and the way between them.

import { Lost, newId, send } from "./requests.js";

const EMPTY = { grade: null, skipped: false, reason: "", support: "", note: "", answer: "", finished: false };
const FIELDS = Object.keys(EMPTY);

/** Slots whose latest state is not known to be on disk. */
export const unsaved = new Set();
const listeners = new Set();
export const onSaving = (listener) => listeners.add(listener);

function fieldsOf(entry) {
  return Object.fromEntries(FIELDS.map((name) => [name, entry?.[name] ?? EMPTY[name]]));
}

export class Slot {
  constructor(queryId, docId, entry) {
    this.queryId = queryId;
    this.docId = docId;
    this.entry = entry; // what is on disk
    this.draft = fieldsOf(entry); // what the page shows
    this.state = "saved"; // saving, unsaved (can be tried again), refused, conflict
    this.error = "";
    this.elsewhere = null; // what another window wrote
    this.seconds = entry?.seconds ?? 0;
    this.redraw = () => {};
    this.sending = null;
    this.busy = false;
  }

  get judged() {
    return this.draft.grade !== null || this.draft.skipped;
  }

  /** Change what the page shows, and save it. */
  set(changes) {
    Object.assign(this.draft, changes);
    return this.save();
  }

  /** Change what the page shows, and wait for what the project asks for beside it. */
  hold(changes, why) {
    Object.assign(this.draft, changes);
    this.#become("refused", why);
  }

  get changed() {
    const there = fieldsOf(this.entry);
    return FIELDS.some((name) => there[name] !== this.draft[name]);
  }

  /** Send what is not on disk, an entry that may have been lost on the way first, under its old id. */
  async save() {
    if (this.busy || this.state === "conflict") return;
    this.busy = true;
    while (this.sending || this.changed) {
      this.sending ??= {
        ...this.draft, id: newId(), query_id: this.queryId, doc_id: this.docId, replaces: this.entry?.id ?? "",
        seconds: Math.round(this.seconds * 10) / 10,
      };
      this.#become("saving");
      if (!(await this.#sendOnce())) break;
    }
    this.busy = false;
    if (!this.sending && !this.changed) this.#become("saved");
  }

  async #sendOnce() {
    let answer;
    try {
      answer = await send("save", this.sending);
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      this.#become("unsaved", error.message);
      return false;
    }
    const said = answer.data?.error ?? "";
    if (answer.status === 200) {
      this.entry = answer.data.saved;
      this.sending = null;
      return true;
    }
    if (answer.status >= 500 || answer.status === 401 || answer.status === 408) {
      this.#become("unsaved", said); // full disk, server started again: what is sent stays as it is
      return false;
    }
    this.sending = null;
    if (answer.status !== 409) {
      this.#become("refused", said);
      return false;
    }
    this.elsewhere = answer.data.current ?? null;
    const there = fieldsOf(this.elsewhere);
    if (FIELDS.every((name) => there[name] === this.draft[name])) {
      this.entry = this.elsewhere;
      return true;
    }
    this.#become("conflict", said);
    return false;
  }

  /** Two windows wrote different things: the judge chooses. */
  resolve(mine) {
    this.entry = this.elsewhere;
    if (!mine) this.draft = fieldsOf(this.entry);
    this.#become("saved");
    return this.save();
  }

  #become(state, error = "") {
    this.state = state;
    this.error = error;
    if (state === "saved") unsaved.delete(this);
    else unsaved.add(this);
    this.redraw();
    for (const listener of listeners) listener(this);
  }
}
