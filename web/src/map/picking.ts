/** Clicks on features of the map select them. */

import type { Map as MapLibreMap, MapMouseEvent } from 'maplibre-gl';
import { view } from '../state/view';
import type { MapView } from './map_view';
import { FEATURE_LAYERS } from './space_layers';

/** Distance in pixels within which a click reaches a feature. */
const REACH = 5;

/** Handles a click before the feature below it is selected; returns whether it took the click. */
export type ClickHandler = (event: MapMouseEvent) => boolean;

const handlers: ClickHandler[] = [];

/** Let a function see clicks first, such as a tool for drawing; returns the function that ends this. */
export function takeClicks(handler: ClickHandler): () => void {
  handlers.unshift(handler);
  return () => {
    handlers.splice(handlers.indexOf(handler), 1);
  };
}

/** Select features by clicks from now on. */
export function bindPicking({ map }: MapView): void {
  map.on('click', (event) => {
    if (handlers.some((handler) => handler(event))) return;
    const id = featureAt(map, event);
    view.update({ feature: id });
  });
  map.on('mousemove', (event) => {
    if (handlers.length > 0) return;
    map.getCanvas().style.cursor = featureAt(map, event) === null ? '' : 'pointer';
  });
}

function featureAt(map: MapLibreMap, { point: { x, y } }: MapMouseEvent): string | null {
  const layers = FEATURE_LAYERS.filter((id) => map.getLayer(id));
  if (layers.length === 0) return null;
  const found = map.queryRenderedFeatures(
    [
      [x - REACH, y - REACH],
      [x + REACH, y + REACH],
    ],
    { layers },
  );
  const id = found[0]?.id;
  return id === undefined ? null : String(id);
}
