/** What is loaded of the hub for the shown space. Panels read these stores. */

import { getTimeline, type LogEntry } from '../api/log';
import { getStatistics, listBranches, listSpaces, listTags } from '../api/spaces';
import { clearTiles } from '../api/tiles';
import type { Branch, Space, Statistics, Tag } from '../api/types';
import { LoadedStore } from './loading';
import { session } from './session';
import { Store } from './store';
import { view } from './view';

export const spaces = new LoadedStore<readonly Space[]>();
export const statistics = new LoadedStore<Statistics>();
export const tags = new LoadedStore<readonly Tag[]>();
export const branches = new LoadedStore<readonly Branch[]>();
/** Changesets of the shown branch, oldest first. */
export const timeline = new LoadedStore<readonly LogEntry[]>();
/** Number of changes of the current state that the page knows of; tiles load again with it. */
export const revision = new Store(0);

/** Return the shown space, if it is in the list. */
export function currentSpace(): Space | undefined {
  const id = view.value.space;
  return spaces.current?.find((space) => space.id === id);
}

export function reloadSpaces(): void {
  void spaces.load(listSpaces, { keeps: true });
}

/** Load everything about the shown space again, because it has changed. */
export function reloadSpace({ keeps = true } = {}): void {
  const { space, branch } = view.value;
  if (space === null) {
    for (const store of [statistics, tags, branches, timeline]) store.clear();
    return;
  }
  void statistics.load((signal) => getStatistics(space, '', signal), { keeps });
  void tags.load((signal) => listTags(space, signal), { keeps });
  void branches.load((signal) => listBranches(space, signal), { keeps });
  loadTimeline(space, branch, keeps);
}

function loadTimeline(space: string, branch: string, keeps: boolean): void {
  void timeline.load((signal) => getTimeline(space, branch, signal), { keeps });
}

/** Note that the current state of the shown space has changed. */
export function spaceChanged(): void {
  revision.set(revision.value + 1);
  reloadSpace();
  reloadSpaces();
}

/** Load what is shown, from now on. */
export function bindData(): void {
  session.subscribe((now) => {
    clearTiles();
    if (now.state !== 'open') return;
    reloadSpaces();
    reloadSpace({ keeps: false });
  });
  view.subscribe((now, before) => {
    if (now.space !== before.space) reloadSpace({ keeps: false });
    else if (now.space !== null && now.branch !== before.branch) {
      loadTimeline(now.space, now.branch, false);
    }
  });
}
