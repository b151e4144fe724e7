/** Filters of changes by author and by area, for comparisons and the log. */

import { useLayoutEffect, useMemo } from 'preact/hooks';
import type { Area } from '../api/diff';
import type { MapView } from '../map/map_view';
import { areaOf, setMore } from '../state/more';
import { useStore } from '../state/store';
import { view } from '../state/view';
import { Button, Field } from '../ui/parts';
import { AreaLayer } from './area_layer';

export function AuthorField() {
  const { more } = useStore(view);
  return (
    <Field label="Changed by" hint="Authors, separated by commas">
      <input
        type="text"
        value={more['by'] ?? ''}
        onChange={(event) => setMore({ by: event.currentTarget.value.trim() || null })}
      />
    </Field>
  );
}

/** A button that restricts a list to the area on the map, and the outline of that area. */
export function AreaField({ mapView }: { mapView: MapView }) {
  const area = areaOf(useStore(view));
  const layer = useMemo(() => new AreaLayer('filter'), []);
  useLayoutEffect(() => mapView.add(layer), [mapView]);
  useLayoutEffect(() => layer.show(area), [area?.join()]);
  return (
    <div class="button-row">
      <Button icon="target" pressed={area !== null} onClick={() => setMore({ area: extentOf(mapView).join() })}>
        {area ? 'Use the area in view' : 'Only in the area in view'}
      </Button>
      {area && (
        <Button kind="quiet" onClick={() => setMore({ area: null })}>
          Everywhere
        </Button>
      )}
    </div>
  );
}

function extentOf({ map }: MapView): Area {
  const bounds = map.getBounds();
  const [west, east] = [bounds.getWest(), bounds.getEast()];
  const isWorld = east - west >= 360;
  const wrap = (x: number) => ((((x + 180) % 360) + 360) % 360) - 180;
  const round = (x: number) => Math.round(x * 1e5) / 1e5;
  return [
    isWorld ? -180 : round(wrap(west)),
    round(Math.max(-90, bounds.getSouth())),
    isWorld ? 180 : round(wrap(east)),
    round(Math.min(90, bounds.getNorth())),
  ];
}
