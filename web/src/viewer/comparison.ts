/** The comparison that `naksha diff --map` wrote into the page. */

import type { Change } from '../api/diff';

export interface End {
  /** The reference as it was given, such as a tag. */
  readonly ref: string;
  readonly version: number;
  readonly publishedAt: number | null;
}

export interface Comparison {
  readonly collection: string;
  readonly from: End;
  readonly to: End;
  readonly changes: readonly Change[];
}

/** Unpack the comparison: JSON in gzip and base64. */
export async function readComparison(): Promise<Comparison> {
  const text = document.getElementById('comparison')?.textContent ?? '';
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return (await new Response(stream).json()) as Comparison;
}

/** Return what an end is called: its reference, with the number of the version. */
export function endText({ ref, version }: End): string {
  return ref === String(version) ? `version ${version}` : `${ref} (version ${version})`;
}
