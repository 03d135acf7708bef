// Text from data on the page: always as text, with characters that hide or turn something shown by their numbers.

const ODD = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e" +
    "\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e007f}]",
  "gu",
);
const sentencesOf = Intl.Segmenter ? new Intl.Segmenter("en", { granularity: "sentence" }) : null;
const number = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** For places that take no elements, such as a title. */
export function plain(text) {
  return text.replace(ODD, (c) => (c === "\r" ? "" : `[${number(c)}]`));
}

export function appendText(parent, text) {
  let at = 0;
  for (const match of text.matchAll(ODD)) {
    parent.append(text.slice(at, match.index));
    if (match[0] !== "\r") parent.append(element("span", { className: "odd", textContent: number(match[0]) }));
    at = match.index + match[0].length;
  }
  parent.append(text.slice(at));
}

/** What finds words to mark: those of the query as they stand in the passage, and chosen terms in any case. */
export function marker(words, terms) {
  const chosen = new Set(terms.map((term) => term.toLowerCase()));
  const all = [...new Set([...words, ...terms])].filter(Boolean).sort((a, b) => b.length - a.length);
  if (!all.length) return null;
  const escaped = all.map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  const found = new RegExp(`(?<![\\p{L}\\p{N}_])(?:${escaped.join("|")})(?![\\p{L}\\p{N}_])`, "giu");
  return { found, isTerm: (word) => chosen.has(word.toLowerCase()) };
}

export function appendMarked(parent, text, marking) {
  let at = 0;
  for (const match of marking ? text.matchAll(marking.found) : []) {
    appendText(parent, text.slice(at, match.index));
    const mark = element("mark", { className: marking.isTerm(match[0]) ? "term" : "" });
    appendText(mark, match[0]);
    parent.append(mark);
    at = match.index + match[0].length;
  }
  appendText(parent, text.slice(at));
}

/** Append a text sentence by sentence; each element knows where its sentence begins and ends in the whole. */
export function appendSentences(parent, text, marking, offset = 0) {
  const parts = sentencesOf ? [...sentencesOf.segment(text)].map((s) => s.segment) : text.split(/(?<=[.!?]\s+)/u);
  let at = offset;
  for (const part of parts) {
    const sentence = element("span", { className: "sentence", start: at, end: at + part.length });
    appendMarked(sentence, part, marking);
    parent.append(sentence);
    at += part.length;
  }
}
