/** The outline of an area: the one that a list is restricted to, or that of a changeset. */

import type { Feature } from 'geojson';
import type { GeoJSONSource, Map as MapLibreMap } from 'maplibre-gl';
import type { Area } from '../api/diff';
import type { MapPart } from '../map/map_view';
import type { Palette } from '../map/palette';

export class AreaLayer implements MapPart {
  readonly #name: string;
  #area: Area | null = null;
  #map: MapLibreMap | null = null;

  constructor(name: string) {
    this.#name = `area-${name}`;
  }

  attach(map: MapLibreMap, palette: Palette): void {
    this.#map = map;
    map.addSource(this.#name, { type: 'geojson', data: this.#data() });
    map.addLayer({
      id: this.#name,
      type: 'line',
      source: this.#name,
      paint: { 'line-color': palette.selected, 'line-width': 1.5, 'line-dasharray': [4, 3] },
    });
  }

  detach(map: MapLibreMap): void {
    map.removeLayer(this.#name);
    map.removeSource(this.#name);
    this.#map = null;
  }

  lost(): void {
    this.#map = null;
  }

  show(area: Area | null): void {
    this.#area = area;
    this.#map?.getSource<GeoJSONSource>(this.#name)?.setData(this.#data());
  }

  #data(): Feature {
    const [w, s, e, n] = this.#area ?? [0, 0, 0, 0];
    const coordinates = this.#area ? [[[w, s], [e, s], [e, n], [w, n], [w, s]]] : [];
    return { type: 'Feature', properties: {}, geometry: { type: 'Polygon', coordinates } };
  }
}
