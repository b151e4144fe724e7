/** The features of a space on the map, from its vector tiles. */

import type {
  ExpressionSpecification,
  FilterSpecification,
  LayerSpecification,
  Map as MapLibreMap,
  SymbolLayerSpecification,
  VectorTileSource,
} from 'maplibre-gl';
import { supersedeTiles, tileTemplate, type TileQuery } from '../api/tiles';
import { FIRST_LABEL_LAYER, LABEL_FONT } from './basemap';
import type { MapPart } from './map_view';
import type { Palette } from './palette';

/** How features look. */
export interface SpaceStyle {
  /** Property whose values have colours; null colours by geometry type. */
  readonly colorBy: string | null;
  /** The most frequent values of that property, in the order of the palette's colours. */
  readonly values: readonly string[];
  /** Property with the text of labels. */
  readonly labelBy: string | null;
}

export const SPACE_SOURCE = 'space';
const POLYGONS: FilterSpecification = ['==', ['geometry-type'], 'Polygon'];
const LINES: FilterSpecification = ['==', ['geometry-type'], 'LineString'];
const POINTS: FilterSpecification = ['==', ['geometry-type'], 'Point'];
/** Layers that a click on the map tests, the uppermost first. */
export const FEATURE_LAYERS = ['space-points', 'space-lines', 'space-polygons'] as const;

export class SpaceLayers implements MapPart {
  #query: TileQuery;
  #style: SpaceStyle;
  #map: MapLibreMap | null = null;
  #palette: Palette | null = null;

  constructor(query: TileQuery, style: SpaceStyle) {
    this.#query = query;
    this.#style = style;
  }

