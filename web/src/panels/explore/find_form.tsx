/** Find features by id or text: anywhere by their beginning, in view by any part. */

import { useState } from 'preact/hooks';
import { searchFeatures } from '../../api/spaces';
import type { Feature, Space } from '../../api/types';
import { centerOf } from '../../map/geometry';
import type { MapView } from '../../map/map_view';
import { featuresInView } from '../../map/space_layers';
import { useLoaded } from '../../state/loading';
import { labelOf, labelProperties } from '../../state/look';
import { useStore } from '../../state/store';
import { versionRef, view } from '../../state/view';
import { Button, ErrorNote, Field, Loading } from '../../ui/parts';

/** A feature that was found. */
interface Hit {
  readonly id: string;
  readonly label: string;
  readonly detail: string;
  readonly center: readonly [number, number] | null;
}

const HITS_MAX = 30;
const HITS_PER_SEARCH = 10;
/** Time for the map to load what is in view, before it is searched. */
const VIEW_MILLISECONDS = 3_000;

export function FindForm({ mapView, space }: { mapView: MapView; space: Space }) {
  const shown = useStore(view);
  const [text, setText] = useState('');
  const [wanted, setWanted] = useState('');
  const ref = versionRef(shown);
  const [found, again] = useLoaded(
    wanted ? (signal) => find(mapView, space.id, ref, wanted, signal) : null,
    [space.id, ref, wanted],
  );
  return (
    <>
      <form
        class="find-form"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          setWanted(text.trim());
        }}
      >
        <Field label="Id or text">
          <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </Field>
        <Button type="submit" icon="search">
          Find
        </Button>
      </form>
      {found.state === 'loading' && <Loading>Searching…</Loading>}
      {found.state === 'failed' && <ErrorNote error={found.error} onRetry={again} />}
      {found.state === 'ready' && found.value.length === 0 && (
        <p class="hint" role="status">
          No feature has the id “{wanted}”, begins with it in {labelProperties().join(', ') || 'its properties'}, or
          contains it on the map in view.
        </p>
      )}
      {found.state === 'ready' && found.value.length > 0 && (
        <ul class="list" aria-label="Features found">
          {found.value.map((hit) => (
            <li key={hit.id}>
              <button
                type="button"
                class="list-item"
                aria-current={hit.id === shown.feature ? 'true' : undefined}
                onClick={() => show(mapView, hit)}
              >
                <span class="list-title">{hit.label}</span>
                <span class="list-detail">{hit.detail}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function show(mapView: MapView, hit: Hit): void {
  view.update({ feature: hit.id });
  if (!hit.center) return;
  const [longitude, latitude] = hit.center;
  mapView.flyTo({ longitude, latitude, zoom: Math.max(mapView.camera.zoom, 11) });
}

async function find(
  mapView: MapView,
  space: string,
  ref: string,
  wanted: string,
  signal: AbortSignal,
): Promise<Hit[]> {
  // The hub compares letters exactly: as typed, as a name, and as a code.
  const capital = wanted.charAt(0).toUpperCase() + wanted.slice(1);
  const spellings = [...new Set([wanted, capital, wanted.toUpperCase()])];
  const value = spellings.map(encodeURIComponent).join(',');
  const conditions = [`f.id^=${value}`, ...labelProperties().map((name) => `p.${encodeURIComponent(name)}^=${value}`)];
  const pages = await Promise.all(
    conditions.map((one) =>
      searchFeatures(space, { versionRef: ref, conditions: one, limit: HITS_PER_SEARCH, signal }),
    ),
  );
  const hits = new Map<string, Hit>();
  for (const feature of pages.flat()) hits.set(feature.id, hitOf(feature));
  await mapView.whenIdle(VIEW_MILLISECONDS);
  const lower = wanted.toLowerCase();
  for (const { id, properties } of featuresInView(mapView.map)) {
    if (hits.size >= HITS_MAX) break;
    const matching = Object.entries(properties).find(([, text]) => String(text).toLowerCase().includes(lower));
    if (matching && !hits.has(id)) {
      hits.set(id, { id, label: labelOf(id, properties), detail: `${matching[0]}: ${matching[1]}`, center: null });
    }
  }
  const isExact = (hit: Hit) => Number(hit.id !== wanted);
  return [...hits.values()].sort((a, b) => isExact(a) - isExact(b) || a.label.localeCompare(b.label)).slice(0, HITS_MAX);
}

function hitOf(feature: Feature): Hit {
  const center = feature.geometry ? centerOf(feature.geometry) : null;
  return { id: feature.id, label: labelOf(feature.id, feature.properties), detail: feature.id, center };
}

