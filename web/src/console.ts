/** A handle for the browser's console and for tests: `naksha` in the window. */

import type { MapView } from './map/map_view';
import { featuresInView } from './map/space_layers';
import { spaces, statistics, tags, timeline } from './state/data';
import { isLookLoading } from './state/look';
import { view } from './state/view';

/** Offer a map under the name `naksha`. */
export function offerConsole(mapView: MapView): void {
  const loaded = [spaces, statistics, tags, timeline];
  Object.assign(window, {
    naksha: {
      mapView,
      view,
      /** Ids of the features that the map shows. */
      shownIds: () => [...new Set(featuresInView(mapView.map).map(({ id }) => id))],
      /** Whether everything that is shown has been loaded and drawn. */
      isIdle: () =>
        mapView.isIdle &&
        loaded.every(({ value }) => value.state !== 'loading') &&
        !isLookLoading.value &&
        document.fonts.status === 'loaded',
    },
  });
}
