/** The view in the fragment of the page's address. */

import { NO_FILTER, START, type Camera, type View, MAIN, view } from './view';

const KNOWN = new Set(['space', 'branch', 'v', 'panel', 'feature', 'q', 'tags', 'author', 'color', 'map']);

/** Format a view as the fragment of an address, without `#`. */
export function fragmentOf(shown: View): string {
  const found = new URLSearchParams();
  if (shown.space !== null) found.set('space', shown.space);
  if (shown.branch !== MAIN) found.set('branch', shown.branch);
  if (shown.version !== null) found.set('v', String(shown.version));
  if (shown.panel !== START.panel) found.set('panel', shown.panel ?? '');
  if (shown.feature !== null) found.set('feature', shown.feature);
  for (const condition of shown.filter.properties) found.append('q', condition);
  if (shown.filter.tags) found.set('tags', shown.filter.tags);
  if (shown.filter.author) found.set('author', shown.filter.author);
  if (shown.colorBy !== null) found.set('color', shown.colorBy);
  for (const [name, value] of Object.entries(shown.more)) if (value) found.set(name, value);
  if (shown.camera) {
    const { zoom, latitude, longitude } = shown.camera;
    found.set('map', `${zoom.toFixed(2)}/${latitude.toFixed(5)}/${longitude.toFixed(5)}`);
  }
  // Readable in the address bar; the rest stays encoded.
  return found.toString().replaceAll('%2F', '/').replaceAll('%3A', ':').replaceAll('%2C', ',');
}

/** Parse the fragment of an address; what it does not name is as at the start. */
export function viewOf(fragment: string): View {
  const found = new URLSearchParams(fragment.replace(/^#/, ''));
  const version = found.get('v');
  const more: Record<string, string> = {};
  for (const [name, value] of found) if (!KNOWN.has(name)) more[name] = value;
  return {
    space: found.get('space') || null,
    branch: found.get('branch') || MAIN,
    version: version !== null && /^\d+$/.test(version) ? Number(version) : null,
    panel: found.has('panel') ? found.get('panel') || null : START.panel,
    feature: found.get('feature') || null,
    filter: {
      ...NO_FILTER,
      properties: found.getAll('q'),
      tags: found.get('tags') ?? '',
      author: found.get('author') ?? '',
    },
    colorBy: found.get('color') || null,
    camera: cameraOf(found.get('map')),
    more,
  };
}

function cameraOf(text: string | null): Camera | null {
  const [zoom, latitude, longitude] = (text ?? '').split('/').map(Number);
  if (zoom === undefined || latitude === undefined || longitude === undefined) return null;
  const isValid = [zoom, latitude, longitude].every(Number.isFinite) && Math.abs(latitude) <= 90;
  return isValid ? { zoom, latitude, longitude } : null;
}

/** Keep the view and the address of the page the same from now on. */
export function bindAddress(): void {
  view.set(viewOf(location.hash));
  view.subscribe((shown, before) => {
    const address = `#${fragmentOf(shown)}`;
    if (address === location.hash) return;
    // Another space or feature is a step of the browser's history; a moved map is not.
    const isStep = shown.space !== before.space || shown.feature !== before.feature;
    if (isStep) history.pushState(null, '', address);
    else history.replaceState(null, '', address);
  });
  addEventListener('popstate', () => {
    const next = viewOf(location.hash);
    if (fragmentOf(next) !== fragmentOf(view.value)) view.set(next);
  });
}
