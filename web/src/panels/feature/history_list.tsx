/** The history of a feature: who changed what, when and why. */

import { useState } from 'preact/hooks';
import type { HistoryStep } from '../../api/types';
import type { OverlayItem } from '../../map/overlay';
import { timeline } from '../../state/data';
import { useStore } from '../../state/store';
import { view } from '../../state/view';
import { counted, timeText, valueText } from '../../ui/format';
import { Button } from '../../ui/parts';
import { changesOf, geometryChangeText, type MemberChange } from './changes';

const ACTIONS = { CREATE: 'Created', UPDATE: 'Changed', DELETE: 'Deleted' } as const;
const CLASSES = { CREATE: 'created', UPDATE: 'changed', DELETE: 'deleted' } as const;
const MEMBERS_SHOWN = 8;

interface Props {
  readonly steps: readonly HistoryStep[];
  readonly isComparing: boolean;
  /** Draw geometries before and after; null draws the feature itself again. */
  onCompare(items: readonly OverlayItem[] | null): void;
}

export function HistoryList({ steps, isComparing, onCompare }: Props) {
  const log = useStore(timeline);
  const { version: shownVersion } = useStore(view);
  const [compared, setCompared] = useState<number | null>(null);
  const entries = new Map(('value' in log ? log.value ?? [] : []).map((entry) => [entry.txn, entry]));
  const newestFirst = steps.map((step, n) => ({ step, before: steps[n - 1], n })).reverse();
  if (steps.length === 0) return <p class="hint">No history is kept for this feature.</p>;
  return (
    <ol class="history" aria-label="History, newest first">
      {newestFirst.map(({ step, before, n }) => {
        const { members, isGeometryChanged } = changesOf(step, before);
        const txn = (step.feature.properties['@ns:com:here:xyz'] as { txn?: string } | undefined)?.txn;
        const entry = txn === undefined ? undefined : entries.get(txn);
        const isShown = isComparing && compared === n;
        const items = geometryItems(step, before);
        return (
          <li key={n} class="step">
            <p class="step-head">
              <strong class={CLASSES[step.action]}>{ACTIONS[step.action]}</strong> by {step.author ?? step.appId}
              {entry && ` · version ${entry.version}`}
            </p>
            <p class="list-detail">
              {timeText(step.at)}
              {step.author !== null && step.author !== step.appId && ` · with ${step.appId}`}
            </p>
            {entry?.message && <p class="step-message">“{entry.message}”</p>}
            {step.action === 'UPDATE' && (
              <ChangeTable
                members={members}
                geometryText={
                  isGeometryChanged ? geometryChangeText(before?.feature.geometry ?? null, step.feature.geometry) : null
                }
              />
            )}
            <div class="step-buttons">
              {isGeometryChanged && items.length > 0 && step.action !== 'CREATE' && (
                <Button
                  pressed={isShown}
                  onClick={() => {
                    setCompared(n);
                    onCompare(isShown ? null : items);
                  }}
                >
                  Geometry before and after
                </Button>
              )}
              {entry && (
                <Button
                  kind="quiet"
                  icon="clock"
                  disabled={shownVersion === entry.version}
                  onClick={() => view.update({ version: entry.version })}
                >
                  Map at version {entry.version}
                </Button>
              )}
            </div>
          </li>
        );
      })}
    </ol>
  );
}

export function ChangeTable({ members, geometryText }: { members: readonly MemberChange[]; geometryText: string | null }) {
  const [isOpen, setOpen] = useState(false);
  const shown = isOpen ? members : members.slice(0, MEMBERS_SHOWN);
  return (
    <>
      {geometryText !== null && <p class="hint">{geometryText}</p>}
      {members.length === 0 && geometryText === null && <p class="hint">Nothing that the page shows changed.</p>}
      {shown.length > 0 && (
        <table class="properties changes">
          <caption class="visually-hidden">Changed properties</caption>
          <thead class="visually-hidden">
            <tr>
              <th scope="col">Property</th>
              <th scope="col">Old and new value</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ name, before, after }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>
                  {before !== undefined && <del>{valueText(before) || '(empty)'}</del>}
                  {before !== undefined && after !== undefined && <span class="arrow"> → </span>}
                  {after !== undefined && <ins>{valueText(after) || '(empty)'}</ins>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {members.length > shown.length && (
        <Button kind="quiet" onClick={() => setOpen(true)}>
          Show {counted(members.length - shown.length, 'more change')}
        </Button>
      )}
    </>
  );
}

function geometryItems(step: HistoryStep, before: HistoryStep | undefined): OverlayItem[] {
  const items: OverlayItem[] = [];
  const old = before?.feature.geometry;
  if (old) items.push({ role: 'before', geometry: old });
  if (step.action !== 'DELETE' && step.feature.geometry) {
    items.push({ role: 'after', geometry: step.feature.geometry });
  }
  return items;
}
