/** The log of a space: who changed how much, when, and where. */

import { getJson } from './client';

/** A changeset without its features. */
export interface LogEntry {
  readonly version: number;
  readonly txn: string;
  readonly author: string;
  readonly appId: string;
  readonly createdAt: number;
  readonly publishedAt: number;
  readonly message?: string;
  readonly inserted: number;
  readonly updated: number;
  readonly deleted: number;
  readonly bbox: readonly [number, number, number, number] | null;
}

export interface LogPage {
  readonly changesets: readonly LogEntry[];
  readonly nextPageToken?: string;
}

export interface LogQuery {
  readonly branch: string;
  readonly newestFirst?: boolean;
  readonly limit?: number;
  readonly pageToken?: string | undefined;
  readonly author?: readonly string[];
  readonly text?: string;
  /** Epoch milliseconds. */
  readonly startTime?: number;
  readonly endTime?: number;
  /** West, south, east, north: changes in this area. */
  readonly area?: readonly [number, number, number, number];
}

/** Read a page of the log. */
export async function getLog(space: string, query: LogQuery, signal?: AbortSignal): Promise<LogPage> {
  const { branch, area, ...rest } = query;
  const [west, south, east, north] = area ?? [];
  return getJson<LogPage>(`hub/spaces/${encodeURIComponent(space)}/log`, {
    query: { ...rest, versionRef: branch, west, south, east, north },
    signal,
  });
}

const PAGE = 10_000;
/** The time bar shows at most this many changesets: the newest ones. */
export const TIMELINE_MAX = 50_000;

/** Read the newest changesets of a branch, oldest first. */
export async function getTimeline(space: string, branch: string, signal?: AbortSignal): Promise<LogEntry[]> {
  const found: LogEntry[] = [];
  let pageToken: string | undefined;
  do {
    const page = await getLog(space, { branch, limit: PAGE, pageToken }, signal);
    found.push(...page.changesets);
    pageToken = page.nextPageToken;
  } while (pageToken !== undefined && found.length < TIMELINE_MAX);
  return found.reverse();
}

/** Return how many features a changeset changed. */
export function editsOf(entry: LogEntry): number {
  return entry.inserted + entry.updated + entry.deleted;
}
