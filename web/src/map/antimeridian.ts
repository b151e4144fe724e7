/** Polygons that cross the antimeridian, or contain a pole, for a flat map. */

import type { Geometry, Position } from 'geojson';

/** Return a geometry whose rings do not jump from one edge of the map to the other. */
export function unwrapped<G extends Geometry>(geometry: G): G {
  if (geometry.type === 'Polygon') {
    return { ...geometry, coordinates: geometry.coordinates.map(unwrappedRing) };
  }
  if (geometry.type === 'MultiPolygon') {
    return { ...geometry, coordinates: geometry.coordinates.map((rings) => rings.map(unwrappedRing)) };
  }
  return geometry;
}

function unwrappedRing(ring: Position[]): Position[] {
  let turns = 0;
  let before: number | null = null;
  const found = ring.map(([x = 0, y = 0]): Position => {
    if (before !== null && Math.abs(x - before) > 180) turns += x > before ? -360 : 360;
    before = x;
    return [x + turns, y];
  });
  const [first, last] = [found[0], found.at(-1)];
  if (turns === 0 || !first || !last) return found;
  // It goes around a pole: close it there.
  const pole = (first[1] ?? 0) < 0 ? -90 : 90;
  return [...found, [last[0] ?? 0, pole], [first[0] ?? 0, pole], first];
}
