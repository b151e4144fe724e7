/** Light or dark: as the system, unless the reader chose one. */

import { Store } from './store';

export type Theme = 'light' | 'dark';
export type ThemeChoice = Theme | 'system';

const KEY = 'naksha.theme';
const prefersDark = matchMedia('(prefers-color-scheme: dark)');

export const themeChoice = new Store<ThemeChoice>(storedChoice());
export const theme = new Store<Theme>(resolved());

function storedChoice(): ThemeChoice {
  const found = localStorage.getItem(KEY);
  return found === 'light' || found === 'dark' ? found : 'system';
}

function resolved(): Theme {
  const choice = themeChoice.value;
  if (choice !== 'system') return choice;
  return prefersDark.matches ? 'dark' : 'light';
}

function apply(): void {
  theme.set(resolved());
  document.documentElement.dataset['theme'] = theme.value;
}

/** Apply the theme to the page, and follow the system and the reader's choice. */
export function bindTheme(): void {
  apply();
  prefersDark.addEventListener('change', apply);
  themeChoice.subscribe((choice) => {
    localStorage.setItem(KEY, choice);
    apply();
  });
}
