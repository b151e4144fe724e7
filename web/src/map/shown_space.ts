/** Keep the layers of the map the same as the view: space, version, filter and look. */

import { revision, statistics } from '../state/data';
import { filterQuery } from '../state/filter';
import { spaceStyle } from '../state/look';
import { type View, versionRef, view } from '../state/view';
import type { TileQuery } from '../api/tiles';
import { type MapView, WORLD } from './map_view';
import { SpaceLayers } from './space_layers';

/** Follow the view from now on; returns the function that ends this. */
export function bindSpaceLayers(mapView: MapView): () => void {
  let shown: SpaceLayers | null = null;
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
    spaceStyle.subscribe((style) => shown?.restyle(style)),
    statistics.subscribe(fit),
  ];
  follow();
  fit();
  return () => {
    for (const end of ends) end();
    remove?.();
  };
}

function tileQuery(of: View): TileQuery | null {
  if (of.space === null) return null;
  return {
    space: of.space,
    versionRef: versionRef(of),
    filter: filterQuery(of.filter),
    revision: revision.value,
  };
}