  attach(map: MapLibreMap, palette: Palette): void {
    this.#map = map;
    this.#palette = palette;
    const template = tileTemplate(this.#query, SPACE_SOURCE);
    supersedeTiles(null, template);
    map.addSource(SPACE_SOURCE, {
      type: 'vector',
      tiles: [template],
      minzoom: 0,
      maxzoom: 16,
      promoteId: 'id',
    });
    const before = map.getLayer(FIRST_LABEL_LAYER) ? FIRST_LABEL_LAYER : undefined;
    for (const layer of this.#layers(palette)) map.addLayer(layer, before);
    for (const layer of this.#labels(palette)) map.addLayer(layer);
  }

  detach(map: MapLibreMap): void {
    for (const layer of map.getStyle().layers) {
      if ('source' in layer && layer.source === SPACE_SOURCE) map.removeLayer(layer.id);
    }
    map.removeSource(SPACE_SOURCE);
    this.#map = null;
  }

  lost(): void {
    this.#map = null;
  }

  /** Show other tiles; those of before stay until the new ones have been loaded. */
  show(query: TileQuery): void {
    const before = tileTemplate(this.#query, SPACE_SOURCE);
    const now = tileTemplate(query, SPACE_SOURCE);
    const isOther = query.space !== this.#query.space;
    this.#query = query;
    if (now === before) return;
    supersedeTiles(before, now);
    if (!this.#map || !this.#palette) return;
    if (isOther) {
      const map = this.#map;
      this.detach(map);
      this.attach(map, this.#palette);
      return;
    }
    this.reload();
  }

  /** Request the tiles again. */
  reload(): void {
    this.#map?.getSource<VectorTileSource>(SPACE_SOURCE)?.setTiles([tileTemplate(this.#query, SPACE_SOURCE)]);
  }

  /** Change the look of the features. */
  restyle(style: SpaceStyle): void {
    this.#style = style;
    const map = this.#map;
    if (!map || !this.#palette) return;
    for (const layer of [...this.#layers(this.#palette), ...this.#labels(this.#palette)]) {
      for (const [name, value] of Object.entries(layer.paint ?? {})) {
        map.setPaintProperty(layer.id, name as never, value as never);
      }
      if (layer.type === 'symbol') map.setLayoutProperty(layer.id, 'text-field', layer.layout?.['text-field']);
    }
  }

  #color(palette: Palette, byType: string): ExpressionSpecification | string {
    const { colorBy, values } = this.#style;
    if (colorBy === null || values.length === 0) return colorBy === null ? byType : palette.otherValue;
    const pairs = values.flatMap((value, n) => [value, palette.values[n] ?? palette.otherValue]);
    return ['match', ['to-string', ['get', colorBy]], ...pairs, palette.otherValue] as unknown as ExpressionSpecification;
  }

  #layers(palette: Palette): LayerSpecification[] {
    const source = { source: SPACE_SOURCE, 'source-layer': this.#query.space };
    const width = (base: number): ExpressionSpecification =>
      ['interpolate', ['linear'], ['zoom'], 4, base * 0.6, 10, base, 16, base * 2.4];
    const polygon = this.#color(palette, palette.polygon);
    return [
      { id: 'space-polygons', type: 'fill', ...source, filter: POLYGONS, paint: { 'fill-color': polygon, 'fill-opacity': 0.32 } },
      { id: 'space-outlines', type: 'line', ...source, filter: POLYGONS, paint: { 'line-color': polygon, 'line-width': width(1.4) } },
      {
        id: 'space-casings',
        type: 'line',
        ...source,
        filter: LINES,
        layout: { 'line-cap': 'round', 'line-join': 'round' },
        paint: { 'line-color': palette.casing, 'line-width': width(4.4), 'line-opacity': 0.8 },
      },
      {
        id: 'space-lines',
        type: 'line',
        ...source,
        filter: LINES,
        layout: { 'line-cap': 'round', 'line-join': 'round' },
        paint: { 'line-color': this.#color(palette, palette.line), 'line-width': width(2.4) },
      },
      {
        id: 'space-points',
        type: 'circle',
        ...source,
        filter: POINTS,
        paint: {
          'circle-color': this.#color(palette, palette.point),
          'circle-radius': ['interpolate', ['linear'], ['zoom'], 2, 2.2, 6, 4, 12, 6.5],
          'circle-stroke-color': palette.casing,
          'circle-stroke-width': ['interpolate', ['linear'], ['zoom'], 2, 0.5, 8, 1.4],
        },
      },
    ];
  }

  #labels(palette: Palette): SymbolLayerSpecification[] {
    const { labelBy } = this.#style;
    const text: SymbolLayerSpecification['layout'] = {
      'text-field': labelBy === null ? '' : ['to-string', ['get', labelBy]],
      'text-font': LABEL_FONT,
      'text-size': 12,
    };
    const layer = {
      type: 'symbol',
      source: SPACE_SOURCE,
      'source-layer': this.#query.space,
      minzoom: 8,
      paint: { 'text-color': palette.label, 'text-halo-color': palette.labelHalo, 'text-halo-width': 1.4 },
    } as const;
    return [
      {
        ...layer,
        id: 'space-line-labels',
        filter: LINES,
        layout: { ...text, 'symbol-placement': 'line', 'symbol-spacing': 400, 'text-offset': [0, 1] },
      },
      {
        ...layer,
        id: 'space-labels',
        filter: ['!', LINES] as FilterSpecification,
        layout: {
          ...text,
          'text-variable-anchor': ['top', 'bottom', 'left', 'right'],
          'text-radial-offset': 0.8,
          'text-max-width': 9,
          'text-padding': 6,
        },
      },
    ];
  }
}

/** Return the features of the space that the map has loaded. */
export function featuresInView(map: MapLibreMap): { id: string; properties: Record<string, unknown> }[] {
  if (!map.getSource(SPACE_SOURCE)) return [];
  const layers = FEATURE_LAYERS.filter((id) => map.getLayer(id));
  return map.queryRenderedFeatures({ layers }).map(({ id, properties }) => ({ id: String(id), properties }));
}
