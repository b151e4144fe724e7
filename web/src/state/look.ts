/** How the features of the shown space look: labels, and colours of the values of a property. */

import { searchFeatures } from '../api/spaces';
import type { SpaceStyle } from '../map/space_layers';
import { valueText } from '../ui/format';
import { statistics } from './data';
import { Store } from './store';
import { versionRef, view } from './view';

/** Number of features from which the frequent values of a property are determined. */
const SAMPLE = 2_000;
/** Number of values with a colour of their own. */
const VALUES_MAX = 8;
const LABELS = ['name', 'title', 'label', 'street', 'ref'];

export const spaceStyle = new Store<SpaceStyle>({ colorBy: null, values: [], labelBy: null });

export const isLookLoading = new Store(false);

/** Determine labels and values again whenever the space or the chosen property changes. */
export function bindLook(): void {
  view.subscribe((now, before) => {
    if (now.space !== before.space || now.colorBy !== before.colorBy) void follow();
  });
  statistics.subscribe(() => {
    spaceStyle.update({ labelBy: labelProperty() });
  });
  void follow();
}

async function follow(): Promise<void> {
  const { space, colorBy } = view.value;
  spaceStyle.set({ colorBy, values: [], labelBy: labelProperty() });
  if (space === null || colorBy === null) return;
  isLookLoading.set(true);
  const values = await frequentValues(space, colorBy).catch(() => []);
  const now = view.value;
  if (now.space === space && now.colorBy === colorBy) spaceStyle.update({ values });
  isLookLoading.set(false);
}

async function frequentValues(space: string, property: string): Promise<string[]> {
  const found = await searchFeatures(space, {
    versionRef: versionRef(view.value),
    conditions: '',
    limit: SAMPLE,
    selection: `p.${property}`,
  });
  const counts = new Map<string, number>();
  for (const feature of found) {
    const value = feature.properties[property];
    if (value === undefined || value === null || value === '') continue;
    const text = valueText(value);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const ordered = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  return ordered.slice(0, VALUES_MAX).map(([text]) => text);
}

/** Return the properties of the shown space that name a feature, the most likely one first. */
export function labelProperties(): string[] {
  const keys = statistics.current?.properties.value.map((one) => one.key) ?? [];
  return LABELS.filter((name) => keys.includes(name));
}

/** Return the text by which people know a feature: its name, or else its id. */
export function labelOf(id: string, properties: Readonly<Record<string, unknown>>): string {
  for (const name of LABELS) {
    const value = properties[name];
    if (typeof value === 'string' && value) return value;
  }
  return id;
}

function labelProperty(): string | null {
  return labelProperties()[0] ?? null;
}
