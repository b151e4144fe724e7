/** GeoJSON on top of the map: the selected feature, and geometries before and after a change. */

import type { Feature, FeatureCollection, Geometry } from 'geojson';
import type { FilterSpecification, GeoJSONSource, LayerSpecification, Map as MapLibreMap } from 'maplibre-gl';
import type { MapPart } from './map_view';
import type { Palette } from './palette';

/** What a geometry of the overlay stands for; roles differ in colour and in shape. */
export type OverlayRole = 'selected' | 'before' | 'after';

export interface OverlayItem {
  readonly role: OverlayRole;
  readonly geometry: Geometry;
}

const POINTS: FilterSpecification = ['==', ['geometry-type'], 'Point'];
const NOT_POINTS: FilterSpecification = ['!=', ['geometry-type'], 'Point'];
const BEFORE = 'overlay-cross';

export class Overlay implements MapPart {
  readonly #source: string;
  #items: readonly OverlayItem[] = [];
  #map: MapLibreMap | null = null;

  constructor(name: string) {
    this.#source = `overlay-${name}`;
  }

  attach(map: MapLibreMap, palette: Palette): void {
    this.#map = map;
    map.addSource(this.#source, { type: 'geojson', data: this.#data() });
    if (map.hasImage(BEFORE)) map.removeImage(BEFORE);
    map.addImage(BEFORE, crossImage(palette.deleted, palette.casing), { pixelRatio: 2 });
    for (const layer of this.#layers(palette)) map.addLayer(layer);
  }

  detach(map: MapLibreMap): void {
    for (const layer of map.getStyle().layers) {
      if ('source' in layer && layer.source === this.#source) map.removeLayer(layer.id);
    }
    map.removeSource(this.#source);
    this.#map = null;
  }

  lost(): void {
    this.#map = null;
  }

  /** Show other items. */
  show(items: readonly OverlayItem[]): void {
    this.#items = items;
    this.#map?.getSource<GeoJSONSource>(this.#source)?.setData(this.#data());
  }

  #data(): FeatureCollection {
    const features = this.#items.map(
      ({ role, geometry }): Feature => ({ type: 'Feature', geometry, properties: { role } }),
    );
    return { type: 'FeatureCollection', features };
  }

  #layers(palette: Palette): LayerSpecification[] {
    const of = (role: OverlayRole, shape: FilterSpecification): FilterSpecification =>
      ['all', ['==', ['get', 'role'], role], shape] as FilterSpecification;
    const line = (role: OverlayRole, color: string, dashes?: number[]): LayerSpecification => ({
      id: `${this.#source}-${role}-lines`,
      type: 'line',
      source: this.#source,
      filter: of(role, NOT_POINTS),
      layout: { 'line-join': 'round' },
      paint: { 'line-color': color, 'line-width': 4, ...(dashes ? { 'line-dasharray': dashes } : {}) },
    });
    const ring = (role: OverlayRole, color: string): LayerSpecification => ({
      id: `${this.#source}-${role}-points`,
      type: 'circle',
      source: this.#source,
      filter: of(role, POINTS),
      paint: {
        'circle-radius': 9,
        'circle-opacity': 0,
        'circle-stroke-color': color,
        'circle-stroke-width': 3,
      },
    });
    return [
      line('selected', palette.selected),
      ring('selected', palette.selected),
      line('after', palette.created),
      ring('after', palette.created),
      line('before', palette.deleted, [1.5, 1.2]),
      {
        id: `${this.#source}-before-points`,
        type: 'symbol',
        source: this.#source,
        filter: of('before', POINTS),
        layout: { 'icon-image': BEFORE, 'icon-allow-overlap': true, 'icon-ignore-placement': true },
      },
    ];
  }
}

/** Draw a cross: the place of a point that is no longer there. */
function crossImage(color: string, casing: string): ImageData {
  const size = 40;
  const canvas = new OffscreenCanvas(size, size);
  const context = canvas.getContext('2d');
  if (!context) throw new Error('The browser cannot draw images for the map');
  context.lineCap = 'round';
  for (const [width, style] of [[12, casing], [6, color]] as const) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    context.moveTo(8, 8);
    context.lineTo(size - 8, size - 8);
    context.moveTo(size - 8, 8);
    context.lineTo(8, size - 8);
    context.stroke();
  }
  return context.getImageData(0, 0, size, size);
}
