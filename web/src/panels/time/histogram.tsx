/** Bars with the number of edits per version; a long history has several versions per bar. */

import { editsOf, type LogEntry } from '../../api/log';
import { counted } from '../../ui/format';

const BARS_MAX = 160;
const HEIGHT = 32;
const BAR_HEIGHT_MIN = 2;
const GAP = 0.12;

export function Histogram({ entries, position }: { entries: readonly LogEntry[]; position: number }) {
  const bars = barsOf(entries);
  const most = Math.max(...bars.map((bar) => bar.edits));
  const total = bars.reduce((sum, bar) => sum + bar.edits, 0);
  return (
    <svg
      class="histogram"
      // A bar is centred on the thumb of the slider at its versions.
      viewBox={`0 0 ${Math.max(1, entries.length - 1)} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`Histogram: ${counted(total, 'edit')} in ${counted(entries.length, 'version')}`}
    >
      {bars.map(({ first, count, edits }) => {
        // The square root keeps small edits visible beside a bulk load.
        const height = edits === 0 ? 0 : Math.max(BAR_HEIGHT_MIN, Math.sqrt(edits / most) * HEIGHT);
        const phase = position < first ? 'future' : position < first + count ? 'current' : 'past';
        return (
          <rect
            key={first}
            class={phase}
            x={first - 0.5 + GAP * count}
            y={HEIGHT - height}
            width={count * (1 - 2 * GAP)}
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
