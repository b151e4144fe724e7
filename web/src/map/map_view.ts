/** The map: its base, and the parts that panels draw on it. */

import 'maplibre-gl/dist/maplibre-gl.css';
import {
  AttributionControl,
  Map as MapLibreMap,
  NavigationControl,
  ScaleControl,
  setWorkerUrl,
  type LngLatBoundsLike,
  type StyleSpecification,
} from 'maplibre-gl';
import workerUrl from 'maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url';
import { authHeaders, HUB } from '../api/client';
import { theme, type Theme } from '../state/theme';
import { type Camera, view } from '../state/view';
import { baseStyle, FIRST_LABEL_LAYER } from './basemap';
import { PALETTES, type Palette } from './palette';

setWorkerUrl(new URL(workerUrl, import.meta.url).href);

/** Something that is drawn on the map. */
export interface MapPart {
  /** Add sources and layers; called again after the base map has been replaced. */
  attach(map: MapLibreMap, palette: Palette): void;
  /** Remove them again. */
  detach(map: MapLibreMap): void;
  /** Note that they are gone, because the base map is replaced; `attach` follows. */
  lost(): void;
}

/** The camera without anything to show. */
export const WORLD: Camera = { longitude: 10, latitude: 30, zoom: 1.4 };

export class MapView {
  readonly map: MapLibreMap;
  readonly #parts: MapPart[] = [];
  #isStyled = false;
  /** Whether nothing has begun to load or to move since the map was drawn. */
  #isQuiet = false;
  #styling = 0;
  #unfollow: () => void = () => undefined;

  private constructor(container: HTMLElement, isMain: boolean) {
    const { longitude, latitude, zoom } = view.value.camera ?? WORLD;
    this.map = new MapLibreMap({
      container,
      center: [longitude, latitude],
      zoom,
      maxPitch: 0,
      dragRotate: false,
      attributionControl: false,
      fadeDuration: motion(300),
      transformRequest: (url) => ({
        url,
        ...(url.startsWith(`${HUB.href}hub/`) ? { headers: authHeaders() } : {}),
      }),
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.addControl(new NavigationControl({ showCompass: false }), 'top-right');
    this.map.addControl(new ScaleControl({}), 'bottom-left');
    this.map.addControl(new AttributionControl({ compact: true }), 'bottom-right');
    collapseAttribution(container);
    if (isMain) this.map.on('moveend', () => view.update({ camera: this.camera }));
    this.map.on('style.load', () => this.#attachAll());
    for (const event of ['dataloading', 'styledata', 'movestart'] as const) {
      this.map.on(event, () => {
        this.#isQuiet = false;
      });
    }
    this.map.on('idle', () => {
      this.#isQuiet = true;
    });
    // Tiles report their errors in words.
    this.map.on('error', ({ error }) => console.debug('map:', error));
    this.map.getCanvas().setAttribute('aria-label', 'Map. Arrow keys move it, plus and minus zoom.');
    const ends = [
      theme.subscribe((value) => void this.#applyStyle(value)),
      view.subscribe(({ camera }) => {
        // The address of the page changed.
        if (camera && !this.map.isMoving() && !isSameCamera(camera, this.camera)) this.#jumpTo(camera);
      }),
    ];
    this.#unfollow = () => {
      for (const end of ends) end();
    };
  }

  /** Create the map in an element; only the main one moves the camera of the view. */
  static create(container: HTMLElement, { isMain = true } = {}): MapView {
    const made = new MapView(container, isMain);
    void made.#applyStyle(theme.value);
    return made;
  }

  /** Whether the map shows everything: the base map, its parts, and the tiles in view. */
  get isIdle(): boolean {
    return this.#isStyled && this.#isQuiet && this.map.loaded() && !this.map.isMoving();
  }

  /** Wait until the map shows everything, but not longer than given. */
  async whenIdle(milliseconds: number): Promise<void> {
    if (this.isIdle) return;
    await Promise.race([
      new Promise((resolve) => void this.map.once('idle', resolve)),
      new Promise((resolve) => setTimeout(resolve, milliseconds)),
    ]);
  }

  get palette(): Palette {
    return PALETTES[theme.value];
  }

  get camera(): Camera {
    const { lng, lat } = this.map.getCenter();
    return { longitude: lng, latitude: lat, zoom: this.map.getZoom() };
  }

  /** Id of the layer below which features are drawn, if the base map has such a layer. */
  get labelLayer(): string | undefined {
    return this.map.getLayer(FIRST_LABEL_LAYER) ? FIRST_LABEL_LAYER : undefined;
  }

  /** Draw a part; returns the function that removes it. */
  add(part: MapPart): () => void {
    this.#parts.push(part);
    if (this.#isStyled) part.attach(this.map, this.palette);
    return () => {
      const position = this.#parts.indexOf(part);
      if (position < 0) return;
      this.#parts.splice(position, 1);
      if (this.#isStyled) part.detach(this.map);
    };
  }

  /** Show an area as a whole, beside the panels. */
  fit(bounds: LngLatBoundsLike, maxZoom = 15): void {
    this.map.fitBounds(bounds, { padding: this.#padding(), maxZoom, duration: motion(600) });
  }

  /** Show a place. */
  flyTo(camera: Camera): void {
    this.map.easeTo({
      center: [camera.longitude, camera.latitude],
      zoom: camera.zoom,
      duration: motion(400),
    });
  }

  #jumpTo({ longitude, latitude, zoom }: Camera): void {
    this.map.jumpTo({ center: [longitude, latitude], zoom });
  }

  destroy(): void {
    this.#unfollow();
    this.map.remove();
  }

  #padding(): { top: number; bottom: number; left: number; right: number } {
    const { clientWidth: width, clientHeight: height } = this.map.getContainer();
    const edge = Math.min(60, Math.round(Math.min(width, height) / 8));
    return { top: edge, bottom: edge, left: edge, right: edge };
  }

  async #applyStyle(value: Theme): Promise<void> {
    const turn = ++this.#styling;
    const style = await styleOf(value);
    if (turn !== this.#styling) return;
    if (this.#isStyled) for (const part of this.#parts) part.lost();
    this.#isStyled = false;
    this.map.setStyle(style, { diff: false });
  }

  #attachAll(): void {
    this.#isStyled = true;
    for (const part of this.#parts) part.attach(this.map, this.palette);
  }
}

/** Close the attribution, which MapLibre opens at first, where it would cover much of the map. */
function collapseAttribution(container: HTMLElement): void {
  if (container.clientWidth > 640) return;
  const control = container.querySelector('.maplibregl-ctrl-attrib');
  control?.classList.remove('maplibregl-compact-show');
  control?.removeAttribute('open');
}

/** Return whether two cameras are the same, as far as the address of the page tells them apart. */
function isSameCamera(a: Camera, b: Camera): boolean {
  const isNear = (x: number, y: number, most: number) => Math.abs(x - y) <= most;
  return (
    isNear(a.zoom, b.zoom, 0.01) &&
    isNear(a.latitude, b.latitude, 0.0001) &&
    isNear(a.longitude, b.longitude, 0.0001)
  );
}

async function styleOf(value: Theme): Promise<StyleSpecification | string> {
  const configured = document.querySelector('meta[name="naksha-map-style"]')?.getAttribute('content');
  return configured || (await baseStyle(value));
}

/** Return the duration of an animation: none for readers who prefer reduced motion. */
export function motion(milliseconds: number): number {
  return matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : milliseconds;
}
