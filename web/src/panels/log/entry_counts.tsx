/** How many features a changeset created, changed and deleted, with the marks of the map. */

import type { ChangeAction } from '../../api/diff';
import type { LogEntry } from '../../api/log';
import { ChangeMark, KINDS } from '../../compare/marks';
import '../../compare/compare.css';
import { countText } from '../../ui/format';

export function EntryCounts({ entry }: { entry: Pick<LogEntry, 'inserted' | 'updated' | 'deleted'> }) {
  const counts: readonly (readonly [ChangeAction, number])[] = [
    ['created', entry.inserted],
    ['updated', entry.updated],
    ['deleted', entry.deleted],
  ];
  return (
    <>
      {counts
        .filter(([, count]) => count > 0)
        .map(([action, count]) => (
          <span key={action} class="log-count">
            <ChangeMark action={action} />
            {countText(count)}
            <span class="visually-hidden"> {KINDS[action].word}</span>
          </span>
        ))}
    </>
  );
}
