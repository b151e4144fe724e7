/** Compare: what differs between two versions, tags or branches of the space. */

import { useEffect } from 'preact/hooks';
import { getDiff } from '../../api/diff';
import { AreaField, AuthorField } from '../../compare/change_filters';
import { ChangesView } from '../../compare/changes_view';
import { tileQuery } from '../../map/shown_space';
import { SpaceLayers } from '../../map/space_layers';
import { revision, timeline } from '../../state/data';
import { useLoaded } from '../../state/loading';
import { spaceStyle } from '../../state/look';
import { areaOf, authorsOf, setMore } from '../../state/more';
import { useStore } from '../../state/store';
import { MAIN, versionRef, view } from '../../state/view';
import { Button, ErrorNote, Field, IconButton, Loading, Section } from '../../ui/parts';
import type { Panel, PanelProps } from '../registry';
import { nameOf, showRef, useVersionChoices, VersionSelect } from './version_select';

function ComparePanel({ mapView, space }: PanelProps) {
  const shown = useStore(view);
  const log = useStore(timeline);
  const changed = useStore(revision);
  const choices = useVersionChoices();
  const { more, branch, version } = shown;
  const entries = ('value' in log ? log.value : undefined) ?? [];
  useEffect(() => {
    // At first, what the shown version itself has changed.
    const last = entries.findLast((entry) => version === null || entry.version <= version);
    if (!more['from'] && last) setMore({ from: versionRef({ branch, version: last.version - 1 }) });
  }, [more['from'], entries.length === 0]);
  const [from, to] = [more['from'], versionRef(shown)];
  const [authors, area] = [authorsOf(shown), areaOf(shown)];
  const [found, again] = useLoaded(
    space && from ? (signal) => getDiff(space.id, { from, to, authors, area }, signal) : null,
    [space?.id, from, to, authors.join(), area?.join(), changed],
  );
  if (!space) return null;
  if (!from) return entries.length > 0 ? null : <p class="hint">Nothing has changed on this branch yet.</p>;
  const isSwiped = more['mode'] === 'swipe';
  return (
    <div class="stack">
      <div class="compare-versions">
        <Field label="From">
          <VersionSelect choices={choices} value={from} onChange={(ref) => setMore({ from: ref, change: null })} />
        </Field>
        <Field label="To, on the map">
          <VersionSelect choices={choices} value={to || MAIN} onChange={showRef} />
        </Field>
        <IconButton icon="reload" label="Exchange both versions" onClick={() => exchange(from, to)} />
      </div>
      <div class="button-row" role="group" aria-label="Map">
        <Button pressed={!isSwiped} onClick={() => setMore({ mode: null })}>
          One map
        </Button>
        <Button pressed={isSwiped} onClick={() => setMore({ mode: 'swipe' })}>
          Swipe
        </Button>
      </div>
      <Section title="Filter" open={authors.length > 0 || area !== null}>
        <AuthorField />
        <AreaField mapView={mapView} />
      </Section>
      {found.state === 'loading' && <Loading>Comparing…</Loading>}
      {found.state === 'failed' && <ErrorNote error={found.error} onRetry={again} />}
      {found.state === 'ready' && (
        <ChangesView
          mapView={mapView}
          changes={found.value}
          isSwiped={isSwiped}
          labels={{ before: nameOf(choices, from), after: nameOf(choices, to || MAIN) }}
          olderLayers={() => olderLayers(from)}
          onOpen={(id) => view.update({ feature: id })}
        />
      )}
    </div>
  );
}

function olderLayers(from: string): SpaceLayers | null {
  const query = tileQuery(view.value);
  return query && new SpaceLayers({ ...query, versionRef: from, filter: '' }, spaceStyle.value);
}

function exchange(from: string, to: string): void {
  setMore({ from: to || MAIN, change: null });
  showRef(from);
}

export const comparePanel: Panel = {
  id: 'compare',
  title: 'Compare',
  icon: 'compare',
  Component: ComparePanel,
  isOffered: (space) => space !== undefined,
};
