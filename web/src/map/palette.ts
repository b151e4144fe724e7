/** Colours of the map in each theme. */

import type { Theme } from '../state/theme';

export interface Palette {
  readonly water: string;
  readonly land: string;
  readonly coast: string;
  readonly border: string;
  readonly label: string;
  readonly labelHalo: string;
  /** Features by geometry type. */
  readonly point: string;
  readonly line: string;
  readonly polygon: string;
  /** Outline that separates a feature from what is below it. */
  readonly casing: string;
  readonly selected: string;
  /** Colours of values of a property, distinguishable with a colour vision deficiency. */
  readonly values: readonly string[];
  readonly otherValue: string;
  readonly created: string;
  readonly changed: string;
  readonly deleted: string;
}

const VALUES = [
  '#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#8c6bb1', '#b2a000',
] as const;

export const PALETTES: Readonly<Record<Theme, Palette>> = {
  light: {
    water: '#cfdfe8',
    land: '#f6f4ee',
    coast: '#a9bfcc',
    border: '#c9bfae',
    label: '#5b6470',
    labelHalo: '#fbfaf6',
    point: '#0b6e6e',
    line: '#b3471d',
    polygon: '#4a63b0',
    casing: '#ffffff',
    selected: '#d6006e',
    values: VALUES,
    otherValue: '#7c8590',
    created: '#1a7f37',
    changed: '#9a5b00',
    deleted: '#c4242b',
  },
  dark: {
    water: '#10161c',
    land: '#1f272e',
    coast: '#33424e',
    border: '#44515c',
    label: '#a7b2bd',
    labelHalo: '#161d23',
    point: '#4cc9c0',
    line: '#ff9a6b',
    polygon: '#93a9f5',
    casing: '#10161c',
    selected: '#ff6fb5',
    values: ['#4aa8e0', '#f0b53c', '#2fc79d', '#e3a1c6', '#8fd0f5', '#f5803a', '#b59ad6', '#d9c93a'],
    otherValue: '#9aa5b1',
    created: '#56d364',
    changed: '#e3b341',
    deleted: '#ff7b72',
  },
};
