/** Filter: by properties, tags and authors. */

import { useEffect, useState } from 'preact/hooks';
import { countFeatures } from '../../api/spaces';
import type { Space } from '../../api/types';
import { statistics } from '../../state/data';
import { conditionText, filterQuery, isEverything, OPERATORS } from '../../state/filter';
import { useLoaded } from '../../state/loading';
import { useStore } from '../../state/store';
import { type FeatureFilter, NO_FILTER, versionRef, view } from '../../state/view';
import { counted } from '../../ui/format';
import { Button, ErrorNote, Field, IconButton } from '../../ui/parts';

function change(members: Partial<FeatureFilter>): void {
  view.update({ filter: { ...view.value.filter, ...members } });
}

export function FilterForm({ space }: { space: Space }) {
  const shown = useStore(view);
  const { filter } = shown;
  const ref = versionRef(shown);
  const isActive = !isEverything(filter);
  const [found] = useLoaded(
    isActive ? (signal) => countFeatures(space.id, ref, filter, signal) : null,
    [space.id, ref, filterQuery(filter)],
  );
  return (
    <>
      {filter.properties.length > 0 && (
        <ul class="chips" aria-label="Conditions">
          {filter.properties.map((condition, n) => (
            <li key={condition} class="chip">
              <span>{conditionText(condition)}</span>
              <IconButton
                icon="close"
                label={`Remove the condition ${conditionText(condition)}`}
                onClick={() => change({ properties: filter.properties.filter((_, other) => other !== n) })}
              />
            </li>
          ))}
        </ul>
      )}
      <ConditionForm />
      <TextFilter
        label="Tags"
        hint="a,b is either; a+b is both"
        value={filter.tags}
        onChange={(tags) => change({ tags })}
      />
      <TextFilter
        label="Last changed by"
        hint="authors, separated by commas"
        value={filter.author}
        onChange={(author) => change({ author })}
      />
      {isActive && (
        <div class="filter-result">
          {found.state === 'failed' ? (
            <ErrorNote error={found.error} />
          ) : (
            <p role="status">{found.state === 'ready' ? `${counted(found.value, 'feature')} shown` : 'Counting…'}</p>
          )}
          <Button onClick={() => view.update({ filter: NO_FILTER })}>Show all</Button>
        </div>
      )}
    </>
  );
}

/** A condition on a property, added on submit. */
function ConditionForm() {
  const found = useStore(statistics);
  const names = (('value' in found ? found.value?.properties.value : undefined) ?? []).map((one) => one.key);
  const [name, setName] = useState('');
  const [operator, setOperator] = useState('=');
  const [value, setValue] = useState('');
  const chosen = name || names[0] || '';
  const submit = (event: Event) => {
    event.preventDefault();
    if (!chosen || !value) return;
    const condition = `${chosen}${operator}${value}`;
    const { properties } = view.value.filter;
    if (!properties.includes(condition)) change({ properties: [...properties, condition] });
    setValue('');
  };
  return (
    <form class="condition-form" onSubmit={submit}>
      <Field label="Property">
        <select value={chosen} onChange={(event) => setName(event.currentTarget.value)}>
          {names.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Comparison">
        <select value={operator} onChange={(event) => setOperator(event.currentTarget.value)}>
          {Object.entries(OPERATORS).map(([sign, words]) => (
            <option key={sign} value={sign}>
              {words}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Value">
        <input type="text" value={value} onInput={(event) => setValue(event.currentTarget.value)} />
      </Field>
      <Button type="submit" disabled={!chosen || !value}>
        Add
      </Button>
    </form>
  );
}

/** A text of the filter, applied when the reader leaves it or presses Enter. */
function TextFilter(props: { label: string; hint: string; value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(props.value);
  useEffect(() => setText(props.value), [props.value]);
  return (
    <Field label={props.label} hint={props.hint}>
      <input
        type="text"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onChange={() => props.onChange(text.trim())}
      />
    </Field>
  );
}
