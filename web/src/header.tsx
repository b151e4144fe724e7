/** The header: name, panels, theme and session. */

import type { Me } from './api/types';
import iconUrl from './icon.svg';
import { PANELS } from './panels/registry';
import { currentSpace, spaces } from './state/data';
import { signOut } from './state/session';
import { useStore } from './state/store';
import { type ThemeChoice, themeChoice } from './state/theme';
import { view } from './state/view';
import { Icon, type IconName } from './ui/icons';
import { IconButton } from './ui/parts';

const NEXT_THEME: Readonly<Record<ThemeChoice, { next: ThemeChoice; icon: IconName; label: string }>> = {
  system: { next: 'light', icon: 'system', label: 'Theme: as the system. Change to light' },
  light: { next: 'dark', icon: 'sun', label: 'Theme: light. Change to dark' },
  dark: { next: 'system', icon: 'moon', label: 'Theme: dark. Change to the theme of the system' },
};

export function Header({ me }: { me: Me }) {
  useStore(spaces);
  const { panel: open } = useStore(view);
  const choice = NEXT_THEME[useStore(themeChoice)];
  const space = currentSpace();
  return (
    <header class="header">
      <h1 class="brand">
        <img src={iconUrl} alt="" width="24" height="24" />
        <span>Naksha</span>
      </h1>
      <nav class="tabs" aria-label="Panels">
        {PANELS.filter((panel) => panel.isOffered(space, me)).map((panel) => (
          <button
            key={panel.id}
            type="button"
            class="tab"
            aria-pressed={panel.id === open}
            onClick={() => view.update({ panel: panel.id === open ? null : panel.id })}
          >
            <Icon name={panel.icon} />
            <span>{panel.title}</span>
          </button>
        ))}
      </nav>
      <div class="header-end">
        <span class="who" title={`Application ${me.appId}, realm ${me.realm}`}>
          {me.anonymous ? 'No token needed' : (me.author ?? me.appId)}
        </span>
        {!me.anonymous && <IconButton icon="key" label="Forget the token" onClick={() => void signOut()} />}
        <IconButton icon={choice.icon} label={choice.label} onClick={() => themeChoice.set(choice.next)} />
      </div>
    </header>
  );
}
