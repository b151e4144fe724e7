/** What a step in the history of a feature changed. */

import type { Geometry } from 'geojson';
import { positionsOf } from '../../map/geometry';
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
  return featureChanges(old, step.action === 'DELETE' ? null : step.feature);
}

/** Compare two states of a feature; null is one that does not exist. */
export function featureChanges(old: Feature | null, now: Feature | null): StepChanges {
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

/** Say in words how a geometry changed. */
export function geometryChangeText(old: Geometry | null, now: Geometry | null): string {
  if (old === null || now === null) return now === null ? 'The geometry was removed.' : 'The geometry was added.';
  if (old.type !== now.type) return `The geometry changed from ${old.type} to ${now.type}.`;
  if (old.type === 'Point' && now.type === 'Point') {
    return `The point moved by ${distanceText(metresBetween(old.coordinates, now.coordinates))}.`;
  }
  const [before, after] = [positionsOf(old).length, positionsOf(now).length];
  return `The geometry changed: ${before} positions${before === after ? '' : ` became ${after}`}.`;
}

const EARTH_RADIUS = 6_371_008.8;

/** Return the distance of two positions on the sphere. */
export function metresBetween([x1 = 0, y1 = 0]: number[], [x2 = 0, y2 = 0]: number[]): number {
  const rad = Math.PI / 180;
  const haversine =
    Math.sin(((y2 - y1) * rad) / 2) ** 2 +
    Math.cos(y1 * rad) * Math.cos(y2 * rad) * Math.sin(((x2 - x1) * rad) / 2) ** 2;
  return 2 * EARTH_RADIUS * Math.asin(Math.sqrt(Math.min(1, haversine)));
}

export function distanceText(metres: number): string {
  if (metres >= 10_000) return `${Math.round(metres / 1000)} km`;
  if (metres >= 1_000) return `${(metres / 1000).toFixed(1)} km`;
  return metres >= 1 ? `${Math.round(metres)} m` : 'less than a metre';
}
