/** Boxes of geometries. */

import type { Geometry, Position } from 'geojson';

export type Box = [west: number, south: number, east: number, north: number];

/** Return the box around geometries, or null if they have no position. */
export function boxOf(...geometries: readonly (Geometry | null)[]): Box | null {
  let box: Box | null = null;
  const take = ([x = 0, y = 0]: Position): void => {
    box = box
      ? [Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y)]
      : [x, y, x, y];
  };
  for (const geometry of geometries) if (geometry) eachPosition(geometry, take);
  return box;
}

/** Return the centre of the box around a geometry. */
export function centerOf(geometry: Geometry): readonly [number, number] | null {
  const box = boxOf(geometry);
  return box && [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
}

/** Return all positions of a geometry. */
export function positionsOf(geometry: Geometry): Position[] {
  const found: Position[] = [];
  eachPosition(geometry, (position) => found.push(position));
  return found;
}

function eachPosition(geometry: Geometry, take: (position: Position) => void): void {
  if (geometry.type === 'GeometryCollection') {
    for (const part of geometry.geometries) eachPosition(part, take);
  } else {
    walk(geometry.coordinates, take);
  }
}

type Nested = Position | readonly Nested[];

function walk(coordinates: Nested, take: (position: Position) => void): void {
  if (typeof coordinates[0] === 'number') take(coordinates as Position);
  else for (const part of coordinates as readonly Nested[]) walk(part, take);
}
