/** A changeset: what it changed, and how to tag it, undo it, or return to it. */

import { useState } from 'preact/hooks';
import { getDiff } from '../../api/diff';
import { createTag } from '../../api/rewrite';
import type { Space, SpaceRight } from '../../api/types';
import { ChangesView } from '../../compare/changes_view';
import type { MapView } from '../../map/map_view';
import { reloadSpace, timeline } from '../../state/data';
import { useLoaded } from '../../state/loading';
import { setMore } from '../../state/more';
import { useStore } from '../../state/store';
import { versionRef, view } from '../../state/view';
import { timeText } from '../../ui/format';
import { Button, ErrorNote, Field, Loading } from '../../ui/parts';
import { openEntry } from './log_panel';
import { UndoForm } from './undo_form';

const WRITES: readonly SpaceRight[] = ['createFeatures', 'updateFeatures', 'deleteFeatures'];

interface Props {
  readonly mapView: MapView;
  readonly space: Space;
  readonly version: number;
}

export function EntryView({ mapView, space, version }: Props) {
  const { branch, more } = useStore(view);
  const log = useStore(timeline);
  const entry = ('value' in log ? log.value : undefined)?.find((one) => one.version === version);
  const refs = { before: versionRef({ branch, version: version - 1 }), after: versionRef({ branch, version }) };
  const undo = more['undo'];
  return (
    <div class="stack">
      <div>
        <Button kind="quiet" icon="back" onClick={() => openEntry(null)}>
          All changesets
        </Button>
      </div>
      <div>
        <h3>{entry?.message ?? `Version ${version}`}</h3>
        {entry && (
          <p class="list-detail">
            Version {version} · {entry.author}
            {entry.author !== entry.appId && ` with ${entry.appId}`} · {timeText(entry.publishedAt)}
          </p>
        )}
      </div>
      {undo === 'revert' || undo === 'rollback' ? (
        <UndoForm key={undo} kind={undo} mapView={mapView} space={space} version={version} />
      ) : (
        <>
          <Actions space={space} version={version} />
          <EntryChanges mapView={mapView} space={space} refs={refs} />
        </>
      )}
    </div>
  );
}

function EntryChanges({ mapView, space, refs }: Pick<Props, 'mapView' | 'space'> & { refs: { before: string; after: string } }) {
  const [found, again] = useLoaded(
    (signal) => getDiff(space.id, { from: refs.before, to: refs.after, authors: [], area: null }, signal),
    [space.id, refs.before, refs.after],
  );
  if (found.state === 'failed') return <ErrorNote error={found.error} onRetry={again} />;
  if (found.state !== 'ready') return <Loading>Loading the changes…</Loading>;
  return (
    <ChangesView
      mapView={mapView}
      changes={found.value}
      isSwiped={false}
      labels={refs}
      onOpen={(id) => view.update({ feature: id })}
    />
  );
}

function Actions({ space, version }: { space: Space; version: number }) {
  const [isTagging, setTagging] = useState(false);
  const may = (right: SpaceRight) => space.rights?.includes(right) ?? false;
  const canWrite = WRITES.every(may) && !space.readOnly;
  return (
    <>
      <div class="button-row">
        {may('manageSpaces') && (
          <Button icon="tag" pressed={isTagging} onClick={() => setTagging(!isTagging)}>
            Tag
          </Button>
        )}
        {canWrite && (
          <Button icon="reload" onClick={() => setMore({ undo: 'revert', change: null, hide: null })}>
            Revert…
          </Button>
        )}
        {canWrite && (
          <Button icon="clock" onClick={() => setMore({ undo: 'rollback', change: null, hide: null })}>
            Roll back to here…
          </Button>
        )}
      </div>
      {isTagging && <TagForm space={space} version={version} onDone={() => setTagging(false)} />}
    </>
  );
}

function TagForm({ space, version, onDone }: { space: Space; version: number; onDone: () => void }) {
  const [name, setName] = useState('');
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    try {
      await createTag(space.id, name.trim(), versionRef({ branch: view.value.branch, version }), '');
      reloadSpace();
      onDone();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <form
      class="tag-form"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <Field label="Name of the tag">
        <input required value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </Field>
      <Button type="submit" kind="primary" disabled={isBusy}>
        Save
      </Button>
      {error !== null && <ErrorNote error={error} />}
    </form>
  );
}
