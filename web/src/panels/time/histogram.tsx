/** Bars with the number of edits per version; a long history has several versions per bar. */

import { editsOf, type LogEntry } from '../../api/log';
import { counted } from '../../ui/format';

const BARS_MAX = 160;
const HEIGHT = 32;
const BAR_HEIGHT_MIN = 2;
/** Part of its versions that a bar covers. */
const BAR_WIDTH = 0.76;
/** Part of the track that a bar covers at most, so that few versions do not make wide bars. */
const BAR_WIDTH_MAX = 0.03;

export function Histogram({ entries, position }: { entries: readonly LogEntry[]; position: number }) {
  const bars = barsOf(entries);
  const most = Math.max(...bars.map((bar) => bar.edits));
  const last = Math.max(1, entries.length - 1);
  const total = bars.reduce((sum, bar) => sum + bar.edits, 0);
  return (
    <svg
      class="histogram"
      // A bar is centred on the thumb of the slider at its versions.
      viewBox={`0 0 ${last} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`Histogram: ${counted(total, 'edit')} in ${counted(entries.length, 'version')}`}
    >
      {bars.map(({ first, count, edits }) => {
        // The square root keeps small edits visible beside a bulk load.
        const height = edits === 0 ? 0 : Math.max(BAR_HEIGHT_MIN, Math.sqrt(edits / most) * HEIGHT);
        const phase = position < first ? 'future' : position < first + count ? 'current' : 'past';
        const width = Math.min(count * BAR_WIDTH, last * BAR_WIDTH_MAX);
        const center = entries.length === 1 ? last : first + (count - 1) / 2;
        return (
          <rect
            key={first}
            class={phase}
            x={center - width / 2}
            y={HEIGHT - height}
            width={width}
            height={height}
          />
        );
      })}
    </svg>
  );
}

interface Bar {
  readonly first: number;
  readonly count: number;
  readonly edits: number;
}

function barsOf(entries: readonly LogEntry[]): Bar[] {
  const size = Math.ceil(entries.length / BARS_MAX);
  const found: Bar[] = [];
  for (let first = 0; first < entries.length; first += size) {
    const inside = entries.slice(first, first + size);
    found.push({ first, count: inside.length, edits: inside.reduce((sum, entry) => sum + editsOf(entry), 0) });
  }
  return found;
}
