/** The panels of the page, in the order of their tabs. A new panel is a module and a line here. */

import type { ComponentType } from 'preact';
import type { Me, Space } from '../api/types';
import type { MapView } from '../map/map_view';
import type { IconName } from '../ui/icons';
import { comparePanel } from './compare/compare_panel';
import { explorePanel } from './explore/explore_panel';
import { logPanel } from './log/log_panel';

export interface PanelProps {
  readonly mapView: MapView;
  /** The shown space; panels that need one are not offered without. */
  readonly space: Space | undefined;
}

export interface Panel {
  /** Name in the address of the page. */
  readonly id: string;
  readonly title: string;
  readonly icon: IconName;
  readonly Component: ComponentType<PanelProps>;
  /** Whether the panel is offered: what the caller may not do is not shown. */
  isOffered(space: Space | undefined, me: Me): boolean;
}

export const PANELS: readonly Panel[] = [explorePanel, comparePanel, logPanel];
