/** The spaces that the caller may see. */

import { reloadSpaces, spaces } from '../../state/data';
import { useStore } from '../../state/store';
import { showSpace, view } from '../../state/view';
import { agoText, counted, timeText } from '../../ui/format';
import { ErrorNote, Loading } from '../../ui/parts';

export function SpaceList() {
  const found = useStore(spaces);
  const { space: shown } = useStore(view);
  if (found.state === 'failed') return <ErrorNote error={found.error} onRetry={reloadSpaces} />;
  if (!('value' in found) || !found.value) return <Loading>Loading the spaces…</Loading>;
  if (found.value.length === 0) {
    return (
      <div class="note">
        <p>There are no spaces yet, or none that you may see.</p>
        <p>
          <code>make run</code> loads a sample; <code>POST /hub/spaces</code> creates a space.
        </p>
      </div>
    );
  }
  return (
    <ul class="list" aria-label="Spaces">
      {found.value.map((space) => (
        <li key={space.id}>
          <button
            type="button"
            class="list-item"
            aria-current={space.id === shown ? 'true' : undefined}
            onClick={() => showSpace(space.id)}
          >
            <span class="list-title">{space.title || space.id}</span>
            <span class="list-detail">
              {space.featureCount == null ? space.id : counted(space.featureCount, 'feature')}
              {space.contentUpdatedAt ? (
                <span title={timeText(space.contentUpdatedAt)}> · changed {agoText(space.contentUpdatedAt)}</span>
              ) : null}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
