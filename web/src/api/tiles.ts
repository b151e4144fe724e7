/** Vector tiles of a space: their address, and a cache of those of fixed versions. */

import { addProtocol, type GetResourceResponse, type RequestParameters } from 'maplibre-gl';
import { HUB, hubUrl, isAbort, requestUrl } from './client';

export const TILE_PROTOCOL = 'naksha';
const CACHE_BYTES_MAX = 96 * 1024 * 1024;
/** More features than this in one tile cannot be told apart. */
const TILE_FEATURES_MAX = 30_000;

/** Pixels around a tile that it includes, so that its edge does not show as an outline. */
const TILE_MARGIN = 8;

/** What tiles show. */
export interface TileQuery {
  readonly space: string;
  readonly versionRef: string;
  /** Encoded filter. */
  readonly filter: string;
  /** Grows with each change of the current state that the page learns of. */
  readonly revision: number;
}

/** Return the address of the tiles, a template with z, x and y. */
export function tileTemplate(query: TileQuery): string {
  const name = encodeURIComponent(query.space);
  const address = hubUrl(
    `hub/spaces/${name}/tile/web/TILE.mvt`,
    { versionRef: query.versionRef, limit: TILE_FEATURES_MAX, margin: TILE_MARGIN },
    query.filter,
  );
  const revision = query.versionRef === '' ? `#${query.revision}` : '';
  const template = address.replace('TILE', '{z}_{x}_{y}');
  return `${TILE_PROTOCOL}:${template.slice(template.indexOf('//'))}${revision}`;
}

/** Return whether a version reference means the same for ever. */
function isFixed(versionRef: string | null): boolean {
  return versionRef !== null && /^(.+:)?\d+$/.test(versionRef);
}

class TileCache {
  readonly #tiles = new Map<string, ArrayBuffer>();
  #bytes = 0;

  get(url: string): ArrayBuffer | undefined {
    const found = this.#tiles.get(url);
    if (found) {
      this.#tiles.delete(url);
      this.#tiles.set(url, found);
    }
    return found;
  }

  put(url: string, tile: ArrayBuffer): void {
    this.#tiles.set(url, tile);
    this.#bytes += tile.byteLength;
    for (const [oldest, its] of this.#tiles) {
      if (this.#bytes <= CACHE_BYTES_MAX) break;
      this.#tiles.delete(oldest);
      this.#bytes -= its.byteLength;
    }
  }

  clear(): void {
    this.#tiles.clear();
    this.#bytes = 0;
  }
}

const cache = new TileCache();
let onError: (error: unknown) => void = () => undefined;

/** Call a function with the error of each tile that cannot be loaded. */
export function whenTileFails(call: (error: unknown) => void): void {
  onError = call;
}

/** Forget all tiles, because the caller has changed. */
export function clearTiles(): void {
  cache.clear();
}

async function loadTile(
  parameters: RequestParameters,
  controller: AbortController,
): Promise<GetResourceResponse<ArrayBuffer>> {
  const [address = ''] = parameters.url.slice(TILE_PROTOCOL.length + 1).split('#');
  const url = `${HUB.protocol}${address}`;
  const isKept = isFixed(new URL(url).searchParams.get('versionRef'));
  const known = isKept ? cache.get(url) : undefined;
  // The receiver takes the buffer over, so that the cache keeps its own.
  if (known) return { data: known.slice(0) };
  try {
    const response = await requestUrl(url, { signal: controller.signal });
    const data = await response.arrayBuffer();
    if (isKept) cache.put(url, data.slice(0));
    return { data };
  } catch (error) {
    if (!isAbort(error)) onError(error);
    throw error;
  }
}

addProtocol(TILE_PROTOCOL, loadTile);
