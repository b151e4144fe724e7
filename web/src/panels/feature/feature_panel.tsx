/** The selected feature: its properties, and its whole history. */

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { getFeature, getHistory } from '../../api/spaces';
import { type Feature, NAMESPACE, namespaceOf, type Space } from '../../api/types';
import { boxOf } from '../../map/geometry';
import type { MapView } from '../../map/map_view';
import { Overlay, type OverlayItem } from '../../map/overlay';
import { revision } from '../../state/data';
import { useLoaded } from '../../state/loading';
import { labelOf } from '../../state/look';
import { useStore } from '../../state/store';
import { versionRef, view } from '../../state/view';
import { timeText, valueText } from '../../ui/format';
import { Button, ErrorNote, IconButton, Loading, Section } from '../../ui/parts';
import './feature.css';
import { HistoryList } from './history_list';

/** Zoom at which a point that moved by a metre is seen to have moved. */
const CLOSE_ZOOM = 18;

export function FeaturePanel({ mapView, space, id }: { mapView: MapView; space: Space; id: string }) {
  const shown = useStore(view);
  const changes = useStore(revision);
  const ref = versionRef(shown);
  const [found, again] = useLoaded((signal) => getFeature(space.id, id, ref, signal), [space.id, id, ref, changes]);
  const [steps, stepsAgain] = useLoaded(
    (signal) => getHistory(space.id, id, shown.branch, signal),
    [space.id, id, shown.branch, changes],
  );
  const [compared, setCompared] = useState<readonly OverlayItem[] | null>(null);
  useEffect(() => setCompared(null), [id, space.id]);
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    // A list entry that was activated is gone; the map keeps the focus.
    if (document.activeElement === document.body) heading.current?.focus({ preventScroll: true });
  }, []);
  const feature = found.state === 'ready' ? found.value : null;
  useOverlay(mapView, compared ?? selectedItems(feature));
  const last = steps.state === 'ready' ? steps.value.at(-1)?.feature : undefined;
  const named = feature ?? last;
  return (
    <>
      <div class="side-head">
        <IconButton icon="back" label="Back to the panel" onClick={() => view.update({ feature: null })} />
        <h2 ref={heading} tabIndex={-1}>{named ? labelOf(id, named.properties) : id}</h2>
        <IconButton
          icon="target"
          label="Show the feature on the map"
          disabled={!feature?.geometry}
          onClick={() => fit(mapView, feature)}
        />
      </div>
      <div class="side-body">
        {found.state === 'loading' && <Loading>Loading the feature…</Loading>}
        {found.state === 'failed' && <ErrorNote error={found.error} onRetry={again} />}
        {found.state === 'ready' && !feature && (
          <div class="note" role="status">
            <p>
              The feature <code>{id}</code> does not exist {shown.version === null ? 'now' : `at version ${shown.version}`}.
              Its history is below.
            </p>
          </div>
        )}
        {feature && <Properties feature={feature} />}
        <Section title="History">
          {steps.state === 'loading' && <Loading>Loading the history…</Loading>}
          {steps.state === 'failed' && <ErrorNote error={steps.error} onRetry={stepsAgain} />}
          {steps.state === 'ready' && (
            <HistoryList
              steps={steps.value}
              isComparing={compared !== null}
              onCompare={(items) => {
                setCompared(items);
                const box = boxOf(...(items ?? []).map((item) => item.geometry));
                if (box) mapView.fit(box, CLOSE_ZOOM);
              }}
            />
          )}
        </Section>
      </div>
    </>
  );
}

function selectedItems(feature: Feature | null): readonly OverlayItem[] {
  return feature?.geometry ? [{ role: 'selected', geometry: feature.geometry }] : [];
}

function fit(mapView: MapView, feature: Feature | null): void {
  const box = boxOf(feature?.geometry ?? null);
  if (box) mapView.fit(box);
}

/** Hook: draw items above the map while the component is shown. */
function useOverlay(mapView: MapView, items: readonly OverlayItem[]): void {
  const overlay = useMemo(() => new Overlay('feature'), []);
  useEffect(() => mapView.add(overlay), [mapView]);
  const key = JSON.stringify(items);
  useEffect(() => overlay.show(items), [key]);
}

function Properties({ feature }: { feature: Feature }) {
  const { [NAMESPACE]: _, ...properties } = feature.properties;
  const about = namespaceOf(feature);
  return (
    <>
      <table class="properties">
        <caption class="visually-hidden">Properties</caption>
        <tbody>
          <tr>
            <th scope="row">id</th>
            <td>
              <code>{feature.id}</code>
            </td>
          </tr>
          {Object.entries(properties).map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{valueText(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {(about.tags?.length ?? 0) > 0 && (
        <ul class="chips" aria-label="Tags of the feature">
          {about.tags?.map((tag) => (
            <li key={tag}>
              <Button kind="quiet" icon="tag" onClick={() => filterByTag(tag)} title={`Show features with the tag ${tag}`}>
                {tag}
              </Button>
            </li>
          ))}
        </ul>
      )}
      <p class="list-detail">
        {feature.geometry?.type ?? 'no geometry'} · version {about.version} of the feature
        {about.updatedAt ? ` · ${timeText(about.updatedAt)}` : ''} · {about.author ?? about.appId}
      </p>
    </>
  );
}

function filterByTag(tag: string): void {
  view.update({ filter: { ...view.value.filter, tags: tag } });
}
