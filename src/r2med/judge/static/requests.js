// Who judges, and what is asked of the server. The token comes behind the # of the address and is sent in a header only.

const KEPT = "r2med-judge";
const session = { judge: "", token: "" };

export class Lost extends Error {}

/** Take the judge and the token from the address, or from this window's store; false where there is neither. */
export async function enter() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.get("code")) {
    const answer = await send("enter", { code: given.get("code") });
    if (answer.status === 200) keep(answer.data.judge, answer.data.token);
  } else if (given.get("token")) {
    keep(given.get("judge"), given.get("token"));
  } else {
    Object.assign(session, JSON.parse(sessionStorage.getItem(KEPT) || "{}"));
  }
  if (given.get("code") || given.get("token")) history.replaceState(null, "", location.pathname);
  return Boolean(session.token);
}

function keep(judge, token) {
  Object.assign(session, { judge, token });
  sessionStorage.setItem(KEPT, JSON.stringify(session));
}

/** Ask for data, or send some; gives the status and what came back. Throws `Lost` where no answer came. */
export async function send(path, body) {
  const headers = { Authorization: `Bearer ${session.token}`, "X-Judge": encodeURIComponent(session.judge) };
  const request = { headers, cache: "no-store", redirect: "error", referrerPolicy: "no-referrer" };
  if (body !== undefined) {
    request.method = "POST";
    request.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  try {
    const answer = await fetch(`/api/${path}`, request);
    return { status: answer.status, data: await answer.json() };
  } catch {
    throw new Lost("The server does not answer.");
  }
}

/** An id that no other entry has; `crypto.randomUUID` is missing where a page does not come by HTTPS or loopback. */
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
