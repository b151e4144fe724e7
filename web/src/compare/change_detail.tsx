/** A change in detail: properties, vertices, author and time. */

import type { Geometry } from 'geojson';
import { useMemo } from 'preact/hooks';
import type { Change } from '../api/diff';
import { namespaceOf } from '../api/types';
import type { MapView } from '../map/map_view';
import { distanceText, featureChanges, geometryChangeText, metresBetween } from '../panels/feature/changes';
import '../panels/feature/feature.css';
import { ChangeTable } from '../panels/feature/history_list';
import { labelOf } from '../state/look';
import { setMore } from '../state/more';
import { timeText } from '../ui/format';
import { Button, IconButton } from '../ui/parts';
import { isGeometryChanged } from './change_layers';
import { fitChange } from './changes_view';
import { ChangeMark, KINDS } from './marks';
import { vertexDiff } from './vertices';

interface Props {
  readonly change: Change;
  readonly mapView: MapView;
  readonly onOpen: ((id: string) => void) | undefined;
}

export function ChangeDetail({ change, mapView, onOpen }: Props) {
  const { old, new: now } = change;
  const feature = now ?? old;
  const about = now && namespaceOf(now);
  const { members } = featureChanges(old ?? null, now ?? null);
  return (
    <section class="change-detail" aria-label="Chosen change">
      <div class="change-head">
        <ChangeMark action={change.action} />
        <h3>
          {labelOf(change.id, feature?.properties ?? {})}{' '}
          <span class={KINDS[change.action].color}>{KINDS[change.action].word}</span>
        </h3>
        <IconButton icon="close" label="Close this change" onClick={() => setMore({ change: null })} />
      </div>
      <p class="list-detail">
        <code>{change.id}</code>
        {about && ` · ${about.author ?? about.appId ?? ''}`}
        {about?.updatedAt && ` · ${timeText(about.updatedAt)}`}
      </p>
      {isGeometryChanged(change) && change.action === 'updated' && (
        <GeometryText old={old?.geometry ?? null} now={now?.geometry ?? null} />
      )}
      {members.length > 0 && <ChangeTable members={members} geometryText={null} />}
      <div class="button-row">
        <Button icon="target" onClick={() => fitChange(mapView, change)}>
          Show on the map
        </Button>
        {onOpen && (
          <Button kind="quiet" icon="clock" onClick={() => onOpen(change.id)}>
            Feature and history
          </Button>
        )}
      </div>
    </section>
  );
}

/** The vertices that differ, in words; the map draws them with the marks of the list. */
function GeometryText({ old, now }: { old: Geometry | null; now: Geometry | null }) {
  const { kept, added, removed, moved } = useMemo(() => vertexDiff(old, now), [old, now]);
  if (old === null || now === null || old.type !== now.type || old.type === 'Point') {
    return <p class="hint">{geometryChangeText(old, now)}</p>;
  }
  const most = moved.reduce((found, [from, to]) => Math.max(found, metresBetween(from, to)), 0);
  const parts = [
    moved.length > 0 && `${moved.length} moved (at most ${distanceText(most)})`,
    added.length > 0 && `${added.length} added`,
    removed.length > 0 && `${removed.length} removed`,
    `${kept.length} unchanged`,
  ];
  return <p class="hint">Vertices: {parts.filter(Boolean).join(', ')}.</p>;
}
