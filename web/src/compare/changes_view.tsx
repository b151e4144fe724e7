/** A list of changes with counts by kind, drawn on the map, and the chosen change in detail. */

import { useLayoutEffect, useMemo, useState } from 'preact/hooks';
import type { Change, ChangeAction } from '../api/diff';
import { boxOf } from '../map/geometry';
import type { MapView } from '../map/map_view';
import { takeClicks } from '../map/picking';
import type { SpaceLayers } from '../map/space_layers';
import { labelOf } from '../state/look';
import { setMore } from '../state/more';
import { useStore } from '../state/store';
import { view } from '../state/view';
import { countText, counted } from '../ui/format';
import { Button } from '../ui/parts';
import { ChangeDetail } from './change_detail';
import { ChangeLayers } from './change_layers';
import './compare.css';
import { ACTIONS, ChangeMark, KINDS } from './marks';
import { Swipe, type SwipeLabels } from './swipe';

/** Rows that are added to the list at once. */
const ROWS = 100;
/** Zoom at which a point that moved by a metre is seen to have moved. */
const CLOSE_ZOOM = 17;

interface Props {
  readonly mapView: MapView;
  readonly changes: readonly Change[];
  /** How both versions are called on the map. */
  readonly labels: SwipeLabels;
  /** Whether the versions are shown beside each other; else both are drawn on one map. */
  readonly isSwiped: boolean;
  /** Make the features of the older version, for the map on the left. */
  readonly olderLayers?: (() => SpaceLayers | null) | undefined;
  /** Show a feature with all that is known of it. */
  readonly onOpen?: ((id: string) => void) | undefined;
}

export function ChangesView({ mapView, changes, labels, isSwiped, olderLayers, onOpen }: Props) {
  const { more } = useStore(view);
  const hidden = (more['hide'] ?? '').split(',');
  const shown = useMemo(() => changes.filter(({ action }) => !hidden.includes(action)), [changes, more['hide']]);
  const chosen = useMemo(() => changes.find(({ id }) => id === more['change']), [changes, more['change']]);
  useLayers(mapView, shown, chosen, isSwiped, labels, olderLayers);
  const [rows, setRows] = useState(ROWS);
  if (changes.length === 0) return <p class="hint" role="status">Nothing differs.</p>;
  return (
    <>
      <Counts changes={changes} hidden={hidden} />
      <div class="button-row">
        <Button icon="target" onClick={() => fitAll(mapView, shown)}>
          Show all on the map
        </Button>
      </div>
      {chosen && <ChangeDetail change={chosen} mapView={mapView} onOpen={onOpen} />}
      <ul class="list" aria-label="Changes">
        {shown.slice(0, rows).map((change) => (
          <li key={change.id}>
            <Row change={change} isChosen={change === chosen} onChoose={() => choose(mapView, change)} />
          </li>
        ))}
      </ul>
      {shown.length > rows && (
        <Button kind="quiet" onClick={() => setRows(rows + ROWS)}>
          Show more of the {counted(shown.length - rows, 'other change')}
        </Button>
      )}
    </>
  );
}

function Counts({ changes, hidden }: { changes: readonly Change[]; hidden: readonly string[] }) {
  const toggle = (action: ChangeAction): void => {
    const left = hidden.includes(action) ? hidden.filter((one) => one !== action) : [...hidden, action];
    setMore({ hide: left.filter((one) => one !== '').join(',') || null });
  };
  return (
    <div class="counts" role="group" aria-label="Kinds of change">
      {ACTIONS.map((action) => (
        <button
          key={action}
          type="button"
          class="count"
          aria-pressed={!hidden.includes(action)}
          onClick={() => toggle(action)}
        >
          <ChangeMark action={action} />
          <span>
            {countText(changes.filter((change) => change.action === action).length)} {KINDS[action].word}
          </span>
        </button>
      ))}
    </div>
  );
}

function Row({ change, isChosen, onChoose }: { change: Change; isChosen: boolean; onChoose: () => void }) {
  const feature = change.new ?? change.old;
  const label = labelOf(change.id, feature?.properties ?? {});
  const members = change.action === 'updated' ? membersOf(change).join(', ') : '';
  return (
    <button type="button" class="list-item change-row" aria-current={isChosen ? 'true' : undefined} onClick={onChoose}>
      <ChangeMark action={change.action} />
      <span class="list-title">
        <span class="visually-hidden">{KINDS[change.action].word}: </span>
        {label}
      </span>
      <span class="list-detail">{[label === change.id ? '' : change.id, members].filter(Boolean).join(' · ')}</span>
    </button>
  );
}

/** Return the names of the properties that differ; `geometry` stands for the geometry. */
function membersOf(change: Change): string[] {
  const names = change.paths.map((path) => {
    const parts = path.split('/').slice(1).map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    return parts[0] === 'properties' ? (parts[1]?.startsWith('@ns:') ? parts[2] : parts[1]) : parts[0];
  });
  return [...new Set(names.filter((name) => name !== undefined))];
}

function choose(mapView: MapView, change: Change): void {
  setMore({ change: change.id });
  fitChange(mapView, change);
}

export function fitChange(mapView: MapView, change: Change): void {
  const box = boxOf(change.old?.geometry ?? null, change.new?.geometry ?? null);
  if (box) mapView.fit(box, CLOSE_ZOOM);
}

/** Show all changes on the map. */
export function fitAll(mapView: MapView, changes: readonly Change[]): void {
  const box = boxOf(...changes.flatMap(({ old, new: now }) => [old?.geometry ?? null, now?.geometry ?? null]));
  if (box) mapView.fit(box);
}

/** Hook: draw the changes on one map, or on two. */
function useLayers(
  mapView: MapView,
  shown: readonly Change[],
  chosen: Change | undefined,
  isSwiped: boolean,
  labels: SwipeLabels,
  olderLayers: (() => SpaceLayers | null) | undefined,
): void {
  const layers = useMemo(
    () => (isSwiped ? { left: new ChangeLayers('old'), right: new ChangeLayers('new') } : { right: new ChangeLayers('both') }),
    [isSwiped],
  );
  useLayoutEffect(() => {
    const remove = mapView.add(layers.right);
    const all = [layers.right, ...(layers.left ? [layers.left] : [])];
    const release = takeClicks((event) => {
      const id = all.map((one) => one.at(event.point)).find((one) => one !== null) ?? null;
      if (id !== null || view.value.more['change']) setMore({ change: id });
      return id !== null;
    });
    return () => {
      release();
      remove();
    };
  }, [mapView, layers]);
  useLayoutEffect(() => {
    const { left } = layers;
    if (!left) return;
    const older = olderLayers?.();
    const swipe = new Swipe(mapView, older ? [older, left] : [left], labels);
    return () => swipe.destroy();
  }, [mapView, layers, labels.before, labels.after]);
  useLayoutEffect(() => {
    for (const one of [layers.right, layers.left]) one?.show(shown);
  }, [layers, shown]);
  useLayoutEffect(() => {
    for (const one of [layers.right, layers.left]) one?.choose(chosen);
  }, [layers, chosen]);
}
