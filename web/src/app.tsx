/** The page: header, panel, map and time bar. */

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Me } from './api/types';
import { offerConsole } from './console';
import { Header } from './header';
import { MapView } from './map/map_view';
import { MapNotice } from './map/notice';
import { bindPicking } from './map/picking';
import { bindSpaceLayers } from './map/shown_space';
import { FeaturePanel } from './panels/feature/feature_panel';
import { PANELS } from './panels/registry';
import { TimeBar } from './panels/time/time_bar';
import { currentSpace, spaces } from './state/data';
import { openSession, session } from './state/session';
import { useStore } from './state/store';
import { view } from './state/view';
import { TokenForm } from './token_form';
import { IconButton, ErrorNote, Loading } from './ui/parts';

export function App() {
  const now = useStore(session);
  if (now.state === 'starting') return <Centered><Loading>Connecting to the hub…</Loading></Centered>;
  if (now.state === 'failed') {
    return <Centered><ErrorNote error={now.error} onRetry={() => void openSession()} /></Centered>;
  }
  if (now.state === 'locked') return <Centered><TokenForm reason={now.reason} /></Centered>;
  return <Workspace me={now.me} />;
}

function Centered(props: { children: preact.ComponentChildren }) {
  return (
    <main class="centered">
      <h1>Naksha</h1>
      {props.children}
    </main>
  );
}

function Workspace({ me }: { me: Me }) {
  useStore(spaces);
  useStore(view);
  const space = currentSpace();
  const [mapView, setMapView] = useState<MapView | null>(null);
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!container.current) return;
    const made = MapView.create(container.current);
    const unbind = bindSpaceLayers(made);
    bindPicking(made);
    setMapView(made);
    offerConsole(made);
    const unselect = (event: KeyboardEvent) => {
      if (event.key === 'Escape') view.update({ feature: null });
    };
    addEventListener('keydown', unselect);
    return () => {
      removeEventListener('keydown', unselect);
      unbind();
      made.destroy();
    };
  }, []);
  return (
    <div class="workspace">
      <Header me={me} />
      {mapView && <Side mapView={mapView} me={me} />}
      <main class="map-area" aria-label="Map">
        <div class="map" ref={container} />
        {mapView && space && <MapNotice mapView={mapView} />}
      </main>
      {mapView && space && <TimeBar mapView={mapView} />}
    </div>
  );
}

function Side({ mapView, me }: { mapView: MapView; me: Me }) {
  useStore(spaces);
  const { panel: open, feature } = useStore(view);
  const space = currentSpace();
  if (space && feature !== null) {
    return (
      <aside class="side" aria-label="Feature">
        <FeaturePanel key={feature} mapView={mapView} space={space} id={feature} />
      </aside>
    );
  }
  const offered = PANELS.filter((panel) => panel.isOffered(space, me));
  const shown = offered.find((panel) => panel.id === open);
  if (!shown) return null;
  return (
    <aside class="side" aria-label={shown.title}>
      <div class="side-head">
        <h2>{shown.title}</h2>
        <IconButton icon="close" label="Close this panel" onClick={() => view.update({ panel: null })} />
      </div>
      <div class="side-body">
        <shown.Component mapView={mapView} space={space} />
      </div>
    </aside>
  );
}
