/** Times and numbers for people. */

const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });
const COUNT = new Intl.NumberFormat();
const SECONDS: readonly (readonly [Intl.RelativeTimeFormatUnit, number])[] = [
  ['year', 31_557_600],
  ['month', 2_629_800],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
];

export function timeText(milliseconds: number): string {
  return TIME.format(milliseconds);
}

export function dateText(milliseconds: number): string {
  return DATE.format(milliseconds);
}

/** Return how long ago a time was, such as `2 days ago`. */
export function agoText(milliseconds: number): string {
  const seconds = (milliseconds - Date.now()) / 1000;
  for (const [unit, length] of SECONDS) {
    if (Math.abs(seconds) >= length) return RELATIVE.format(Math.round(seconds / length), unit);
  }
  return 'just now';
}

export function countText(count: number): string {
  return COUNT.format(count);
}

/** Return a number with its noun, such as `1 feature` or `3 features`. */
export function counted(count: number, noun: string): string {
  return `${countText(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** Return any JSON value as short text. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  if (typeof value === 'string') return value;
  if (typeof value === 'object') return JSON.stringify(value);
  return String(value);
}
