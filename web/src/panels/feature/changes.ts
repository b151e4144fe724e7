/** What a step in the history of a feature changed. */

import { type Feature, type HistoryStep, NAMESPACE } from '../../api/types';

/** A changed member, with its value before and after; undefined is absent. */
export interface MemberChange {
  readonly name: string;
  readonly before: unknown;
  readonly after: unknown;
}

export interface StepChanges {
  readonly members: readonly MemberChange[];
  readonly isGeometryChanged: boolean;
}

/** Compare the state of a step with the one before it. */
export function changesOf(step: HistoryStep, before: HistoryStep | undefined): StepChanges {
  const old = before && before.action !== 'DELETE' ? before.feature : null;
  const now = step.action === 'DELETE' ? null : step.feature;
  const [oldValues, newValues] = [valuesOf(old), valuesOf(now)];
  const names = new Set([...oldValues.keys(), ...newValues.keys()]);
  const members = [...names]
    .map((name) => ({ name, before: oldValues.get(name), after: newValues.get(name) }))
    .filter(({ before: a, after: b }) => !isSame(a, b));
  return { members, isGeometryChanged: !isSame(old?.geometry ?? null, now?.geometry ?? null) };
}

/** Return the properties of a feature by their paths, and its tags; nested objects are opened. */
function valuesOf(feature: Feature | null): Map<string, unknown> {
  const found = new Map<string, unknown>();
  if (!feature) return found;
  const open = (value: unknown, path: string): void => {
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
      for (const [name, one] of Object.entries(value)) open(one, path ? `${path}.${name}` : name);
    } else {
      found.set(path, value);
    }
  };
  const { [NAMESPACE]: namespace, ...properties } = feature.properties;
  open(properties, '');
  const tags = (namespace as { tags?: readonly string[] } | undefined)?.tags ?? [];
  if (tags.length > 0) found.set('tags', tags.join(', '));
  return found;
}

function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
