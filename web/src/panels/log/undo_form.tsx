/** Revert a version, or roll back to it: first what would change, then the change itself. */

import { useState } from 'preact/hooks';
import { type Change, type ChangeAction, getDiff } from '../../api/diff';
import { rewrite, type RewriteKind, type Rewritten } from '../../api/rewrite';
import type { Space } from '../../api/types';
import { ChangesView } from '../../compare/changes_view';
import type { MapView } from '../../map/map_view';
import { revision, spaceChanged } from '../../state/data';
import { useLoaded } from '../../state/loading';
import { setMore } from '../../state/more';
import { useStore } from '../../state/store';
import { versionRef, view } from '../../state/view';
import { counted } from '../../ui/format';
import { Button, ErrorNote, Field, Loading } from '../../ui/parts';
import { openEntry } from './log_panel';

interface Props {
  readonly kind: RewriteKind;
  readonly mapView: MapView;
  readonly space: Space;
  readonly version: number;
}

const OPPOSITE: Readonly<Record<ChangeAction, ChangeAction>> = { created: 'deleted', deleted: 'created', updated: 'updated' };

interface Preview {
  readonly count: number;
  readonly changes: readonly Change[];
}

export function UndoForm({ kind, mapView, space, version }: Props) {
  const { branch } = useStore(view);
  const changed = useStore(revision);
  const [message, setMessage] = useState(kind === 'revert' ? `Revert version ${version}` : `Roll back to version ${version}`);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const [found, again] = useLoaded(
    (signal) => preview(kind, space.id, branch, version, signal),
    [kind, space.id, branch, version, changed],
  );
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const ref = versionRef({ branch, version });
      const done = await rewrite(kind, space.id, ref, { branch, message: message.trim(), dryRun: false });
      openEntry(done.version);
      spaceChanged();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const isNothing = found.state === 'ready' && found.value.count === 0;
  return (
    <section class="stack" aria-label={kind === 'revert' ? 'Revert' : 'Roll back'}>
      <p>
        {kind === 'revert'
          ? 'Reverting undoes what this version changed, and keeps all later changes. It writes a new version; no history is lost.'
          : 'Rolling back restores all features as they were at this version. It writes a new version; no history is lost.'}
      </p>
      {found.state === 'loading' && <Loading>Determining what would change…</Loading>}
      {found.state === 'failed' && <ErrorNote error={found.error} onRetry={again} />}
      {found.state === 'ready' && (
        <p role="status">
          <strong>{isNothing ? 'Nothing would change.' : `${counted(found.value.count, 'feature')} would change:`}</strong>
        </p>
      )}
      {found.state === 'ready' && !isNothing && (
        <Field label="Message">
          <input value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
        </Field>
      )}
      {error !== null && <ErrorNote error={error} />}
      <div class="button-row">
        {found.state === 'ready' && !isNothing && (
          <Button kind="danger" disabled={isBusy} onClick={() => void save()}>
            {kind === 'revert' ? 'Revert' : 'Roll back'} now
          </Button>
        )}
        <Button onClick={() => setMore({ undo: null, change: null, hide: null })}>Cancel</Button>
      </div>
      {found.state === 'ready' && !isNothing && (
        <ChangesView
          mapView={mapView}
          changes={found.value.changes}
          isSwiped={false}
          labels={{ before: 'now', after: 'then' }}
        />
      )}
    </section>
  );
}

/** Return what would change: the ids by a dry run of the hub, and both states of each feature. */
async function preview(kind: RewriteKind, space: string, branch: string, version: number, signal: AbortSignal): Promise<Preview> {
  const ref = versionRef({ branch, version });
  const dry = rewrite(kind, space, ref, { branch, message: '', dryRun: true }, signal);
  const all = { authors: [], area: null };
  if (kind === 'rollback') {
    const changes = await getDiff(space, { from: versionRef({ branch, version: null }), to: ref, ...all }, signal);
    return only(await dry, changes);
  }
  const before = versionRef({ branch, version: version - 1 });
  const changes = await getDiff(space, { from: before, to: ref, ...all }, signal);
  return only(await dry, changes.map(opposite));
}

function only({ inserted = [], updated = [], deleted = [] }: Rewritten, changes: readonly Change[]): Preview {
  const ids = new Set([...inserted, ...updated, ...deleted]);
  return { count: ids.size, changes: changes.filter(({ id }) => ids.has(id)) };
}

function opposite({ id, action, paths, old, new: now }: Change): Change {
  return { id, action: OPPOSITE[action], paths, ...(now ? { old: now } : {}), ...(old ? { new: old } : {}) };
}
