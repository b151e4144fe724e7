/** Operations on versions: revert, roll back, tag. */

import { getJson } from './client';
import type { Tag } from './types';

/** What an operation has written, or would write: ids of features. */
export interface Rewritten {
  readonly version: number | null;
  readonly inserted?: readonly string[];
  readonly updated?: readonly string[];
  readonly deleted?: readonly string[];
}

export interface RewriteOptions {
  readonly branch: string;
  readonly message: string;
  readonly dryRun: boolean;
}

export type RewriteKind = 'revert' | 'rollback';

/** Undo what a version changed, or restore the features of a version. */
export async function rewrite(
  kind: RewriteKind,
  space: string,
  ref: string,
  { branch, message, dryRun }: RewriteOptions,
  signal?: AbortSignal,
): Promise<Rewritten> {
  const body = {
    branch,
    dryRun,
    ...(message ? { message } : {}),
    ...(kind === 'revert' ? { version: ref } : { versionRef: ref }),
  };
  return getJson<Rewritten>(`hub/spaces/${encodeURIComponent(space)}/${kind}`, { method: 'POST', body, signal });
}

/** Give a version a name. */
export async function createTag(space: string, id: string, versionRef: string, description: string): Promise<Tag> {
  const body = { id, versionRef, ...(description ? { description } : {}) };
  return getJson<Tag>(`hub/spaces/${encodeURIComponent(space)}/tags`, { method: 'POST', body });
}
