/** Small parts that all panels use. */

import type { ComponentChildren } from 'preact';
import { errorText } from '../api/client';
import { Icon, type IconName } from './icons';

export function Button(props: {
  children: ComponentChildren;
  onClick?: () => void;
  icon?: IconName;
  kind?: 'plain' | 'primary' | 'quiet' | 'danger';
  type?: 'button' | 'submit';
  disabled?: boolean;
  pressed?: boolean;
  title?: string;
}) {
  return (
    <button
      type={props.type ?? 'button'}
      class={`button ${props.kind ?? 'plain'}`}
      onClick={props.onClick}
      disabled={props.disabled}
      aria-pressed={props.pressed}
      title={props.title}
    >
      {props.icon && <Icon name={props.icon} />}
      {props.children}
    </button>
  );
}

/** A button that shows only its icon; the label is for screen readers and the tooltip. */
export function IconButton(props: {
  icon: IconName;
  label: string;
  onClick: () => void;
  disabled?: boolean;
  pressed?: boolean;
}) {
  return (
    <button
      type="button"
      class="button icon-only"
      aria-label={props.label}
      title={props.label}
      aria-pressed={props.pressed}
      onClick={props.onClick}
      disabled={props.disabled}
    >
      <Icon name={props.icon} />
    </button>
  );
}

/** An input with its visible label. */
export function Field(props: { label: string; children: ComponentChildren; hint?: string }) {
  return (
    <label class="field">
      <span class="field-label">{props.label}</span>
      {props.children}
      {props.hint && <span class="hint">{props.hint}</span>}
    </label>
  );
}

export function Section(props: { title: string; children: ComponentChildren; open?: boolean }) {
  return (
    <details class="section" open={props.open ?? true}>
      <summary>
        <h3>{props.title}</h3>
      </summary>
      <div class="section-body">{props.children}</div>
    </details>
  );
}

/** An error in words, with a way out. */
export function ErrorNote(props: { error: unknown; onRetry?: (() => void) | undefined }) {
  return (
    <div class="note error" role="alert">
      <p>{errorText(props.error)}</p>
      {props.onRetry && (
        <Button icon="reload" onClick={props.onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}

export function Loading(props: { children: ComponentChildren }) {
  return (
    <p class="loading" role="status">
      <span class="spinner" aria-hidden="true" />
      {props.children}
    </p>
  );
}
