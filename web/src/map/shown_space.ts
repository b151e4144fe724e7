/** Keep the layers of the map the same as the view: space, version, filter and look. */

import { revision, spaces, statistics } from '../state/data';
import { filterQuery, isEverything } from '../state/filter';
import { spaceStyle } from '../state/look';
import { type FeatureFilter, type View, versionRef, view } from '../state/view';
import { TILE_FEATURES_MAX, type TileQuery } from '../api/tiles';
import type { Statistics } from '../api/types';
import { type MapView, WORLD } from './map_view';
import { SpaceLayers } from './space_layers';

/** Spaces with more features have tiles with the properties that are shown only. */
const ALL_PROPERTIES_MAX = 20_000;

let shown: SpaceLayers | null = null;

/** Request the tiles of the shown space again, after an error. */
export function reloadTiles(): void {
  shown?.reload();
}

/** Follow the view from now on; returns the function that ends this. */
export function bindSpaceLayers(mapView: MapView): () => void {
  let remove: (() => void) | null = null;

  const follow = (): void => {
    const query = tileQuery(view.value);
    if (query && shown) {
      shown.show(query);
    } else if (query) {
      shown = new SpaceLayers(query, spaceStyle.value);
      remove = mapView.add(shown);
    } else {
      remove?.();
      shown = remove = null;
    }
  };
  // The space to show as a whole, as soon as its extent is known.
  let pending = view.value.camera ? null : view.value.space;
  const fit = (): void => {
    const found = statistics.value;
    if (pending === null || pending !== view.value.space || found.state !== 'ready') return;
    pending = null;
    const box = found.value.bbox.value;
    if (box) mapView.fit([box[0], box[1], box[2], box[3]]);
    else mapView.flyTo(WORLD);
  };
  const ends = [
    view.subscribe((now, before) => {
      follow();
      if (now.camera !== null || (now.space === before.space && before.camera === null)) return;
      pending = now.space;
      fit();
    }),
    revision.subscribe(follow),
    spaceStyle.subscribe((style) => {
      shown?.restyle(style);
      follow();
    }),
    statistics.subscribe(() => {
      follow();
      fit();
    }),
  ];
  follow();
  fit();
  return () => {
    for (const end of ends) end();
    remove?.();
    shown = null;
  };
}

/** Return the query of the tiles that a view shows. */
export function tileQuery(of: View): TileQuery | null {
  if (of.space === null) return null;
  return {
    space: of.space,
    versionRef: versionRef(of),
    filter: filterQuery(of.filter),
    completeZoom: sampledBelow(of.filter),
    properties: isLarge(of.space) ? shownProperties() : null,
    revision: revision.value,
  };
}

/** Return the zoom below which the map shows a sample; a filter is expected to leave few features. */
export function sampledBelow(filter: FeatureFilter): number {
  const known = statistics.current;
  return known && isEverything(filter) ? completeZoom(known) : 0;
}

function isLarge(id: string): boolean {
  const listed = spaces.current?.find((space) => space.id === id)?.featureCount;
  return (listed ?? statistics.current?.count.value ?? 0) > ALL_PROPERTIES_MAX;
}

function shownProperties(): string[] {
  const { labelBy, colorBy } = spaceStyle.value;
  return [...new Set([labelBy, colorBy])].filter((name) => name !== null);
}

/** Return the zoom from which a tile has room for its features, if they are evenly spread. */
function completeZoom({ count, bbox }: Statistics): number {
  if (count.value <= TILE_FEATURES_MAX || !bbox.value) return 0;
  const [west, south, east, north] = bbox.value;
  for (let zoom = 0; zoom < 16; zoom++) {
    const width = 360 / 2 ** zoom;
    const tiles = Math.max(1, (east - west) / width) * Math.max(1, (north - south) / width);
    if (count.value / tiles <= TILE_FEATURES_MAX) return zoom;
  }
  return 16;
}
