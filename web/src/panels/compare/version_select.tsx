/** A choice of versions: branches, tags, and the newest versions of the shown branch. */

import { useMemo } from 'preact/hooks';
import { branches, tags, timeline } from '../../state/data';
import { useStore } from '../../state/store';
import { MAIN, versionRef, view } from '../../state/view';
import { dateText } from '../../ui/format';
import './compare_panel.css';

/** The newest versions that are listed; the slider and links choose any other one. */
const VERSIONS_MAX = 300;

interface Choice {
  readonly ref: string;
  readonly name: string;
}

export interface VersionChoices {
  readonly branches: readonly Choice[];
  readonly tags: readonly Choice[];
  readonly versions: readonly Choice[];
}

/** Hook: what can be chosen of the shown space. */
export function useVersionChoices(): VersionChoices {
  const [log, tagList, branchList] = [useStore(timeline), useStore(tags), useStore(branches)];
  const { branch } = useStore(view);
  return useMemo(() => {
    const entries = ('value' in log ? log.value : undefined) ?? [];
    return {
      branches: [
        { ref: MAIN, name: 'Latest' },
        ...(('value' in branchList ? branchList.value : undefined) ?? [])
          .filter(({ id }) => id !== MAIN)
          .map(({ id }) => ({ ref: id, name: `Branch ${id}` })),
      ],
      tags: (('value' in tagList ? tagList.value : undefined) ?? []).map(({ id, versionRef: ref }) => ({
        ref,
        name: `Tag ${id}`,
      })),
      versions: entries
        .slice(-VERSIONS_MAX)
        .reverse()
        .map(({ version, author, publishedAt, message }) => ({
          ref: versionRef({ branch, version }),
          name: `${version}: ${message || author}, ${dateText(publishedAt)}`,
        })),
    };
  }, [log, tagList, branchList, branch]);
}

export function VersionSelect(props: { choices: VersionChoices; value: string; onChange: (ref: string) => void }) {
  const { choices, value } = props;
  const known = [...choices.branches, ...choices.tags, ...choices.versions];
  return (
    <select value={value} onChange={(event) => props.onChange(event.currentTarget.value)}>
      {known.every(({ ref }) => ref !== value) && <option value={value}>{nameOf(choices, value)}</option>}
      <optgroup label="Current state">{choices.branches.map(option)}</optgroup>
      {choices.tags.length > 0 && <optgroup label="Tags">{choices.tags.map(option)}</optgroup>}
      <optgroup label="Versions, newest first">
        {choices.versions.map(option)}
        <option value="0">0: before everything</option>
      </optgroup>
    </select>
  );
}

function option({ ref, name }: Choice) {
  return (
    <option key={name} value={ref}>
      {name}
    </option>
  );
}

/** Return what a version is called: a tag or a branch, or its number. */
export function nameOf(choices: VersionChoices, ref: string): string {
  const found = [...choices.branches, ...choices.tags].find((choice) => choice.ref === ref);
  return found?.name ?? (/^\d+$/.test(ref) ? `Version ${ref}` : ref);
}

/** Show a version on the map. */
export function showRef(ref: string): void {
  const colon = ref.lastIndexOf(':');
  const number = ref.slice(colon + 1);
  const isNumber = /^\d+$/.test(number);
  const branch = colon >= 0 ? ref.slice(0, colon) : isNumber ? MAIN : ref;
  view.update({ branch, version: isNumber ? Number(number) : null });
}
