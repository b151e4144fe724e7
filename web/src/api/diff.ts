/** Differences between two versions of a space. */

import { getJson } from './client';
import type { Feature } from './types';

export type ChangeAction = 'created' | 'updated' | 'deleted';

/** A feature that differs, with its state on each side where it exists. */
export interface Change {
  readonly id: string;
  readonly action: ChangeAction;
  /** JSON pointers of what differs. */
  readonly paths: readonly string[];
  readonly old?: Feature;
  readonly new?: Feature;
}

/** West, south, east, north. */
export type Area = readonly [number, number, number, number];

export interface DiffQuery {
  readonly from: string;
  readonly to: string;
  /** Only features that one of these authors changed. */
  readonly authors: readonly string[];
  /** Only features that were here before a change, or are here after it. */
  readonly area: Area | null;
}

/** Return the features that differ between two versions, of any branches. */
export async function getDiff(space: string, query: DiffQuery, signal?: AbortSignal): Promise<readonly Change[]> {
  const [west, south, east, north] = query.area ?? [];
  const found = await getJson<{ changes: readonly Change[] }>(`hub/spaces/${encodeURIComponent(space)}/diff`, {
    query: {
      versionRef: query.from || 'HEAD',
      other: query.to || 'HEAD',
      author: query.authors,
      west,
      south,
      east,
      north,
    },
    signal,
  });
  return found.changes;
}
