/** Time: a slider over the versions of the shown space, above a histogram of edits. */

import { useEffect, useRef, useState } from 'preact/hooks';
import { editsOf, type LogEntry, TIMELINE_MAX } from '../../api/log';
import type { MapView } from '../../map/map_view';
import { reloadSpace, tags, timeline } from '../../state/data';
import { useStore } from '../../state/store';
import { view } from '../../state/view';
import { counted, dateText, timeText } from '../../ui/format';
import { ErrorNote, IconButton, Loading } from '../../ui/parts';
import { Histogram } from './histogram';
import './time.css';

/** Least time between two steps of the animation, so that each can be seen. */
const STEP_MILLISECONDS = 700;
/** The next step does not wait longer for the map. */
const DRAWN_MILLISECONDS = 5_000;

export function TimeBar({ mapView }: { mapView: MapView }) {
  const found = useStore(timeline);
  const shown = useStore(view);
  if (shown.space === null) return null;
  if (found.state === 'failed') {
    return (
      <section class="time" aria-label="Time">
        <ErrorNote error={found.error} onRetry={reloadSpace} />
      </section>
    );
  }
  if (!('value' in found) || !found.value) {
    return (
      <section class="time" aria-label="Time">
        <Loading>Loading the versions…</Loading>
      </section>
    );
  }
  if (found.value.length === 0) {
    return (
      <section class="time" aria-label="Time">
        <p class="hint">Nothing has changed on this branch yet.</p>
      </section>
    );
  }
  return <Slider entries={found.value} mapView={mapView} />;
}

function Slider({ entries, mapView }: { entries: readonly LogEntry[]; mapView: MapView }) {
  const shown = useStore(view);
  const marks = useStore(tags);
  const last = entries.length - 1;
  const position = shown.version === null ? last : positionOf(entries, shown.version);
  const entry = entries[position] ?? entries[last];
  const [isPlaying, setPlaying] = usePlay(mapView, entries);
  const go = (to: number): void => {
    setPlaying(false);
    show(entries, to);
  };
  const ofBranch = ('value' in marks ? marks.value ?? [] : []).filter((tag) => tag.branchId === shown.branch);
  const isNow = shown.version === null;
  const what = isNow ? 'current state' : `version ${shown.version}`;
  return (
    <section class="time" aria-label="Time">
      <div class="time-head">
        <IconButton
          icon={isPlaying ? 'pause' : 'play'}
          label={isPlaying ? 'Pause' : 'Play the history'}
          onClick={() => setPlaying(!isPlaying)}
        />
        <IconButton icon="previous" label="Previous version" disabled={position <= 0} onClick={() => go(position - 1)} />
        <IconButton icon="next" label="Next version" disabled={isNow} onClick={() => go(position + 1)} />
        <p class="time-text" role="status">
          <strong>{isNow ? 'Now' : `Version ${shown.version}`}</strong>
          {entry && (
            <span title={timeText(entry.createdAt)}>
              {' · '}
              {dateText(entry.createdAt)} · {entry.author} · {counted(editsOf(entry), 'edit')}
              {entry.message ? ` · ${entry.message}` : ''}
            </span>
          )}
        </p>
        {!isNow && (
          <button type="button" class="button" onClick={() => go(last)}>
            Back to now
          </button>
        )}
      </div>
      <div class="time-track">
        {ofBranch.length > 0 && (
          <div class="time-tags" role="group" aria-label="Versions with tags">
            {ofBranch.map((tag) => {
              const left = fraction(positionOf(entries, tag.version), last) * 100;
              return (
                <button
                  key={tag.id}
                  type="button"
                  class="time-tag"
                  style={{ left: `${left}%`, transform: `translateX(-${left}%)` }}
                  title={`Tag ${tag.id}: version ${tag.version}`}
                  aria-label={`Show the tag ${tag.id}, version ${tag.version}`}
                  onClick={() => {
                    setPlaying(false);
                    view.update({ version: tag.version });
                  }}
                >
                  {tag.id}
                </button>
              );
            })}
          </div>
        )}
        <Histogram entries={entries} position={position} />
        <input
          type="range"
          min={0}
          max={last}
          step={1}
          value={position}
          aria-label="Version"
          aria-valuetext={`${what}${entry ? `, ${dateText(entry.createdAt)}` : ''}`}
          onInput={(event) => go(Number(event.currentTarget.value))}
        />
        <p class="time-ends">
          <span>{entries[0] && dateText(entries[0].createdAt)}</span>
          {entries.length >= TIMELINE_MAX && <span>the newest {counted(entries.length, 'version')}</span>}
          <span>{entries[last] && dateText(entries[last].createdAt)}</span>
        </p>
      </div>
    </section>
  );
}

/** Show the version at a position; the last one is the current state. */
function show(entries: readonly LogEntry[], position: number): void {
  const at = Math.max(0, position);
  const entry = at >= entries.length - 1 ? undefined : entries[at];
  view.update({ version: entry ? entry.version : null });
}

/** Return the position of the last changeset up to a version. */
export function positionOf(entries: readonly LogEntry[], version: number): number {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((entries[middle]?.version ?? 0) <= version) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

/** Return a position as a part of the track; a single version is at its end. */
export function fraction(position: number, last: number): number {
  return last === 0 ? 1 : position / last;
}

/** Hook: step through the versions, each when the map shows the one before. */
function usePlay(mapView: MapView, entries: readonly LogEntry[]): [boolean, (on: boolean) => void] {
  const [isPlaying, setPlaying] = useState(false);
  const current = useRef(entries);
  current.current = entries;
  useEffect(() => {
    if (!isPlaying) return;
    let timer = 0;
    let isOver = false;
    const step = (): void => {
      if (isOver) return;
      const all = current.current;
      const { version } = view.value;
      const next = version === null ? 0 : positionOf(all, version) + 1;
      show(all, next);
      if (next >= all.length - 1) setPlaying(false);
      else timer = window.setTimeout(() => void mapView.whenIdle(DRAWN_MILLISECONDS).then(step), STEP_MILLISECONDS);
    };
    step();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [isPlaying, mapView]);
  return [isPlaying, setPlaying];
}
