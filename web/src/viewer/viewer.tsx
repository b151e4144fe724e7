/** The page of a comparison in a file: the map and the list of changes. */

import { useEffect, useRef, useState } from 'preact/hooks';
import { ChangesView, fitAll } from '../compare/changes_view';
import { MapView } from '../map/map_view';
import { setMore } from '../state/more';
import { useStore } from '../state/store';
import { type ThemeChoice, themeChoice } from '../state/theme';
import { view } from '../state/view';
import { Button, IconButton } from '../ui/parts';
import { type Comparison, endText } from './comparison';

export function Viewer({ comparison }: { comparison: Comparison }) {
  const { collection, from, to, changes } = comparison;
  const { more } = useStore(view);
  const [mapView, setMapView] = useState<MapView | null>(null);
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!container.current) return;
    const made = MapView.create(container.current);
    if (!view.value.camera) fitAll(made, changes);
    setMapView(made);
    Object.assign(window, { naksha: { mapView: made, isIdle: () => made.isIdle } });
    return () => made.destroy();
  }, []);
  const isSwiped = more['mode'] === 'swipe';
  const labels = { before: endText(from), after: endText(to) };
  return (
    <div class="workspace">
      <header class="header">
        <h1 class="brand">Changes of {collection}</h1>
        <span class="viewer-versions">
          {labels.before} → {labels.after}
        </span>
        <div class="header-end">
          <ThemeButton />
        </div>
      </header>
      <aside class="side" aria-label="Changes">
        <div class="side-body stack">
          <div class="button-row" role="group" aria-label="Map">
            <Button pressed={!isSwiped} onClick={() => setMore({ mode: null })}>
              One map
            </Button>
            <Button pressed={isSwiped} onClick={() => setMore({ mode: 'swipe' })}>
              Swipe
            </Button>
          </div>
          {mapView && <ChangesView mapView={mapView} changes={changes} labels={labels} isSwiped={isSwiped} />}
        </div>
      </aside>
      <main class="map-area" aria-label="Map">
        <div class="map" ref={container} />
      </main>
    </div>
  );
}

const NEXT: Readonly<Record<ThemeChoice, ThemeChoice>> = { system: 'light', light: 'dark', dark: 'system' };
const ICONS = { system: 'system', light: 'sun', dark: 'moon' } as const;

function ThemeButton() {
  const choice = useStore(themeChoice);
  const next = NEXT[choice];
  return <IconButton icon={ICONS[choice]} label={`Theme: ${choice}. Change to ${next}`} onClick={() => themeChoice.set(next)} />;
}
