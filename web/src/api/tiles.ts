/** Vector tiles of a space: their address, and a cache of those of fixed versions. */

import { addProtocol, type GetResourceResponse, type RequestParameters } from 'maplibre-gl';
import { Store } from '../state/store';
import { HUB, hubUrl, isAbort, requestUrl } from './client';

export const TILE_PROTOCOL = 'naksha';
const CACHE_BYTES_MAX = 96 * 1024 * 1024;
/** More features than this in one tile cannot be told apart. */
export const TILE_FEATURES_MAX = 30_000;

/** Pixels around a tile that it includes, so that its edge does not show as an outline. */
const TILE_MARGIN = 8;

/** What tiles show. */
export interface TileQuery {
  readonly space: string;
  readonly versionRef: string;
  /** Encoded filter. */
  readonly filter: string;
  /** Properties that tiles have; null is all. A large space has fast tiles only with few. */
  readonly properties: readonly string[] | null;
  /** Zoom below which tiles have a sample, evenly spread, as they have no room for all features. */
  readonly completeZoom: number;
  /** Grows with each change of the current state that the page learns of. */
  readonly revision: number;
}

/** Return the address of the tiles of a source of the map, a template with z, x and y. */
export function tileTemplate(query: TileQuery, source: string): string {
  const name = encodeURIComponent(query.space);
  const address = hubUrl(
    `hub/spaces/${name}/tile/web/TILE.mvt`,
    { versionRef: query.versionRef, limit: TILE_FEATURES_MAX, margin: TILE_MARGIN },
    [selectionOf(query.properties), query.filter].filter((part) => part !== '').join('&'),
  );
  const revision = isFixed(query.versionRef) ? 0 : query.revision;
  const template = address.replace('TILE', '{z}_{x}_{y}');
  return `${TILE_PROTOCOL}:${template.slice(template.indexOf('//'))}#${query.completeZoom}.${revision}.${source}`;
}

/** Strengths of the hub's sampling, by zooms below the one with all features: 1/8, 1/32, 1/128, … */
const STRENGTHS = [10, 30, 50, 75] as const;

function samplingOf(zoom: number, completeZoom: number): string {
  if (zoom >= completeZoom) return '';
  const strength = STRENGTHS[Math.min(completeZoom - zoom, STRENGTHS.length) - 1];
  return `&tweaks=sampling&tweaks.algorithm=distribution2&tweaks.strength=${strength}`;
}

function selectionOf(properties: readonly string[] | null): string {
  if (properties === null) return '';
  const names = properties.map((name) => `p.${encodeURIComponent(name)}`);
  return `selection=${names.join(',') || 'id'}`;
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

  has(url: string): boolean {
    return this.#tiles.has(url);
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
/** Why the last tile could not be loaded; null if it could be. */
export const tileFailure = new Store<unknown>(null);

/** Forget all tiles, because the caller has changed. */
export function clearTiles(): void {
  cache.clear();
}

/** Templates of tiles that a source no longer shows, with those that it shows instead. */
const successors = new Map<string, string>();

/**
 * Note that a source shows tiles from now on, instead of those of before, if there are such.
 *
 * MapLibre does not cancel the requests of before, and shows whatever arrives last: they continue
 * with the new tiles.
 */
export function supersedeTiles(before: string | null, now: string): void {
  successors.delete(now);
  if (before === null || before === now) return;
  successors.set(before, now);
  for (const download of [...downloads.values()]) if (download.template === before) download.abort();
}

function latest(template: string): string {
  let found = template;
  for (let next = successors.get(found); next !== undefined; next = successors.get(found)) found = next;
  return found;
}

/** A tile on its way, for all that wait for it. */
class Download {
  readonly data: Promise<ArrayBuffer>;
  readonly #controller = new AbortController();
  #waiting = 0;

  constructor(
    readonly template: string,
    readonly url: string,
  ) {
    this.data = requestUrl(url, { signal: this.#controller.signal }).then((response) => response.arrayBuffer());
    this.data.catch(() => undefined).finally(() => this.#forget());
    downloads.set(url, this);
  }

  /** Wait for the tile, unless the signal ends that; the last one that leaves cancels it. */
  async wait(signal: AbortSignal): Promise<ArrayBuffer> {
    this.#waiting += 1;
    const leave = (): void => {
      this.#waiting -= 1;
      if (this.#waiting === 0) this.abort();
    };
    signal.addEventListener('abort', leave, { once: true });
    try {
      return await this.data;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  abort(): void {
    this.#forget();
    this.#controller.abort();
  }

  #forget(): void {
    if (downloads.get(this.url) === this) downloads.delete(this.url);
  }
}

const downloads = new Map<string, Download>();
const TILE = /(\/tile\/web\/)(\d+)_(\d+)_(\d+)/;

async function loadTile(
  parameters: RequestParameters,
  controller: AbortController,
): Promise<GetResourceResponse<ArrayBuffer>> {
  const [, , zoom = '0', x = '0', y = '0'] = TILE.exec(parameters.url) ?? [];
  const requested = parameters.url.replace(TILE, '$1{z}_{x}_{y}');
  for (;;) {
    const template = latest(requested);
    const url = tileUrl(template, Number(zoom), x, y);
    try {
      const data = await tileData(template, url, controller.signal);
      if (latest(template) !== template) continue;
      tileFailure.set(null);
      // The receiver takes the buffer over, so that the cache keeps its own.
      return { data: data.slice(0) };
    } catch (error) {
      if (controller.signal.aborted) throw error;
      if (isAbort(error)) continue; // it has been superseded
      tileFailure.set(error);
      // MapLibre never requests a failed tile again, not even for another version: it gets an empty one.
      return { data: new ArrayBuffer(0) };
    }
  }
}

function tileUrl(template: string, zoom: number, x: string, y: string): string {
  const [address = '', marks = ''] = template.slice(TILE_PROTOCOL.length + 1).split('#');
  const filled = address.replace('{z}_{x}_{y}', `${zoom}_${x}_${y}`);
  return `${HUB.protocol}${filled}${samplingOf(zoom, Number.parseInt(marks, 10))}`;
}

async function tileData(template: string, url: string, signal: AbortSignal): Promise<ArrayBuffer> {
  const isKept = isFixed(new URL(url).searchParams.get('versionRef'));
  const known = isKept ? cache.get(url) : undefined;
  if (known) return known;
  const download = downloads.get(url) ?? new Download(template, url);
  const data = await download.wait(signal);
  if (isKept && !cache.has(url)) cache.put(url, data);
  return data;
}

addProtocol(TILE_PROTOCOL, loadTile);
