/** What the page shows. It is kept in the address of the page, so that a link reproduces it. */

import { Store } from './store';

/** Conditions that the shown features meet. */
export interface FeatureFilter {
  /** Conditions of the hub on properties, such as `p.country=DE` or `p.speed>=50`. */
  readonly properties: readonly string[];
  /** `a,b+c`: with the tag a, or with both b and c. */
  readonly tags: string;
  /** Authors of the last change, separated by commas. */
  readonly author: string;
}

export interface Camera {
  readonly longitude: number;
  readonly latitude: number;
  readonly zoom: number;
}

export interface View {
  readonly space: string | null;
  readonly branch: string;
  /** Version of the branch; null is the current state. */
  readonly version: number | null;
  /** Id of the open panel; null if all are closed. */
  readonly panel: string | null;
  readonly feature: string | null;
  readonly filter: FeatureFilter;
  /** Property by which features are coloured; null is by geometry type. */
  readonly colorBy: string | null;
  /** Null is the whole space. */
  readonly camera: Camera | null;
  /** State of panels that has no member of its own; its names are parameters of the address. */
  readonly more: Readonly<Record<string, string>>;
}

export const MAIN = 'main';
export const NO_FILTER: FeatureFilter = { properties: [], tags: '', author: '' };
export const START: View = {
  space: null,
  branch: MAIN,
  version: null,
  panel: 'explore',
  feature: null,
  filter: NO_FILTER,
  colorBy: null,
  camera: null,
  more: {},
};

export const view = new Store<View>(START);

/** Return the `versionRef` of what is shown; empty for the current state of main. */
export function versionRef(of: Pick<View, 'branch' | 'version'>): string {
  if (of.branch === MAIN) return of.version === null ? '' : String(of.version);
  return of.version === null ? of.branch : `${of.branch}:${of.version}`;
}

/** Show another space, from its current state on. */
export function showSpace(id: string | null): void {
  view.update({
    space: id,
    branch: MAIN,
    version: null,
    feature: null,
    filter: NO_FILTER,
    colorBy: null,
    camera: null,
    more: {},
  });
}
