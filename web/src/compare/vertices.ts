/** Differences of two geometries, vertex by vertex. */

import type { Geometry, Position } from 'geojson';

export interface VertexDiff {
  readonly kept: readonly Position[];
  readonly added: readonly Position[];
  readonly removed: readonly Position[];
  readonly moved: readonly (readonly [before: Position, after: Position])[];
}

interface Found {
  kept: Position[];
  added: Position[];
  removed: Position[];
  moved: [Position, Position][];
}

interface Path {
  readonly positions: readonly Position[];
  readonly isClosed: boolean;
}

/** Longer paths, in pairs of vertices, are compared without regard to their order. */
const PAIRS_MAX = 4_000_000;

/** Compare two geometries; lines and rings are matched by their order. */
export function vertexDiff(old: Geometry | null, now: Geometry | null): VertexDiff {
  const found: Found = { kept: [], added: [], removed: [], moved: [] };
  const [before, after] = [pathsOf(old), pathsOf(now)];
  for (let n = 0; n < Math.max(before.length, after.length); n++) {
    comparePaths(before[n]?.positions ?? [], rotated(after[n], before[n]?.positions[0]), found);
  }
  return found;
}

function pathsOf(geometry: Geometry | null): Path[] {
  switch (geometry?.type) {
    case undefined:
      return [];
    case 'Point':
      return [{ positions: [geometry.coordinates], isClosed: false }];
    case 'MultiPoint':
    case 'LineString':
      return [{ positions: geometry.coordinates, isClosed: false }];
    case 'MultiLineString':
      return geometry.coordinates.map((positions) => ({ positions, isClosed: false }));
    case 'Polygon':
      return geometry.coordinates.map(ring);
    case 'MultiPolygon':
      return geometry.coordinates.flat().map(ring);
    case 'GeometryCollection':
      return geometry.geometries.flatMap(pathsOf);
  }
}

/** Return a ring without its last position, which repeats the first one. */
function ring(positions: readonly Position[]): Path {
  return { positions: positions.slice(0, -1), isClosed: true };
}

/** Return the positions of a path; a ring begins where the other one does, if it has that vertex. */
function rotated(path: Path | undefined, first: Position | undefined): readonly Position[] {
  const positions = path?.positions ?? [];
  if (!path?.isClosed || !first) return positions;
  const start = positions.findIndex((position) => isSame(position, first));
  return start > 0 ? [...positions.slice(start), ...positions.slice(0, start)] : positions;
}

function comparePaths(before: readonly Position[], after: readonly Position[], found: Found): void {
  let start = 0;
  while (start < before.length && start < after.length && isSame(before[start], after[start])) start++;
  let end = 0;
  const rest = Math.min(before.length, after.length) - start;
  while (end < rest && isSame(before.at(-1 - end), after.at(-1 - end))) end++;
  found.kept.push(...before.slice(0, start), ...before.slice(before.length - end));
  const [old, now] = [before.slice(start, before.length - end), after.slice(start, after.length - end)];
  if (old.length * now.length > PAIRS_MAX) compareSets(old, now, found);
  else compareMiddle(old, now, found);
}

/** Compare by the longest common subsequence; a gap of equal lengths on both sides is a move. */
function compareMiddle(old: readonly Position[], now: readonly Position[], found: Found): void {
  const width = now.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  const at = (i: number, j: number) => lengths[i * width + j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      lengths[i * width + j] = isSame(old[i], now[j]) ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  let [removed, added]: [Position[], Position[]] = [[], []];
  const close = (): void => {
    if (removed.length === added.length) {
      removed.forEach((position, n) => found.moved.push([position, added[n] ?? position]));
    } else {
      found.removed.push(...removed);
      found.added.push(...added);
    }
    [removed, added] = [[], []];
  };
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    const [a, b] = [old[i], now[j]];
    if (a && b && isSame(a, b)) {
      close();
      found.kept.push(a);
      i++;
      j++;
    } else if (b && (!a || at(i, j + 1) >= at(i + 1, j))) {
      added.push(b);
      j++;
    } else if (a) {
      removed.push(a);
      i++;
    }
  }
  close();
}

function compareSets(old: readonly Position[], now: readonly Position[], found: Found): void {
  const key = (position: Position) => position.join();
  const [before, after] = [new Set(old.map(key)), new Set(now.map(key))];
  found.kept.push(...old.filter((position) => after.has(key(position))));
  found.removed.push(...old.filter((position) => !after.has(key(position))));
  found.added.push(...now.filter((position) => !before.has(key(position))));
}

function isSame(a: Position | undefined, b: Position | undefined): boolean {
  return a !== undefined && b !== undefined && a[0] === b[0] && a[1] === b[1];
}
