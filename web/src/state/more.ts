/** State of panels that is kept in the address of the page, each member a parameter. */

import type { Area } from '../api/diff';
import { view, type View } from './view';

/** Set parameters; null removes one. */
export function setMore(changes: Readonly<Record<string, string | null>>): void {
  const more: Record<string, string> = { ...view.value.more };
  for (const [name, value] of Object.entries(changes)) {
    if (value) more[name] = value;
    else delete more[name];
  }
  view.update({ more });
}

/** Return the area that the lists of changes are restricted to. */
export function areaOf({ more }: View): Area | null {
  const [west, south, east, north] = (more['area'] ?? '').split(',').map(Number);
  if (west === undefined || south === undefined || east === undefined || north === undefined) return null;
  return [west, south, east, north].every(Number.isFinite) ? [west, south, east, north] : null;
}

/** Return the authors that the lists of changes are restricted to. */
export function authorsOf({ more }: View): string[] {
  return splitNames(more['by'] ?? '');
}

export function splitNames(text: string): string[] {
  return text.split(',').map((one) => one.trim()).filter((one) => one !== '');
}
