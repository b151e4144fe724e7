/** Changes on the map: created, changed and deleted features, and the vertices of the chosen one. */

import type { Feature, FeatureCollection, Geometry, Position } from 'geojson';
import type {
  ExpressionSpecification,
  FilterSpecification,
  GeoJSONSource,
  LayerSpecification,
  Map as MapLibreMap,
  PointLike,
} from 'maplibre-gl';
import type { Change, ChangeAction } from '../api/diff';
import { centerOf } from '../map/geometry';
import type { MapPart } from '../map/map_view';
import type { Palette } from '../map/palette';
import { ACTIONS, hatchImage, KINDS, MARK_RATIO, markImage } from './marks';
import { vertexDiff } from './vertices';

/** Which side of the comparison a map shows. */
export type Side = 'both' | 'old' | 'new';

const SHAPES = 'changes-shapes';
const MARKS = 'changes-marks';
const VERTICES = 'changes-vertices';
const VEIL = 'changes-veil';
const SOURCES = [SHAPES, MARKS, VERTICES] as const;
const PICKED_LAYERS = ['changes-marks', 'changes-lines-created', 'changes-lines-updated', 'changes-lines-deleted', 'changes-fills'];
const NOT_POINTS: FilterSpecification = ['!=', ['geometry-type'], 'Point'];
/** Distance in pixels within which a click reaches a change. */
const REACH = 5;
/** Dashes of outlines, in line widths; created features have solid lines. */
const DASHES: Readonly<Partial<Record<ChangeAction, number[]>>> = { updated: [4, 1.2], deleted: [1.2, 1.2] };

export class ChangeLayers implements MapPart {
  readonly #side: Side;
  #changes: readonly Change[] = [];
  #chosen: Change | undefined;
  #map: MapLibreMap | null = null;

  constructor(side: Side) {
    this.#side = side;
  }

