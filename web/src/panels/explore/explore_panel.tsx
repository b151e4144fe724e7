/** Explore: choose a space; find features, filter them, and change how they look. */

import { reloadSpaces, spaces } from '../../state/data';
import { useStore } from '../../state/store';
import { showSpace, view } from '../../state/view';
import { agoText, counted, timeText } from '../../ui/format';
import { Button, ErrorNote, Section } from '../../ui/parts';
import type { Panel, PanelProps } from '../registry';
import './explore.css';
import { FilterForm } from './filter_form';
import { FindForm } from './find_form';
import { LookForm } from './look_form';
import { SpaceList } from './space_list';

function ExplorePanel({ mapView, space }: PanelProps) {
  const { space: id } = useStore(view);
  const found = useStore(spaces);
  if (id === null) return <SpaceList />;
  if (!space) {
    if (found.state !== 'ready') return <SpaceList />;
    return (
      <>
        <ErrorNote error={new Error(`There is no space '${id}', or you may not see it.`)} onRetry={reloadSpaces} />
        <SpaceList />
      </>
    );
  }
  return (
    <>
      <div class="space-head">
        <Button kind="quiet" icon="back" onClick={() => showSpace(null)}>
          All spaces
        </Button>
        <h3>{space.title || space.id}</h3>
        {space.description && <p>{space.description}</p>}
        <p class="list-detail">
          {space.featureCount != null && <>{counted(space.featureCount, 'feature')} · </>}
          {space.contentUpdatedAt ? (
            <span title={timeText(space.contentUpdatedAt)}>changed {agoText(space.contentUpdatedAt)}</span>
          ) : (
            'never changed'
          )}
          {space.readOnly && ' · read-only'}
        </p>
      </div>
      <Section title="Find">
        <FindForm mapView={mapView} space={space} />
      </Section>
      <Section title="Filter">
        <FilterForm space={space} />
      </Section>
      <Section title="Look">
        <LookForm />
      </Section>
    </>
  );
}

export const explorePanel: Panel = {
  id: 'explore',
  title: 'Explore',
  icon: 'layers',
  Component: ExplorePanel,
  isOffered: () => true,
};
