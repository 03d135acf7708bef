// Time per judgment: what passes between two signs of life counts, unless it was a pause.

const PAUSE = 120; // seconds
const SIGNS = ["keydown", "pointerdown", "pointermove", "wheel", "scroll"];

/** Add the time that passes to the `seconds` of what `current` gives; the function that is returned adds it at once. */
export function countTime(current) {
  let alive = performance.now();
  const tick = () => {
    const now = performance.now(), passed = (now - alive) / 1000;
    alive = now;
    const on = current();
    if (on && passed <= PAUSE) on.seconds += passed;
  };
  for (const sign of SIGNS) document.addEventListener(sign, tick, { passive: true, capture: true });
  return tick;
}
