/** Notices above the map: tiles that cannot be loaded, and a map that shows a sample. */

import { useEffect, useState } from 'preact/hooks';
import { tileFailure } from '../api/tiles';
import { statistics } from '../state/data';
import { useStore } from '../state/store';
import { view } from '../state/view';
import { counted } from '../ui/format';
import { ErrorNote } from '../ui/parts';
import type { MapView } from './map_view';
import { reloadTiles, sampledBelow } from './shown_space';

export function MapNotice({ mapView }: { mapView: MapView }) {
  const failure = useStore(tileFailure);
  const found = useStore(statistics);
  const { filter } = useStore(view);
  const zoom = useZoom(mapView);
  const known = found.state === 'ready' ? found.value : null;
  if (failure !== null) {
    return (
      <div class="map-notice">
        <ErrorNote error={failure} onRetry={reloadTiles} />
      </div>
    );
  }
  if (!known || zoom >= sampledBelow(filter)) return null;
  return (
    <p class="map-notice note" role="status">
      A sample is shown. Zoom in to see all of the {counted(known.count.value, 'feature')}.
    </p>
  );
}

function useZoom({ map }: MapView): number {
  const [zoom, setZoom] = useState(Math.floor(map.getZoom()));
  useEffect(() => {
    const update = () => setZoom(Math.floor(map.getZoom()));
    map.on('zoomend', update);
    return () => {
      map.off('zoomend', update);
    };
  }, [map]);
  return zoom;
}
