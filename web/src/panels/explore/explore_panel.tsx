/** Explore: choose a space; its look, its filter, and search. */

import type { Panel, PanelProps } from '../registry';
import { SpaceList } from './space_list';

function ExplorePanel({ space }: PanelProps) {
  if (!space) return <SpaceList />;
  return <SpaceList />;
}

export const explorePanel: Panel = {
  id: 'explore',
  title: 'Explore',
  icon: 'layers',
  Component: ExplorePanel,
  isOffered: () => true,
};
