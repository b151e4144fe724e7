/** Log: the changesets of the space, and what can be done with each of them. */

import { useLayoutEffect, useMemo, useState } from 'preact/hooks';
import { getLog, type LogEntry, type LogPage } from '../../api/log';
import { AreaLayer } from '../../compare/area_layer';
import { AreaField, AuthorField } from '../../compare/change_filters';
import type { MapView } from '../../map/map_view';
import { revision, tags } from '../../state/data';
import { useLoaded } from '../../state/loading';
import { areaOf, authorsOf, setMore } from '../../state/more';
import { useStore } from '../../state/store';
import { MAIN, type View, view } from '../../state/view';
import { timeText } from '../../ui/format';
import { Button, ErrorNote, Field, Loading, Section } from '../../ui/parts';
import type { Panel, PanelProps } from '../registry';
import { EntryCounts } from './entry_counts';
import { EntryView } from './entry_view';
import './log.css';

const PAGE = 50;
const DAY = 86_400_000;

function LogPanel({ mapView, space }: PanelProps) {
  const shown = useStore(view);
  if (!space) return null;
  const entry = Number(shown.more['entry'] ?? '');
  if (entry > 0) return <EntryView key={entry} mapView={mapView} space={space} version={entry} />;
  return (
    <div class="stack">
      {shown.branch !== MAIN && <p class="hint">The log of the branch {shown.branch}.</p>}
      <LogFilters mapView={mapView} shown={shown} />
      <LogList mapView={mapView} space={space.id} shown={shown} />
    </div>
  );
}

function LogFilters({ mapView, shown }: { mapView: MapView; shown: View }) {
  const { more } = shown;
  const isFiltered = ['text', 'by', 'area', 'since', 'until'].some((name) => more[name]);
  const bound = (name: string) => ({
    value: more[name] ?? '',
    onChange: (event: { currentTarget: HTMLInputElement }) => setMore({ [name]: event.currentTarget.value.trim() || null }),
  });
  return (
    <Section title="Filter" open={isFiltered}>
      <Field label="Text in the message">
        <input type="search" {...bound('text')} />
      </Field>
      <AuthorField />
      <div class="log-days">
        <Field label="From the day">
        <input type="date" {...bound('since')} />
      </Field>
        <Field label="To the day">
        <input type="date" {...bound('until')} />
      </Field>
      </div>
      <AreaField mapView={mapView} />
      {isFiltered && (
        <Button onClick={() => setMore({ text: null, by: null, area: null, since: null, until: null })}>
          Show all
        </Button>
      )}
    </Section>
  );
}

function LogList({ mapView, space, shown }: { mapView: MapView; space: string; shown: View }) {
  const changed = useStore(revision);
  const key = [space, shown.branch, ...['text', 'by', 'area', 'since', 'until'].map((name) => shown.more[name])].join('\n');
  const [older, setOlder] = useState<{ key: string; pages: readonly LogPage[]; error?: unknown }>({ key, pages: [] });
  const [found, again] = useLoaded((signal) => readPage(space, shown, undefined, signal), [key, changed]);
  const outline = useOutline(mapView);
  if (found.state === 'failed') return <ErrorNote error={found.error} onRetry={again} />;
  if (found.state !== 'ready') return <Loading>Loading the log…</Loading>;
  const pages = [found.value, ...(older.key === key ? older.pages : [])];
  const next = pages.at(-1)?.nextPageToken;
  const entries = pages.flatMap((page) => page.changesets);
  const readMore = async (): Promise<void> => {
    const before = older.key === key ? older.pages : [];
    try {
      setOlder({ key, pages: [...before, await readPage(space, shown, next)] });
    } catch (error) {
      setOlder({ key, pages: before, error });
    }
  };
  if (entries.length === 0) return <p class="hint" role="status">No changeset matches.</p>;
  return (
    <>
      <ul class="list" aria-label="Changesets, newest first" onMouseLeave={() => outline.show(null)}>
        {entries.map((entry) => (
          <li key={entry.version}>
            <Row entry={entry} onOutline={() => outline.show(entry.bbox)} />
          </li>
        ))}
      </ul>
      {older.error !== undefined && <ErrorNote error={older.error} />}
      {next !== undefined && (
        <Button kind="quiet" onClick={() => void readMore()}>
          Show older changesets
        </Button>
      )}
    </>
  );
}

/** Hook: the outline of the changeset below the pointer, or with the focus. */
function useOutline(mapView: MapView): AreaLayer {
  const layer = useMemo(() => new AreaLayer('changeset'), []);
  useLayoutEffect(() => mapView.add(layer), [mapView]);
  return layer;
}

function Row({ entry, onOutline }: { entry: LogEntry; onOutline: () => void }) {
  const tagList = useStore(tags);
  const { branch } = useStore(view);
  const names = (('value' in tagList ? tagList.value : undefined) ?? [])
    .filter((tag) => tag.version === entry.version && tag.branchId === branch)
    .map((tag) => tag.id);
  return (
    <button
      type="button"
      class="list-item"
      onClick={() => openEntry(entry.version)}
      onMouseEnter={onOutline}
      onFocus={onOutline}
    >
      <span class="list-title">{entry.message ?? `Version ${entry.version}`}</span>
      <span class="list-detail">
        {entry.author} · {timeText(entry.publishedAt)}
        {entry.message && ` · version ${entry.version}`}
      </span>
      <span class="list-detail log-counts">
        <EntryCounts entry={entry} />
        {names.map((name) => (
          <span key={name} class="log-tag">
            {name}
          </span>
        ))}
      </span>
    </button>
  );
}

/** Open a changeset, and show the map after it. */
export function openEntry(version: number | null): void {
  setMore({ entry: version === null ? null : String(version), change: null, hide: null, undo: null });
  view.update({ version });
}

async function readPage(space: string, shown: View, pageToken?: string, signal?: AbortSignal): Promise<LogPage> {
  const { branch, more } = shown;
  const area = areaOf(shown);
  const [since, until] = [dayOf(more['since']), dayOf(more['until'])];
  return getLog(
    space,
    {
      branch,
      limit: PAGE,
      pageToken,
      author: authorsOf(shown),
      ...(more['text'] ? { text: more['text'] } : {}),
      ...(since === null ? {} : { startTime: since }),
      ...(until === null ? {} : { endTime: until + DAY - 1 }),
      ...(area ? { area } : {}),
    },
    signal,
  );
}

/** Return the beginning of a day, in the time zone of the reader. */
function dayOf(text: string | undefined): number | null {
  const found = text ? new Date(`${text}T00:00`).getTime() : NaN;
  return Number.isNaN(found) ? null : found;
}

export const logPanel: Panel = {
  id: 'log',
  title: 'Log',
  icon: 'log',
  Component: LogPanel,
  isOffered: (space) => space !== undefined,
};
