/** Marks of the three kinds of change: they differ in colour and in shape, on the map and in lists. */

import type { ChangeAction } from '../api/diff';
import type { Palette } from '../map/palette';

export const ACTIONS: readonly ChangeAction[] = ['created', 'updated', 'deleted'];

interface Kind {
  readonly word: string;
  /** Name of the colour in the palette, and of the class in the style sheet. */
  readonly color: 'created' | 'changed' | 'deleted';
  /** Path of the shape in a square of 16, and of the sign in it. */
  readonly shape: string;
  readonly sign: string;
}

export const KINDS: Readonly<Record<ChangeAction, Kind>> = {
  created: { word: 'created', color: 'created', shape: 'M8 1.5a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13Z', sign: 'M8 5v6M5 8h6' },
  updated: { word: 'changed', color: 'changed', shape: 'M8 .8 15.200 8 8 15.200 .8 8Z', sign: 'M5.500 8h5' },
  deleted: { word: 'deleted', color: 'deleted', shape: 'M2 2h12v12H2Z', sign: 'M5.500 5.500l5 5M10.500 5.500l-5 5' },
};

export function ChangeMark({ action }: { action: ChangeAction }) {
  const { color, shape, sign } = KINDS[action];
  return (
    <svg class={`change-mark ${color}`} viewBox="0 0 16 16" aria-hidden="true">
      <path class="shape" d={shape} />
      <path class="sign" d={sign} />
    </svg>
  );
}

const SCALE = 3;

/** Draw a mark for the map. */
export function markImage(action: ChangeAction, palette: Palette): ImageData {
  const { color, shape, sign } = KINDS[action];
  const size = 18 * SCALE;
  const context = new OffscreenCanvas(size, size).getContext('2d');
  if (!context) throw new Error('The browser cannot draw images for the map');
  context.scale(SCALE, SCALE);
  context.translate(1, 1);
  context.fillStyle = palette[color];
  context.strokeStyle = palette.casing;
  context.lineWidth = 1.4;
  context.lineJoin = context.lineCap = 'round';
  context.fill(new Path2D(shape));
  context.stroke(new Path2D(shape));
  context.lineWidth = 1.8;
  context.stroke(new Path2D(sign));
  return context.getImageData(0, 0, size, size);
}

/** Pixels of a mark per pixel of the map. */
export const MARK_RATIO = SCALE;

/** Draw a hatching: deleted areas are crossed out, changed areas are hatched. */
export function hatchImage(action: ChangeAction, palette: Palette): ImageData {
  const size = 24;
  const context = new OffscreenCanvas(size, size).getContext('2d');
  if (!context) throw new Error('The browser cannot draw images for the map');
  context.strokeStyle = palette[KINDS[action].color];
  context.globalAlpha = 0.55;
  context.lineWidth = 2;
  for (const offset of [-size, 0, size]) {
    line(context, offset, 0, offset + size, size);
    if (action === 'deleted') line(context, offset + size, 0, offset, size);
  }
  return context.getImageData(0, 0, size, size);
}

function line(context: OffscreenCanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
