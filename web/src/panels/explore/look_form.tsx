/** Colours: by geometry type, or by the values of a property. */

import { statistics } from '../../state/data';
import { spaceStyle } from '../../state/look';
import { useStore } from '../../state/store';
import { theme } from '../../state/theme';
import { view } from '../../state/view';
import { PALETTES } from '../../map/palette';
import { Field } from '../../ui/parts';

export function LookForm() {
  const found = useStore(statistics);
  const { colorBy } = useStore(view);
  const keys = ('value' in found ? found.value?.properties.value : undefined) ?? [];
  const names = keys.map((one) => one.key);
  if (colorBy !== null && !names.includes(colorBy)) names.push(colorBy);
  return (
    <>
      <Field label="Colour features by">
        <select
          value={colorBy ?? ''}
          onChange={(event) => view.update({ colorBy: event.currentTarget.value || null })}
        >
          <option value="">geometry type</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </Field>
      <Legend />
    </>
  );
}

function Legend() {
  const { colorBy, values } = useStore(spaceStyle);
  const found = useStore(statistics);
  const palette = PALETTES[useStore(theme)];
  if (colorBy === null) {
    const types = ('value' in found ? found.value?.geometryTypes.value : undefined) ?? [];
    const has = (part: string) => types.some((type) => type.includes(part));
    return (
      <ul class="legend" aria-label="Legend">
        {has('Point') && <LegendEntry color={palette.point} shape="point" label="points" />}
        {has('Line') && <LegendEntry color={palette.line} shape="line" label="lines" />}
        {has('Polygon') && <LegendEntry color={palette.polygon} shape="area" label="areas" />}
      </ul>
    );
  }
  return (
    <ul class="legend" aria-label="Legend">
      {values.map((value, n) => (
        <LegendEntry key={value} color={palette.values[n] ?? palette.otherValue} shape="point" label={value} />
      ))}
      <LegendEntry color={palette.otherValue} shape="point" label="other values" />
    </ul>
  );
}

function LegendEntry(props: { color: string; shape: 'point' | 'line' | 'area'; label: string }) {
  return (
    <li>
      <span class={`swatch ${props.shape}`} style={{ background: props.color }} aria-hidden="true" />
      {props.label}
    </li>
  );
}