  attach(map: MapLibreMap, palette: Palette): void {
    this.#map = map;
    for (const action of ACTIONS) {
      replaceImage(map, `change-${action}`, markImage(action, palette), MARK_RATIO);
      replaceImage(map, `hatch-${action}`, hatchImage(action, palette), 2);
    }
    for (const source of SOURCES) map.addSource(source, { type: 'geojson', data: this.#data(source) });
    for (const layer of layers(palette)) map.addLayer(layer);
  }

  detach(map: MapLibreMap): void {
    for (const layer of map.getStyle().layers) {
      if ('source' in layer && (SOURCES as readonly string[]).includes(layer.source)) map.removeLayer(layer.id);
    }
    map.removeLayer(VEIL);
    for (const source of SOURCES) map.removeSource(source);
    this.#map = null;
  }

  lost(): void {
    this.#map = null;
  }

  /** Show other changes. */
  show(changes: readonly Change[]): void {
    this.#changes = changes;
    this.#load(SHAPES);
    this.#load(MARKS);
  }

  /** Show the vertices of a change. */
  choose(change: Change | undefined): void {
    this.#chosen = change;
    this.#load(VERTICES);
  }

  /** Return the id of the change at a point of the map. */
  at(point: { x: number; y: number }): string | null {
    const map = this.#map;
    if (!map?.getLayer('changes-marks')) return null;
    const box: [PointLike, PointLike] = [
      [point.x - REACH, point.y - REACH],
      [point.x + REACH, point.y + REACH],
    ];
    const [found] = map.queryRenderedFeatures(box, { layers: PICKED_LAYERS });
    return found ? String(found.properties['change']) : null;
  }

  #load(source: (typeof SOURCES)[number]): void {
    this.#map?.getSource<GeoJSONSource>(source)?.setData(this.#data(source));
  }

  #data(source: (typeof SOURCES)[number]): FeatureCollection {
    if (source === VERTICES) return collection(this.#chosen ? vertexFeatures(this.#chosen, this.#side) : []);
    const of = source === SHAPES ? shapeFeatures : markFeatures;
    return collection(this.#changes.flatMap((change) => of(change, this.#side)));
  }
}

function replaceImage(map: MapLibreMap, name: string, image: ImageData, pixelRatio: number): void {
  if (map.hasImage(name)) map.removeImage(name);
  map.addImage(name, image, { pixelRatio });
}

function collection(features: Feature[]): FeatureCollection {
  return { type: 'FeatureCollection', features };
}

function drawn(geometry: Geometry, properties: Record<string, unknown>): Feature {
  return { type: 'Feature', geometry, properties };
}

/** Return the geometry of a change that a side shows. */
function geometryOf(change: Change, side: Side): Geometry | null {
  if (side === 'old') return change.old?.geometry ?? null;
  const now = change.new?.geometry ?? null;
  return side === 'new' || change.action !== 'deleted' ? now : (change.old?.geometry ?? null);
}

function shapeFeatures(change: Change, side: Side): Feature[] {
  const found: Feature[] = [];
  const geometry = geometryOf(change, side);
  const about = { change: change.id, action: change.action };
  if (geometry) found.push(drawn(geometry, { ...about, role: 'now' }));
  if (side !== 'both' || change.action !== 'updated' || !isGeometryChanged(change)) return found;
  const old = change.old?.geometry;
  if (!old) return found;
  found.push(drawn(old, { ...about, role: 'before' }));
  if (old.type === 'Point' && geometry?.type === 'Point') {
    const coordinates = [old.coordinates, geometry.coordinates];
    found.push(drawn({ type: 'LineString', coordinates }, { ...about, role: 'way' }));
  }
  return found;
}

/** Return whether a change is one of the geometry. */
export function isGeometryChanged(change: Change): boolean {
  return change.paths.some((path) => path === '/geometry' || path.startsWith('/geometry/'));
}

function markFeatures(change: Change, side: Side): Feature[] {
  const geometry = geometryOf(change, side);
  const coordinates = geometry && anchorOf(geometry);
  if (!coordinates) return [];
  return [drawn({ type: 'Point', coordinates }, { change: change.id, action: change.action })];
}

/** Return where the mark of a geometry is: on a line its middle vertex, else its centre. */
function anchorOf(geometry: Geometry): Position | null {
  if (geometry.type === 'LineString') {
    const line = geometry.coordinates;
    const [a, b] = [line[(line.length - 1) >> 1], line[line.length >> 1]];
    return a && b ? [((a[0] ?? 0) + (b[0] ?? 0)) / 2, ((a[1] ?? 0) + (b[1] ?? 0)) / 2] : null;
  }
  const center = centerOf(geometry);
  return center && [...center];
}

function vertexFeatures(change: Change, side: Side): Feature[] {
  const [old, now] = [change.old?.geometry ?? null, change.new?.geometry ?? null];
  const { kept, added, removed, moved } = vertexDiff(old, now);
  const points = (positions: readonly Position[], role: string): Feature[] =>
    positions.map((coordinates) => drawn({ type: 'Point', coordinates }, { role }));
  const found = points(kept, 'kept');
  const [befores, afters] = [moved.map(([from]) => from), moved.map(([, to]) => to)];
  if (side !== 'new') found.push(...points(removed, 'removed'), ...points(befores, 'moved-from'));
  if (side !== 'old') found.push(...points(added, 'added'), ...points(afters, 'moved-to'));
  if (side === 'both') {
    found.push(...moved.map(([from, to]) => drawn({ type: 'LineString', coordinates: [from, to] }, { role: 'move' })));
  }
  const geometry = geometryOf(change, side);
  if (geometry) found.push(drawn(geometry, { role: 'chosen' }));
  return found;
}

function layers(palette: Palette): LayerSpecification[] {
  const byAction = (of: (action: ChangeAction) => string): ExpressionSpecification =>
    ['match', ['get', 'action'], 'created', of('created'), 'deleted', of('deleted'), of('updated')] as ExpressionSpecification;
  const color = byAction((action) => palette[KINDS[action].color]);
  const role = (...names: string[]): FilterSpecification => ['in', ['get', 'role'], ['literal', names]];
  const outline = (action: ChangeAction): LayerSpecification => ({
    id: `changes-lines-${action}`,
    type: 'line',
    source: SHAPES,
    filter: ['all', role('now'), NOT_POINTS, ['==', ['get', 'action'], action]] as FilterSpecification,
    layout: { 'line-join': 'round' },
    paint: {
      'line-color': palette[KINDS[action].color],
      'line-width': 3.2,
      ...(DASHES[action] ? { 'line-dasharray': DASHES[action] } : {}),
    },
  });
  return [
    {
      // What has not changed steps back.
      id: VEIL,
      type: 'background',
      paint: { 'background-color': palette.land, 'background-opacity': 0.6 },
    },
    {
      id: 'changes-fills',
      type: 'fill',
      source: SHAPES,
      filter: ['all', role('now'), ['==', ['geometry-type'], 'Polygon']] as FilterSpecification,
      paint: { 'fill-color': color, 'fill-opacity': 0.16 },
    },
    {
      id: 'changes-hatches',
      type: 'fill',
      source: SHAPES,
      filter: [
        'all',
        role('now'),
        ['==', ['geometry-type'], 'Polygon'],
        ['!=', ['get', 'action'], 'created'],
      ] as FilterSpecification,
      paint: { 'fill-pattern': byAction((action) => `hatch-${action}`) },
    },
    {
      id: 'changes-casings',
      type: 'line',
      source: SHAPES,
      filter: ['all', role('now'), NOT_POINTS] as FilterSpecification,
      layout: { 'line-join': 'round' },
      paint: { 'line-color': palette.casing, 'line-width': 6 },
    },
    {
      id: 'changes-before',
      type: 'line',
      source: SHAPES,
      filter: ['all', role('before', 'way'), NOT_POINTS] as FilterSpecification,
      paint: { 'line-color': palette.changed, 'line-width': 1.8, 'line-dasharray': [1, 1.6] },
    },
    ...ACTIONS.map(outline),
    {
      id: 'changes-before-points',
      type: 'circle',
      source: SHAPES,
      filter: ['all', role('before'), ['==', ['geometry-type'], 'Point']] as FilterSpecification,
      paint: {
        'circle-radius': 4,
        'circle-color': palette.casing,
        'circle-stroke-color': palette.changed,
        'circle-stroke-width': 2,
      },
    },
    {
      id: 'changes-marks',
      type: 'symbol',
      source: MARKS,
      layout: {
        'icon-image': byAction((action) => `change-${action}`),
        'icon-size': ['interpolate', ['linear'], ['zoom'], 2, 0.6, 7, 0.9, 12, 1.15],
        'icon-allow-overlap': true,
        'icon-ignore-placement': true,
      },
    },
    ...vertexLayers(palette, role),
  ];
}

function vertexLayers(palette: Palette, role: (...names: string[]) => FilterSpecification): LayerSpecification[] {
  const circle = (name: string, color: string, radius: number, isHollow = false): LayerSpecification => ({
    id: `changes-vertices-${name}`,
    type: 'circle',
    source: VERTICES,
    filter: role(name),
    paint: {
      'circle-radius': radius,
      'circle-color': isHollow ? palette.casing : color,
      'circle-stroke-color': isHollow ? color : palette.casing,
      'circle-stroke-width': isHollow ? 2 : 1.5,
    },
  });
  const icon = (name: string, action: ChangeAction): LayerSpecification => ({
    id: `changes-vertices-${name}`,
    type: 'symbol',
    source: VERTICES,
    filter: role(name),
    layout: { 'icon-image': `change-${action}`, 'icon-size': 0.7, 'icon-allow-overlap': true, 'icon-ignore-placement': true },
  });
  return [
    {
      id: 'changes-chosen',
      type: 'line',
      source: VERTICES,
      filter: ['all', role('chosen'), NOT_POINTS] as FilterSpecification,
      paint: { 'line-color': palette.selected, 'line-width': 2, 'line-gap-width': 6 },
    },
    {
      id: 'changes-chosen-point',
      type: 'circle',
      source: VERTICES,
      filter: ['all', role('chosen'), ['==', ['geometry-type'], 'Point']] as FilterSpecification,
      paint: {
        'circle-radius': 13,
        'circle-opacity': 0,
        'circle-stroke-color': palette.selected,
        'circle-stroke-width': 2.5,
      },
    },
    {
      id: 'changes-moves',
      type: 'line',
      source: VERTICES,
      filter: role('move'),
      paint: { 'line-color': palette.changed, 'line-width': 2 },
    },
    circle('kept', palette.label, 3),
    circle('moved-from', palette.changed, 4, true),
    icon('moved-to', 'updated'),
    icon('added', 'created'),
    icon('removed', 'deleted'),
  ];
}
