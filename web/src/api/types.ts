/** Documents of the hub, as far as the page uses them. `openapi.json` describes all members. */

import type { Geometry } from 'geojson';

/** Rights on a space and its features. */
export type SpaceRight =
  | 'useSpaces'
  | 'manageSpaces'
  | 'adminSpaces'
  | 'readFeatures'
  | 'createFeatures'
  | 'updateFeatures'
  | 'deleteFeatures';

export interface Space {
  readonly id: string;
  readonly title?: string;
  readonly description?: string;
  readonly readOnly?: boolean;
  readonly contentUpdatedAt?: number | null;
  readonly featureCount?: number | null;
  readonly estimated?: boolean;
  readonly rights?: readonly SpaceRight[];
}

/** The namespace that the hub adds to the properties of each feature. */
export interface Namespace {
  readonly action?: 'CREATE' | 'UPDATE' | 'DELETE';
  readonly version?: number;
  readonly author?: string | null;
  readonly appId?: string;
  readonly uuid?: string;
  readonly puuid?: string | null;
  readonly txn?: string;
  readonly txn_next?: string;
  readonly createdAt?: number;
  readonly updatedAt?: number;
  readonly tags?: readonly string[];
}

export const NAMESPACE = '@ns:com:here:xyz';

export interface Feature {
  readonly type: 'Feature';
  readonly id: string;
  readonly geometry: Geometry | null;
  readonly properties: Readonly<Record<string, unknown>>;
}

export interface FeatureCollection {
  readonly type: 'FeatureCollection';
  readonly features: readonly Feature[];
}

/** Return the namespace of a feature. */
export function namespaceOf(feature: Feature): Namespace {
  return (feature.properties[NAMESPACE] ?? {}) as Namespace;
}

export interface PatchStep {
  readonly op: 'add' | 'remove' | 'replace';
  readonly path: string;
  readonly value?: unknown;
}

/** One state in the history of a feature, oldest first. */
export interface HistoryStep {
  readonly id: string;
  readonly action: 'CREATE' | 'UPDATE' | 'DELETE';
  readonly author: string | null;
  readonly appId: string;
  readonly at: number;
  readonly patch: readonly PatchStep[];
  readonly feature: Feature;
}

export interface Figure<T> {
  readonly value: T;
  readonly estimated: boolean;
}

export interface KeyCount {
  readonly key: string;
  readonly count: number;
}

export interface Statistics {
  readonly count: Figure<number>;
  readonly bbox: Figure<readonly [number, number, number, number] | null>;
  readonly geometryTypes: Figure<readonly string[]>;
  readonly properties: Figure<readonly KeyCount[]>;
  readonly tags: Figure<readonly KeyCount[]>;
}

export interface Tag {
  readonly id: string;
  readonly branchId: string;
  readonly version: number;
  readonly versionRef: string;
  readonly description: string;
  readonly author: string;
  readonly createdAt: number;
}

export interface Branch {
  readonly id: string;
  readonly baseRef: string;
  readonly description: string;
  readonly state: string;
}

/** The caller, and their rights. */
export interface Me {
  readonly appId: string;
  readonly author: string | null;
  readonly realm: string;
  readonly anonymous: boolean;
  readonly rights: Readonly<Record<string, 'all' | 'some'>>;
}
