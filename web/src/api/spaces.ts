/** Spaces and their features. */

import { filterQuery } from '../state/filter';
import type { FeatureFilter } from '../state/view';
import { getJson } from './client';
import type { Branch, Feature, FeatureCollection, HistoryStep, Space, Statistics, Tag } from './types';

type Signal = AbortSignal | undefined;

function pathOf(space: string, rest = ''): string {
  return `hub/spaces/${encodeURIComponent(space)}${rest}`;
}

/** List the spaces that the caller may see, with their sizes and the caller's rights. */
export async function listSpaces(signal?: Signal): Promise<Space[]> {
  const query = { owner: '*', includeRights: true, includeCounts: true };
  return getJson<Space[]>('hub/spaces', { query, signal });
}

export async function getStatistics(space: string, versionRef: string, signal?: Signal): Promise<Statistics> {
  return getJson<Statistics>(pathOf(space, '/statistics'), { query: { versionRef, fastMode: true }, signal });
}

/** Return a feature, or null if it does not exist in this version. */
export async function getFeature(
  space: string,
  id: string,
  versionRef: string,
  signal?: Signal,
): Promise<Feature | null> {
  const found = await getJson<FeatureCollection>(pathOf(space, '/features'), {
    query: { versionRef },
    rawQuery: `id=${encodeURIComponent(id)}`,
    signal,
  });
  return found.features[0] ?? null;
}

/** Return all states of a feature on a branch, oldest first. */
export async function getHistory(
  space: string,
  id: string,
  branch: string,
  signal?: Signal,
): Promise<HistoryStep[]> {
  const path = pathOf(space, `/features/${encodeURIComponent(id)}/history`);
  const found = await getJson<{ steps: HistoryStep[] }>(path, { query: { versionRef: branch }, signal });
  return found.steps;
}

/** Search features by encoded conditions. */
export async function searchFeatures(
  space: string,
  options: { versionRef: string; conditions: string; limit: number; selection?: string; signal?: Signal },
): Promise<readonly Feature[]> {
  const { versionRef, limit, conditions, selection, signal } = options;
  const found = await getJson<FeatureCollection>(pathOf(space, '/search'), {
    query: { versionRef, limit, selection },
    rawQuery: conditions,
    signal,
  });
  return found.features;
}

export async function countFeatures(
  space: string,
  versionRef: string,
  filter: FeatureFilter,
  signal?: Signal,
): Promise<number> {
  const rawQuery = filterQuery(filter);
  const found = await getJson<{ count: number }>(pathOf(space, '/count'), { query: { versionRef }, rawQuery, signal });
  return found.count;
}

export async function listTags(space: string, signal?: Signal): Promise<Tag[]> {
  return getJson<Tag[]>(pathOf(space, '/tags'), { signal });
}

export async function listBranches(space: string, signal?: Signal): Promise<Branch[]> {
  return getJson<Branch[]>(pathOf(space, '/branches'), { signal });
}
